use super::{Key, Query, Spec, Strides, Tensors};
use crate::Result;

/// The shapes and options of one call, validated: a value that cannot be wrong.
///
/// ```
/// use mla_prologue_operator::{CacheFormat, CacheLayout, Invalid};
/// use mla_prologue_operator::prologue::{Key, Query, RotaryTable, Spec};
/// let cache = CacheLayout::new(CacheFormat::default(), 64, 8).align_stride(576);
/// let spec = Spec::new(4, RotaryTable::new(4096)).query(Query::new(16, 64)).key(Key::new(4, cache));
/// let problem = spec.validate()?;
/// assert_eq!(problem.sizes().q_out, 4 * 64 * 512 * 2);
///
/// let error = spec.query(Query::new(65, 64)).validate().unwrap_err();
/// assert_eq!(error.to_string(), "padded_heads is 64; it must be at least the 65 heads of q");
/// # Ok::<(), Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    spec: Spec,
    sizes: Tensors<usize>,
}

impl Problem {
    pub(super) const fn new(spec: Spec, sizes: Tensors<usize>) -> Self {
        Self { spec, sizes }
    }

    /// What was validated.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Bytes of every tensor of the call; `q_out` and `kv_cache` are the caller's own.
    pub const fn sizes(&self) -> Tensors<usize> {
        self.sizes
    }

    /// The same problem on tensors that lie in memory with these strides, in values and, of the cache's blocks, in bytes.
    ///
    /// # Errors
    /// A stride that the kernel cannot use.
    pub fn with_strides(
        self,
        q: Option<Strides>,
        kv: Option<usize>,
        block_stride: usize,
    ) -> Result<Self> {
        let query = self.spec.query.map(|query| Query { strides: q, ..query });
        let key = self.spec.key.map(|key| {
            let mut key = Key { row_stride: kv, ..key };
            key.cache.block_stride = block_stride;
            key
        });
        if (query, key) == (self.spec.query, self.spec.key) {
            return Ok(self);
        }
        Spec { query, key, ..self.spec }.validate()
    }
}
