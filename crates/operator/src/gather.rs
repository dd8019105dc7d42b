use crate::{CacheLayout, HEAD_DIM, Half, Index, Result, error::require, problem};

/// Reading the cache back: rows of it are gathered and converted to `[rows, 512]` values.
///
/// A row without a token is zero: where the index is negative, or its block is, or either is outside.
///
/// ```
/// # use mla_prologue_operator::*;
/// let cache = CacheLayout { format: CacheFormat::default(), block_size: 64, block_stride: 37440, num_blocks: 8 };
/// let gather = Gather { rows: 128, ..Gather::new(cache, 128) };
/// gather.validate()?;
/// assert_eq!(gather.out_bytes(), 128 * 512 * 4);
/// # Ok::<(), Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    /// Rows of the result.
    pub rows: usize,
    /// The cache.
    pub cache: CacheLayout,
    /// The scale of the whole tensor in a cache of FP8 rows.
    pub scale: Option<f32>,
    /// The type of the cache's 16-bit values.
    pub half: Half,
    /// Round the values to `half`; otherwise they are f32, which holds each of them exactly.
    pub rounded: bool,
    /// The type of the indices `[rows]`: slots or, with a block table, tokens of a sequence.
    pub indices: Index,
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
    pub index: Index,
}

impl Gather {
    /// `rows` slots of a cache, as f32.
    pub fn new(cache: CacheLayout, rows: usize) -> Self {
        Self {
            rows,
            cache,
            scale: None,
            half: Half::default(),
            rounded: false,
            indices: Index::default(),
            block_table: None,
        }
    }

    /// # Errors
    /// The first of the fields that makes no sense, by itself or beside the others.
    pub fn validate(&self) -> Result<()> {
        self.cache.validate()?;
        let most = i32::MAX as usize;
        require(self.rows <= most, "the length of the indices", self.rows, "less than 2^31")?;
        problem::check_cache_scale(self.cache.format, self.scale)?;
        let Some(table) = self.block_table else { return Ok(()) };
        require(
            table.sequences > 0 && self.rows.is_multiple_of(table.sequences),
            "the row count of block_table",
            table.sequences,
            format_args!("a divisor of the {} indices", self.rows),
        )?;
        let entries = table.sequences.checked_mul(table.blocks);
        require(
            entries.is_some_and(|entries| entries <= most),
            "the width of block_table",
            table.blocks,
            "small enough for less than 2^31 entries",
        )
    }

    /// Rows of each sequence; without a block table there is one.
    pub const fn rows_per_sequence(&self) -> usize {
        match self.block_table {
            Some(table) if table.sequences > 0 => self.rows / table.sequences,
            _ => self.rows,
        }
    }

    /// Bytes of the indices.
    pub const fn index_bytes(&self) -> usize {
        self.rows * self.indices.bytes()
    }

    /// Bytes of the block table.
    pub const fn table_bytes(&self) -> usize {
        match self.block_table {
            Some(table) => table.sequences * table.blocks * table.index.bytes(),
            None => 0,
        }
    }

    /// Bytes of the result.
    pub const fn out_bytes(&self) -> usize {
        self.rows * HEAD_DIM * if self.rounded { 2 } else { 4 }
    }

    /// The slot of each row, `None` for a row without a token. `indices` and `block_table` are
    /// little-endian bytes on the host, of [`index_bytes`](Self::index_bytes) and
    /// [`table_bytes`](Self::table_bytes).
    ///
    /// # Errors
    /// A tensor that is not of its size.
    pub fn slots(&self, indices: &[u8], block_table: &[u8]) -> Result<Vec<Option<usize>>> {
        let sizes = [
            ("the indices", indices.len(), self.index_bytes()),
            ("block_table", block_table.len(), self.table_bytes()),
        ];
        for (name, bytes, wanted) in sizes {
            let must = format_args!("{wanted} bytes");
            require(
                bytes == wanted,
                format_args!("the size of {name}"),
                format_args!("{bytes} bytes"),
                must,
            )?;
        }
        let within =
            |value: i64, limit: usize| usize::try_from(value).ok().filter(|&value| value < limit);
        let rows = self.indices.values(indices);
        let Some(table) = self.block_table else {
            return Ok(rows.map(|slot| within(slot, self.cache.slots())).collect());
        };
        let blocks: Vec<i64> = table.index.values(block_table).collect();
        let slot = |(row, token): (usize, i64)| {
            let token = within(token, table.blocks.checked_mul(self.cache.block_size)?)?;
            let entry =
                row / self.rows_per_sequence() * table.blocks + token / self.cache.block_size;
            let block = within(blocks[entry], self.cache.num_blocks)?;
            Some(block * self.cache.block_size + token % self.cache.block_size)
        };
        Ok(rows.enumerate().map(slot).collect())
    }
}
