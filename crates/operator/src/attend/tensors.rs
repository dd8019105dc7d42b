use super::{Entries, SlotList, Spec};
use crate::{
    HEAD_DIM,
    tensors::{extent, tensors},
};

tensors! {
    /// The tensors of attention, in the order of the kernel's arguments. What a problem does not use is empty, or `None`.
    pub struct Tensors {
        /// `[tokens, q_heads, 512]` bf16 or f16: the queries, as the prologue writes them.
        q: Read,
        /// `[num_blocks, block_stride]` u8: the paged cache.
        kv_cache: Read,
        /// `[tokens, count]` i64 or i32: the slots of each token's entries, in order.
        slots: Read,
        /// `[tokens]` i64 or i32: how many of each token's slots count.
        lens: Read,
        /// `[sequences, blocks]` i64 or i32: the blocks of each sequence, in place of `slots`.
        block_table: Read,
        /// `[tokens]` i64 or i32: each token's sequence, where sequences do not have as many tokens each.
        sequence_ids: Read,
        /// `[num_blocks, block_stride]` u8: a second cache.
        extra_kv_cache: Read,
        /// `[tokens, count]` i64 or i32: the slots of each token's entries in it, after the others.
        extra_slots: Read,
        /// `[tokens]` i64 or i32: how many of each token's extra slots count.
        extra_lens: Read,
        /// `[heads]` f32: a logit of each head that takes its share and gives nothing.
        sinks: Read,
        /// `[tokens]` i64 or i32: each token's position in its sequence.
        positions: Read,
        /// `[positions, 64]` f32, bf16 or f16: the rotary table, whose rotation is undone.
        cos_sin_cache: Read,
        /// `[tokens, padded_heads, 512]`, the type of `q`: written whole.
        out: Write,
        /// `[tokens, heads]` f32: the largest score of each head, the sink left out.
        max: Write,
        /// `[tokens, heads]` f32: the sum of its weights, each relative to that of the largest score.
        sum: Write,
    }
}

impl Tensors<usize> {
    /// The size of each tensor in bytes; `None` where one cannot be counted.
    pub(super) fn sizes(spec: &Spec) -> Option<Self> {
        let tokens = spec.tokens;
        let list = |slots: &SlotList| {
            let count = tokens.checked_mul(slots.count)?.checked_mul(slots.index_type.bytes())?;
            let lens = slots.lens.map_or(Some(0), |index| tokens.checked_mul(index.bytes()))?;
            Some((count, lens))
        };
        let mut sizes = Self {
            q: extent(&[(tokens, spec.stride()), (spec.q_heads, HEAD_DIM)])?,
            kv_cache: spec.cache.bytes(),
            sinks: if spec.sinks { spec.heads.checked_mul(4)? } else { 0 },
            out: tokens.checked_mul(spec.padded_heads)?.checked_mul(HEAD_DIM * 2)?,
            ..Self::default()
        };
        match &spec.entries {
            Entries::Slots(slots) => (sizes.slots, sizes.lens) = list(slots)?,
            Entries::Window(window) => {
                sizes.block_table = window.table.bytes();
                let ids = window.sequence_ids.map_or(0, |index| index.bytes());
                sizes.sequence_ids = tokens.checked_mul(ids)?;
            }
        }
        if let Some(extra) = &spec.extra {
            sizes.extra_kv_cache = extra.cache.bytes();
            (sizes.extra_slots, sizes.extra_lens) = list(&extra.slots)?;
        }
        if spec.has_positions() {
            sizes.positions = tokens.checked_mul(spec.position_type.bytes())?;
        }
        if let Some(rotary) = &spec.rotary {
            sizes.cos_sin_cache = rotary.rows.checked_mul(rotary.row_bytes())?;
        }
        if spec.stats {
            sizes.max = tokens.checked_mul(spec.heads)?.checked_mul(4)?;
            sizes.sum = sizes.max;
        }
        sizes.named().all(|(_, bytes)| isize::try_from(bytes).is_ok()).then_some(sizes)
    }
}
