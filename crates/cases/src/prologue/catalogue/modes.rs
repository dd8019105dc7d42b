//! The operator's options crossed with each other: every pair of choices meets in some case.

use super::{Case, Data, SlotPattern};
use crate::pairwise;
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Float16, Fp8, HEAD_DIM, Index, PadScaleByte, QuantFrom, RotaryType,
    Rounding, TableOrder,
    prologue::{Key, Query, RotaryTable, Spec, Strides},
};

/// How many values each choice has; their meaning is in [`case`].
const CHOICES: [usize; 18] =
    [3, 2, 2, 2, 3, 2, 2, 3, 2, 2, 2, 2, CacheFormat::COUNT, 2, 2, 2, 4, 4];

/// Cases in which every pair of choices that can meet does.
pub fn modes() -> Vec<Case> {
    let valid = |choice: &_| case(choice, 0).is_some_and(|case| case.spec.validate().is_ok());
    let choices = pairwise::cover(CHOICES, valid).into_iter().zip(1000..);
    choices.filter_map(|(choice, seed)| case(&choice, seed)).collect()
}

/// The case of a choice; `None` where part of it has no effect, so that each case has one choice.
fn case(choice: &[usize; CHOICES.len()], seed: u64) -> Option<Case> {
    let [
        work,
        norm,
        rope,
        rounding,
        kv_norm,
        quant_from,
        layout,
        table,
        positions,
        slot_type,
        fp8,
        pad_byte,
        format,
        q_scale,
        dtype,
        strided,
        shape,
        data,
    ] = *choice;
    let (tokens, heads, padded_heads): (usize, _, _) =
        [(1, 1, 8), (4, 16, 64), (17, 5, 5), (33, 8, 9)][shape];
    let fp8 = Fp8::ALL[fp8];
    let pad_scale_byte = PadScaleByte::ALL[pad_byte];
    let format = CacheFormat::all(fp8, pad_scale_byte)[format];
    let rows_fp8 = format.has_tensor_scale();
    let unused = [
        pad_byte > 0 && !matches!(format, CacheFormat::Fp8DsMla { .. }),
        fp8 != Fp8::E4m3fn && format.fp8().is_none(),
        quant_from > 0 && format.quant_block().is_none(),
        rounding > 0 && (norm > 0 || rope > 0),
        q_scale > 0 && (work > 0 || !rows_fp8),
        work == 1 && [kv_norm, quant_from, slot_type, choice[12]].iter().any(|&choice| choice > 0),
        work == 2 && [norm, rope, rounding].iter().any(|&choice| choice > 0),
    ];
    if unused.contains(&true) {
        return None;
    }
    let strides = Strides { token: heads * (HEAD_DIM + 16) + 8, head: HEAD_DIM + 16 };
    let query = Query::new(heads, padded_heads)
        .norm(norm == 0)
        .rope(rope == 0)
        .rounding(Rounding::ALL[rounding])
        .scale((q_scale > 0).then_some(0.037))
        .strides((strided > 0).then_some(strides));
    let block_size = [64, 2, 16, 1][shape];
    let dense = CacheLayout::new(format, block_size, tokens.div_ceil(block_size) + 1);
    let cache = dense.with_stride(dense.block_stride + 3 * format.stride_unit());
    let key = Key::new(tokens - tokens / 8, cache)
        .slot_type(Index::ALL[slot_type])
        .norm([None, Some(Rounding::To16Bit), Some(Rounding::None)][kv_norm])
        .quant_from(QuantFrom::ALL[quant_from])
        .scale(rows_fp8.then_some(0.051))
        .row_stride((strided > 0).then_some(HEAD_DIM + 64));
    let table =
        RotaryTable { rows: 40, dtype: RotaryType::ALL[table], order: TableOrder::ALL[layout] };
    let spec = Spec::new(tokens, table)
        .dtype(Float16::ALL[dtype])
        .position_type(Index::ALL[positions])
        .query((work != 2).then_some(query))
        .key((work != 1).then_some(key));
    Some(Case { spec, data: Data::ALL[data], slots: SlotPattern::SomeNegative, seed })
}
