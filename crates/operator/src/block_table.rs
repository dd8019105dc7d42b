use crate::{CacheLayout, Index, Result, error::require};

/// The blocks of sequences: `[sequences, blocks]`. Token t of a sequence is in its block t / block_size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTable {
    /// Sequences.
    pub sequences: usize,
    /// Entries of each sequence.
    pub blocks: usize,
    /// The type of the entries.
    pub index_type: Index,
}

impl BlockTable {
    /// Bytes of a table that is valid.
    pub(crate) const fn bytes(&self) -> usize {
        self.sequences * self.blocks * self.index_type.bytes()
    }

    /// Checks the table beside so many `rows`, of which each sequence has as many.
    pub(crate) fn validate(&self, rows: usize, what: &str) -> Result<()> {
        require(
            self.sequences > 0 && rows.is_multiple_of(self.sequences),
            "the row count of block_table",
            self.sequences,
            format_args!("a divisor of the {rows} {what}"),
        )?;
        self.validate_entries()
    }

    /// Checks that its entries can be counted.
    pub(crate) fn validate_entries(&self) -> Result<()> {
        let entries = self.sequences.checked_mul(self.blocks);
        require(
            entries.is_some_and(|entries| entries <= i32::MAX as usize),
            "the width of block_table",
            self.blocks,
            "small enough for less than 2^31 entries",
        )
    }

    /// Tokens that a sequence can have.
    pub(crate) const fn tokens(&self, cache: &CacheLayout) -> usize {
        self.blocks.saturating_mul(cache.block_size)
    }

    /// The slot of a sequence's token; `None` where the token is outside the table, or its block outside the cache.
    /// `blocks` are the table's entries.
    pub(crate) fn slot(
        &self,
        cache: &CacheLayout,
        blocks: &[i64],
        sequence: usize,
        token: i64,
    ) -> Option<usize> {
        let token = usize::try_from(token).ok().filter(|token| *token < self.tokens(cache))?;
        let block = blocks[sequence * self.blocks + token / cache.block_size];
        let block = usize::try_from(block).ok().filter(|block| *block < cache.num_blocks)?;
        Some(block * cache.block_size + token % cache.block_size)
    }
}
