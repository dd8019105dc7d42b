use super::{Spec, Strides};
use crate::{
    HEAD_DIM,
    tensors::{extent, tensors},
};

tensors! {
    /// The tensors of a prologue, in the order of the kernel's arguments. What a problem does not use is empty, or `None`.
    pub struct Tensors {
        /// `[tokens, heads, 512]` bf16 or f16: the queries.
        q: Read,
        /// `[tokens, 512]`, the type of `q`: the keys.
        kv: Read,
        /// `[512]`, the type of `q`: with a norm of the keys.
        kv_norm_weight: Read,
        /// `[tokens]` i64 or i32: each token's row of the rotary table.
        positions: Read,
        /// `[slot_count]` i64 or i32: each token's slot of the cache; negative: not inserted.
        slot_mapping: Read,
        /// `[positions, 64]` f32, bf16 or f16: the rotary table.
        cos_sin_cache: Read,
        /// `[tokens, padded_heads, 512]`, the type of `q` or FP8: the padded queries, written whole.
        q_out: Write,
        /// `[num_blocks, block_stride]` u8: the paged cache; only the bytes of inserted tokens change.
        kv_cache: Update,
    }
}

impl Tensors<usize> {
    /// The size of each tensor in bytes; `None` where one cannot be counted.
    pub(super) fn sizes(spec: &Spec) -> Option<Self> {
        let tokens = spec.tokens;
        let mut sizes = Self {
            positions: tokens.checked_mul(spec.position_type.bytes())?,
            cos_sin_cache: spec.table.rows.checked_mul(spec.table.row_bytes())?,
            ..Self::default()
        };
        if let Some(query) = spec.query {
            let strides = query.strides.unwrap_or(Strides::dense(query.heads));
            let value = if query.scale.is_some() { 1 } else { 2 };
            sizes.q = extent(&[(tokens, strides.token), (query.heads, strides.head)])?;
            sizes.q_out = tokens.checked_mul(query.padded_heads)?.checked_mul(HEAD_DIM * value)?;
        }
        if let Some(key) = spec.key {
            sizes.kv = extent(&[(tokens, key.row_stride.unwrap_or(HEAD_DIM))])?;
            sizes.kv_norm_weight = key.norm.map_or(0, |_| HEAD_DIM * 2);
            sizes.slot_mapping = key.slot_count.checked_mul(key.slot_type.bytes())?;
            sizes.kv_cache = key.cache.num_blocks.checked_mul(key.cache.block_stride)?;
        }
        sizes.named().all(|(_, bytes)| isize::try_from(bytes).is_ok()).then_some(sizes)
    }
}
