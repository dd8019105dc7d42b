use super::Tensors;
use crate::{
    BlockTable, CacheLayout, Float16, HEAD_DIM, Index, Result, error::require, tensors::setters,
};

/// Reading the cache back: rows of it are gathered and converted to `[rows, 512]` values.
///
/// A row without a token is zero: its index is negative or outside the cache, or its block is.
///
/// ```
/// use mla_prologue_operator::{CacheFormat, CacheLayout, Invalid, gather::Spec};
/// let cache = CacheLayout::new(CacheFormat::default(), 64, 8);
/// let problem = Spec::new(cache, 128).validate()?;
/// assert_eq!(problem.sizes().out, 128 * 512 * 4);
/// # Ok::<(), Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// Rows of the result.
    pub rows: usize,
    /// The cache.
    pub cache: CacheLayout,
    /// The scale of the whole tensor in a cache of FP8 rows.
    pub scale: Option<f32>,
    /// The type of the cache's 16-bit values.
    pub dtype: Float16,
    /// Round the values to `dtype`; otherwise they are f32, which holds each of them exactly.
    pub rounded: bool,
    /// The type of the indices `[rows]`: slots or, with a block table, tokens of a sequence.
    pub index_type: Index,
    /// With it, indices are tokens of sequences.
    pub block_table: Option<BlockTable>,
}

/// A valid [`Spec`], with the sizes of its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    spec: Spec,
    sizes: Tensors<usize>,
}

impl Spec {
    /// `rows` slots of a cache, as f32.
    pub const fn new(cache: CacheLayout, rows: usize) -> Self {
        Self {
            rows,
            cache,
            scale: None,
            dtype: Float16::Bf16,
            rounded: false,
            index_type: Index::I64,
            block_table: None,
        }
    }

    setters! {
        /// Rows of the result.
        rows: usize,
        /// The scale of a cache of FP8 rows.
        scale: Option<f32>,
        /// The type of the cache's 16-bit values.
        dtype: Float16,
        /// Round the values to `dtype`.
        rounded: bool,
        /// The type of the indices.
        index_type: Index,
        /// Indices are tokens of sequences.
        block_table: Option<BlockTable>,
    }

    /// # Errors
    /// The first field that is invalid, by itself or beside the others.
    pub fn validate(self) -> Result<Problem> {
        self.cache.validate()?;
        let most = i32::MAX as usize;
        require(self.rows <= most, "the length of the indices", self.rows, "less than 2^31")?;
        self.cache.format.check_scale(self.scale)?;
        let table = self.block_table;
        table.iter().try_for_each(|table| table.validate(self.rows, "indices"))?;
        let sizes = Tensors {
            kv_cache: self.cache.bytes(),
            indices: self.rows * self.index_type.bytes(),
            block_table: table.map_or(0, |table| table.bytes()),
            out: self.rows * HEAD_DIM * if self.rounded { 2 } else { 4 },
        };
        Ok(Problem { spec: self, sizes })
    }
}

impl Problem {
    /// What was validated.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Bytes of every tensor.
    pub const fn sizes(&self) -> Tensors<usize> {
        self.sizes
    }

    /// The same problem on a cache whose blocks lie that many bytes apart.
    ///
    /// # Errors
    /// A stride that the kernel cannot use.
    pub fn with_stride(self, block_stride: usize) -> Result<Self> {
        if block_stride == self.spec.cache.block_stride {
            return Ok(self);
        }
        Spec { cache: self.spec.cache.with_stride(block_stride), ..self.spec }.validate()
    }

    /// Rows of each sequence; without a block table there is one.
    pub const fn rows_per_sequence(&self) -> usize {
        match self.spec.block_table {
            Some(table) => self.spec.rows / table.sequences,
            None => self.spec.rows,
        }
    }

    /// The slot of each row, `None` for a row without a token. `indices` and `block_table` are of their
    /// [`sizes`](Self::sizes).
    pub fn slots(&self, indices: &[u8], block_table: &[u8]) -> Vec<Option<usize>> {
        let Spec { cache, index_type, block_table: table, .. } = self.spec;
        let rows = index_type.values(indices);
        let Some(table) = table else { return rows.map(|slot| cache.slot(slot)).collect() };
        let blocks: Vec<i64> = table.index_type.values(block_table).collect();
        let sequence = |row| row / self.rows_per_sequence();
        rows.enumerate()
            .map(|(row, token)| table.slot(&cache, &blocks, sequence(row), token))
            .collect()
    }
}
