//! The operator's options crossed with each other.

use super::{Case, Data, SlotPattern};
use crate::pairwise;
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Float16, Fp8, HEAD_DIM, Index, PadScaleByte, RotaryTable, RotaryType,
    TableOrder,
    attend::{BlockTable, Entries, Extra, SCALE, SlotList, Spec, Window},
};

/// How many values each choice has; their meaning is in [`case`].
const CHOICES: [usize; 15] = [6, CacheFormat::COUNT, 2, 2, 4, 2, 3, 3, 2, 4, 2, 2, 4, 5, 2];

/// Cases in which every pair of choices that can meet does.
pub fn modes() -> Vec<Case> {
    let valid = |choice: &_| case(choice, 0).is_some_and(|case| case.spec.validate().is_ok());
    let choices = pairwise::cover(CHOICES, valid).into_iter().zip(2000..);
    choices.filter_map(|(choice, seed)| case(&choice, seed)).collect()
}

/// The case of a choice; `None` where part of it has no effect, so that each case has one choice.
fn case(choice: &[usize; CHOICES.len()], seed: u64) -> Option<Case> {
    let [
        shape,
        format,
        fp8,
        dtype,
        entries,
        index,
        extra,
        lens,
        sinks,
        rotary,
        position,
        strided,
        data,
        slots,
        scale,
    ] = *choice;
    // Tokens, heads, heads of q, heads of out, entries, extra entries.
    let (tokens, heads, q_heads, padded_heads, count, extra_count) = [
        (1, 1, 1, 1, 1, 5),
        (2, 8, 8, 8, 64, 64),
        (3, 3, 8, 5, 65, 70),
        (4, 16, 16, 64, 130, 63),
        (6, 17, 17, 17, 200, 1),
        (2, 5, 7, 8, 0, 129),
    ][shape];
    let fp8 = Fp8::ALL[fp8];
    let format = CacheFormat::all(fp8, PadScaleByte::default())[format];
    let windowed = entries > 1;
    let unused = [
        fp8 != Fp8::E4m3fn && format.fp8().is_none(),
        windowed && (lens == 1 || slots > 0 || count == 0),
        extra == 0 && lens == 2,
        position > 0 && !windowed && rotary == 0,
    ];
    if unused.contains(&true) {
        return None;
    }
    let index = Index::ALL[index];
    let cache = |block_size: usize, blocks: usize| {
        let dense = CacheLayout::new(format, block_size, blocks);
        dense.with_stride(dense.block_stride + strided * 3 * format.stride_unit())
    };
    let list = |count: usize, with_lens: bool| {
        let list = SlotList::new(count).index_type(index);
        if with_lens { list.lens(index) } else { list }
    };
    let sequences = if entries == 3 { 3 } else { [1, 2, 3, 2, 2, 2][shape] };
    let table = BlockTable { sequences, blocks: 9, index_type: index };
    let window = Window::new(count, table);
    let (block_size, extra_block_size) =
        [(64, 2), (16, 1), (2, 64), (64, 16), (256, 4), (1, 8)][shape];
    let order = TableOrder::ALL[(rotary / 2) % 2];
    let dtypes = [RotaryType::F32, RotaryType::F32, RotaryType::Bf16, RotaryType::F16];
    let rotary = (rotary > 0).then_some(RotaryTable { rows: 700, dtype: dtypes[rotary], order });
    let kv_scale = format.has_tensor_scale().then_some(0.051);
    let spec = Spec::new(
        tokens,
        heads,
        cache(block_size, 300usize.div_ceil(block_size) + 1),
        match entries {
            0 | 1 => Entries::Slots(list(count, lens == 1)),
            2 => Entries::Window(window),
            _ => Entries::Window(window.sequence_ids(index)),
        },
    )
    .q_heads(q_heads)
    .padded_heads(padded_heads)
    .dtype(Float16::ALL[dtype])
    .scale([SCALE, -0.03][scale])
    .token_stride((strided > 0).then_some((q_heads + 1) * HEAD_DIM + 8))
    .kv_scale(kv_scale)
    .extra((extra > 0).then(|| Extra {
        cache: cache(extra_block_size, 160usize.div_ceil(extra_block_size)),
        slots: list(extra_count, lens == 2),
    }))
    .sinks(sinks > 0)
    .position_type(Index::ALL[position])
    .rotary(rotary)
    .stats(true);
    Some(Case { spec, data: Data::ALL[data], slots: SlotPattern::ALL[slots], seed })
}
