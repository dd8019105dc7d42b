use super::Tensors;
use crate::{CacheLayout, Float16, HEAD_DIM, Index, Result, error::require, tensors::setters};

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

/// The blocks of sequences: `[sequences, blocks]`. Token t of a sequence is in its block t / block_size.
/// Each sequence has as many rows of the result, one sequence after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTable {
    /// Sequences.
    pub sequences: usize,
    /// Entries of each sequence.
    pub blocks: usize,
    /// The type of the entries.
    pub index_type: Index,
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
        let mut table_bytes = 0;
        if let Some(table) = self.block_table {
            require(
                table.sequences > 0 && self.rows.is_multiple_of(table.sequences),
                "the row count of block_table",
                table.sequences,
                format_args!("a divisor of the {} indices", self.rows),
            )?;
            let entries = table.sequences.checked_mul(table.blocks);
            let entries = entries.filter(|&entries| entries <= most);
            require(
                entries.is_some(),
                "the width of block_table",
                table.blocks,
                "small enough for less than 2^31 entries",
            )?;
            table_bytes = entries.unwrap_or(0) * table.index_type.bytes();
        }
        let sizes = Tensors {
            kv_cache: self.cache.bytes(),
            indices: self.rows * self.index_type.bytes(),
            block_table: table_bytes,
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
        let within =
            |value: i64, limit: usize| usize::try_from(value).ok().filter(|&value| value < limit);
        let rows = index_type.values(indices);
        let Some(table) = table else {
            return rows.map(|slot| within(slot, cache.capacity())).collect();
        };
        let blocks: Vec<i64> = table.index_type.values(block_table).collect();
        let slot = |(row, token): (usize, i64)| {
            let token = within(token, table.blocks.checked_mul(cache.block_size)?)?;
            let entry = row / self.rows_per_sequence() * table.blocks + token / cache.block_size;
            let block = within(blocks[entry], cache.num_blocks)?;
            Some(block * cache.block_size + token % cache.block_size)
        };
        rows.enumerate().map(slot).collect()
    }
}
