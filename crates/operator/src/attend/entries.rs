use crate::{BlockTable, CacheLayout, Index, MAX_ROWS, Result, error::require};

/// Which entries of `kv_cache` each token attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// A list of slots.
    Slots(SlotList),
    /// The last tokens of its sequence, itself the last of them.
    Window(Window),
}

/// A list of slots for each token: `slots` `[tokens, count]`. A slot that is negative or outside the cache is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotList {
    /// Slots of a token.
    pub count: usize,
    /// Their type.
    pub index_type: Index,
    /// The type of `lens` `[tokens]`, if it is given: only the first `lens[t]` slots of token t count.
    pub lens: Option<Index>,
}

/// Tokens `p - length + 1` to `p` of each token's sequence, where `p` is its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// Tokens of the window, 1 or more.
    pub length: usize,
    /// The blocks of the sequences.
    pub table: BlockTable,
    /// The type of `sequence_ids` `[tokens]`, if it is given. Otherwise each sequence has as many tokens of the call, one
    /// sequence after the other.
    pub sequence_ids: Option<Index>,
}

/// A second cache, of the same format, and each token's entries of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The cache.
    pub cache: CacheLayout,
    /// Its entries.
    pub slots: SlotList,
}

impl SlotList {
    /// `count` slots of each token, in i32, all of which count.
    pub const fn new(count: usize) -> Self {
        Self { count, index_type: Index::I32, lens: None }
    }

    /// The type of the slots.
    #[must_use]
    pub const fn index_type(self, index_type: Index) -> Self {
        Self { index_type, ..self }
    }

    /// Only the first slots count: as many as `lens` says, whose type this is.
    #[must_use]
    pub const fn lens(self, index: Index) -> Self {
        Self { lens: Some(index), ..self }
    }

    pub(super) fn validate(
        &self,
        tokens: usize,
        cache: &CacheLayout,
        names: [&str; 2],
    ) -> Result<()> {
        let [slots, cache_name] = names;
        require(
            tokens.checked_mul(self.count).is_some_and(|entries| entries <= MAX_ROWS),
            format_args!("the width of {slots}"),
            self.count,
            format_args!("small enough for less than 2^31 entries of {tokens} tokens"),
        )?;
        require_blocks(self.count, cache, cache_name)
    }
}

impl Window {
    /// The last `length` tokens of sequences that have as many tokens of the call each.
    pub const fn new(length: usize, table: BlockTable) -> Self {
        Self { length, table, sequence_ids: None }
    }

    /// Each token's sequence is told by `sequence_ids`, whose type this is.
    #[must_use]
    pub const fn sequence_ids(self, index: Index) -> Self {
        Self { sequence_ids: Some(index), ..self }
    }

    pub(super) fn validate(&self, tokens: usize, cache: &CacheLayout) -> Result<()> {
        require(
            self.length > 0 && self.length <= MAX_ROWS,
            "window",
            self.length,
            "from 1 to below 2^31",
        )?;
        match self.sequence_ids {
            None => self.table.validate(tokens, "tokens")?,
            Some(_) => self.table.validate_entries()?,
        }
        // The kernel counts tokens of a sequence in 32 bits.
        let tokens = self.table.tokens(cache);
        require(
            tokens.saturating_add(self.length) <= MAX_ROWS,
            "the width of block_table",
            self.table.blocks,
            "small enough for less than 2^31 tokens of a sequence and its window",
        )?;
        require_blocks(self.length, cache, "kv_cache")
    }
}

/// A cache without blocks holds no entries.
fn require_blocks(count: usize, cache: &CacheLayout, name: &str) -> Result<()> {
    require(
        count == 0 || cache.num_blocks > 0,
        format_args!("the block count of {name}"),
        0,
        format_args!("1 or more, for {count} entries a token"),
    )
}
