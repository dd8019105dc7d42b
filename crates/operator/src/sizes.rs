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
    /// The sizes that a call's tensors have.
    pub(crate) fn new(spec: &Spec) -> Self {
        let tokens = spec.tokens;
        let q = spec.query.map_or(0, |query| {
            let strides = query.strides.unwrap_or(Strides::dense(query.heads));
            extent(&[(tokens, strides.token), (query.heads, strides.head)])
        });
        let row_stride = spec.key.and_then(|key| key.row_stride).unwrap_or(HEAD_DIM);
        let norm = spec.key.and_then(|key| key.norm);
        Self {
            q,
            kv: spec.key.map_or(0, |_| extent(&[(tokens, row_stride)])),
            kv_norm_weight: norm.map_or(0, |_| HEAD_DIM * 2),
            positions: tokens * spec.positions.bytes(),
            slot_mapping: spec.key.map_or(0, |key| key.slots * key.slot_type.bytes()),
            cos_sin_cache: spec.table.rows * spec.table_row_bytes(),
            q_out: spec.q_out_bytes(),
            kv_cache: spec.cache_bytes(),
        }
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
fn extent(dimensions: &[(usize, usize)]) -> usize {
    if dimensions.iter().any(|&(count, _)| count == 0) {
        return 0;
    }
    let last: usize = dimensions.iter().map(|&(count, stride)| (count - 1) * stride).sum();
    (last + HEAD_DIM) * 2
}
