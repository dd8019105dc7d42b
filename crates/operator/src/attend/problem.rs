use super::{Entries, Extra, SlotList, Spec, Tensors};
use crate::{CacheLayout, Invalid, Kind, Result};

/// Entries are added up in chunks of so many, by their place in their list.
pub const CHUNK: usize = 64;

/// The shapes and options of one call, validated: a value that cannot be wrong.
///
/// ```
/// use mla_prologue_operator::{CacheFormat, CacheLayout, Invalid};
/// use mla_prologue_operator::attend::{Entries, SlotList, Spec};
/// let cache = CacheLayout::new(CacheFormat::default(), 64, 8).align_stride(576);
/// let spec = Spec::new(4, 16, cache, Entries::Slots(SlotList::new(128)));
/// let problem = spec.validate()?;
/// assert_eq!(problem.sizes().out, 4 * 16 * 512 * 2);
/// assert_eq!(problem.chunks(), 2);
///
/// let error = spec.padded_heads(8).validate().unwrap_err();
/// assert_eq!(error.to_string(), "padded_heads is 8; it must be at least the 16 heads that attend");
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

    /// Bytes of every tensor of the call.
    pub const fn sizes(&self) -> Tensors<usize> {
        self.sizes
    }

    /// The same call, where the tensors lie so: from a token of `q` to the next in values, and from a block of each cache to the next in bytes.
    ///
    /// # Errors
    /// A stride that is too small, or not one that the kernel takes.
    pub fn with_strides(
        self,
        token_stride: Option<usize>,
        block_stride: usize,
        extra_block_stride: Option<usize>,
    ) -> Result<Self> {
        let spec = self.spec;
        let stride = |extra: Extra| {
            let block_stride = extra_block_stride.unwrap_or(extra.cache.block_stride);
            Extra { cache: extra.cache.with_stride(block_stride), ..extra }
        };
        let cache = spec.cache.with_stride(block_stride);
        spec.cache(cache).extra(spec.extra.map(stride)).token_stride(token_stride).validate()
    }

    /// Chunks of a token: those of the first list, then those of the second.
    pub const fn chunks(&self) -> usize {
        self.spec.count().div_ceil(CHUNK) + self.spec.extra_count().div_ceil(CHUNK)
    }

    /// The slots of each token's entries in `kv_cache`, as many for each token; `None` for an entry that does not count.
    /// The tensors have their sizes.
    pub fn slots(&self, tensors: &Tensors<&[u8]>) -> Vec<Option<usize>> {
        match &self.spec.entries {
            Entries::Slots(list) => {
                slots(list, &self.spec.cache, tensors.slots, tensors.lens, self.spec.tokens)
            }
            Entries::Window(_) => self.window(tensors),
        }
    }

    /// The same of `extra_kv_cache`.
    pub fn extra_slots(&self, tensors: &Tensors<&[u8]>) -> Vec<Option<usize>> {
        let Some(extra) = &self.spec.extra else { return Vec::new() };
        let (numbers, lens) = (tensors.extra_slots, tensors.extra_lens);
        slots(&extra.slots, &extra.cache, numbers, lens, self.spec.tokens)
    }

    fn window(&self, tensors: &Tensors<&[u8]>) -> Vec<Option<usize>> {
        let Entries::Window(window) = self.spec.entries else { return Vec::new() };
        let blocks: Vec<i64> = window.table.index_type.values(tensors.block_table).collect();
        let ids = self.sequence_ids(tensors.sequence_ids);
        let length = window.length as i64;
        let mut found = Vec::with_capacity(self.spec.tokens * window.length);
        for (position, sequence) in self.positions(tensors.positions).zip(ids) {
            let sequence = usize::try_from(sequence).ok();
            let sequence = sequence.filter(|sequence| *sequence < window.table.sequences);
            // A position that no token has, so far out that the window would overflow, has no entries.
            let first = position.checked_sub(length - 1);
            found.extend((0..length).map(|i| {
                let token = first?.checked_add(i).filter(|token| *token <= position)?;
                window.table.slot(&self.spec.cache, &blocks, sequence?, token)
            }));
        }
        found
    }

    /// The values of `positions`, one a token.
    pub fn positions(&self, positions: &[u8]) -> impl Iterator<Item = i64> {
        self.spec.position_type.values(positions)
    }

    /// The sequence of each token.
    fn sequence_ids(&self, ids: &[u8]) -> Vec<i64> {
        let Entries::Window(window) = &self.spec.entries else { return Vec::new() };
        match window.sequence_ids {
            Some(index) => index.values(ids).collect(),
            None => {
                let tokens = self.spec.tokens / window.table.sequences;
                (0..self.spec.tokens).map(|token| (token / tokens) as i64).collect()
            }
        }
    }

    /// Checks that every length is within its list, and every position and sequence within its table. Slots may be
    /// anything.
    ///
    /// # Errors
    /// The first index that is not.
    pub fn check_indices(&self, tensors: &Tensors<&[u8]>) -> Result<()> {
        let spec = &self.spec;
        match &spec.entries {
            Entries::Slots(list) => check_lens("lens", list, tensors.lens)?,
            Entries::Window(window) => {
                let sequences = window.table.sequences;
                let ids = self.sequence_ids(tensors.sequence_ids).into_iter();
                let must = format_args!("one of the {sequences} sequences of block_table");
                check("sequence_ids", ids, sequences, must)?;
                let tokens = window.table.tokens(&spec.cache);
                let positions = self.positions(tensors.positions);
                let must =
                    format_args!("below the {tokens} tokens that block_table has blocks for");
                check("positions", positions, tokens, must)?;
            }
        }
        if let Some(extra) = &spec.extra {
            check_lens("extra_lens", &extra.slots, tensors.extra_lens)?;
        }
        let Some(rotary) = &spec.rotary else { return Ok(()) };
        let positions = self.positions(tensors.positions);
        let must = format_args!("from 0 to below the {} rows of cos_sin_cache", rotary.rows);
        check("positions", positions, rotary.rows, must)
    }
}

fn slots(
    list: &SlotList,
    cache: &CacheLayout,
    numbers: &[u8],
    lens: &[u8],
    tokens: usize,
) -> Vec<Option<usize>> {
    let lens: Vec<i64> = match list.lens {
        Some(index) => index.values(lens).collect(),
        None => vec![list.count as i64; tokens],
    };
    let counts = |entry: usize| (entry % list.count) < lens[entry / list.count].max(0) as usize;
    let numbers = list.index_type.values(numbers).enumerate();
    numbers.map(|(entry, slot)| cache.slot(slot).filter(|_| counts(entry))).collect()
}

fn check_lens(name: &str, list: &SlotList, lens: &[u8]) -> Result<()> {
    let Some(index) = list.lens else { return Ok(()) };
    let must = format_args!("from 0 to the {} slots of a token", list.count);
    check(name, index.values(lens), list.count + 1, must)
}

/// Checks that every value is from 0 to below `limit`.
fn check(
    name: &str,
    values: impl Iterator<Item = i64>,
    limit: usize,
    must: std::fmt::Arguments,
) -> Result<()> {
    let outside =
        |&(_, value): &(usize, i64)| usize::try_from(value).map_or(true, |value| value >= limit);
    match values.enumerate().find(outside) {
        Some((at, value)) => {
            Err(Invalid::new(format_args!("{name}[{at}]"), value, must).of(Kind::Index))
        }
        None => Ok(()),
    }
}
