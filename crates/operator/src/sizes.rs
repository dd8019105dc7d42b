use crate::{HEAD_DIM, Invalid, Result, Spec, Strides};

/// Bytes of each tensor of a call; 0 for what the call has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tensors are described at Inputs and Outputs")]
pub struct Sizes {
    pub q: usize,
    pub kv: usize,
    pub kv_norm_weight: usize,
    pub positions: usize,
    pub slot_mapping: usize,
    pub cos_sin_cache: usize,
    pub q_out: usize,
    pub kv_cache: usize,
}

impl Sizes {
    /// The sizes that a call's tensors have; `None` where one cannot be counted.
    pub(crate) fn new(spec: &Spec) -> Option<Self> {
        let tokens = spec.tokens;
        let (mut q, mut q_out) = (0, 0);
        if let Some(query) = spec.query {
            let strides = query.strides.unwrap_or(Strides::dense(query.heads));
            q = extent(&[(tokens, strides.token), (query.heads, strides.head)])?;
            let value = if query.scale.is_some() { 1 } else { 2 };
            q_out = tokens.checked_mul(query.padded_heads)?.checked_mul(HEAD_DIM * value)?;
        }
        let (mut kv, mut kv_norm_weight, mut slot_mapping, mut kv_cache) = (0, 0, 0, 0);
        if let Some(key) = spec.key {
            kv = extent(&[(tokens, key.row_stride.unwrap_or(HEAD_DIM))])?;
            kv_norm_weight = key.norm.map_or(0, |_| HEAD_DIM * 2);
            slot_mapping = key.slots.checked_mul(key.slot_type.bytes())?;
            kv_cache = key.cache.num_blocks.checked_mul(key.cache.block_stride)?;
        }
        let positions = tokens.checked_mul(spec.positions.bytes())?;
        let cos_sin_cache = spec.table.rows.checked_mul(spec.table_row_bytes())?;
        let sizes =
            Self { q, kv, kv_norm_weight, positions, slot_mapping, cos_sin_cache, q_out, kv_cache };
        sizes.named().iter().all(|&(_, bytes)| isize::try_from(bytes).is_ok()).then_some(sizes)
    }

    /// Names and sizes, in the order of the fields.
    pub fn named(&self) -> [(&'static str, usize); 8] {
        [
            ("q", self.q),
            ("kv", self.kv),
            ("kv_norm_weight", self.kv_norm_weight),
            ("positions", self.positions),
            ("slot_mapping", self.slot_mapping),
            ("cos_sin_cache", self.cos_sin_cache),
            ("q_out", self.q_out),
            ("kv_cache", self.kv_cache),
        ]
    }

    /// Compares with the sizes at hand, which may be larger where `exact` is false.
    ///
    /// # Errors
    /// The first tensor that is too small, or not of its size.
    pub fn check(&self, actual: [usize; 8], exact: bool) -> Result<()> {
        for ((name, wanted), bytes) in self.named().into_iter().zip(actual) {
            if bytes < wanted || (exact && bytes != wanted) {
                let least = if exact { "" } else { "at least " };
                return Err(Invalid::new(
                    format_args!("the size of {name}"),
                    format_args!("{bytes} bytes"),
                    format_args!("{least}{wanted} bytes"),
                ));
            }
        }
        Ok(())
    }
}

/// Bytes from the first to the last row of 16-bit values, given how many rows there are and how far
/// apart, in values, in each dimension.
fn extent(dimensions: &[(usize, usize)]) -> Option<usize> {
    let mut values = HEAD_DIM;
    for &(count, stride) in dimensions {
        let Some(steps) = count.checked_sub(1) else { return Some(0) };
        values = values.checked_add(steps.checked_mul(stride)?)?;
    }
    values.checked_mul(2)
}
