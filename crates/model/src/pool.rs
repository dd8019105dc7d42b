use mla_prologue_operator::{CacheLayout, Invalid, Result};
use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

/// The block pool of a paged cache: hands blocks out to sequences, makes the slot mapping of
/// a step, and takes blocks back.
///
/// ```
/// # use mla_prologue_model::BlockPool;
/// # use mla_prologue_operator::{CacheFormat, CacheLayout};
/// # let layout = CacheLayout::new(CacheFormat::default(), 4, 3);
/// let mut pool = BlockPool::new(layout)?;
/// let sequence = pool.open();
/// let slots = pool.append(sequence, 6)?; // a prefill of 6 tokens takes two blocks of 4
/// assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
/// assert_eq!(pool.append(sequence, 1)?, [6]); // a decode step
/// assert_eq!(pool.block_table(sequence)?, [Some(0), Some(1)]);
/// pool.close(sequence)?;
/// assert_eq!(pool.free_blocks(), 3);
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockPool {
    layout: CacheLayout,
    free: VecDeque<usize>,
    sequences: HashMap<Sequence, Held>,
}

/// Sequences opened so far, of all pools, so that a sequence of another pool is not mistaken for one of this.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A sequence of one [`BlockPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(u64);

/// What a sequence holds: the blocks of its tokens, from the first; those that were given back are `None`.
#[derive(Clone, Debug, Default)]
struct Held {
    blocks: Vec<Option<usize>>,
    tokens: usize,
    /// Blocks that were given back.
    gone: usize,
}

impl BlockPool {
    /// All blocks free.
    ///
    /// # Errors
    /// An invalid layout.
    pub fn new(layout: CacheLayout) -> Result<Self> {
        layout.validate()?;
        Ok(Self { layout, free: (0..layout.num_blocks).collect(), sequences: HashMap::new() })
    }

    /// The cache whose blocks they are.
    pub fn layout(&self) -> &CacheLayout {
        &self.layout
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Tokens of a sequence.
    ///
    /// # Errors
    /// A sequence that was closed.
    pub fn len(&self, sequence: Sequence) -> Result<usize> {
        Ok(self.sequences.get(&sequence).ok_or_else(|| closed(sequence))?.tokens)
    }

    /// Begins a sequence of no tokens.
    pub fn open(&mut self) -> Sequence {
        let sequence = Sequence(OPENED.fetch_add(1, Ordering::Relaxed));
        self.sequences.insert(sequence, Held::default());
        sequence
    }

    /// Makes room for `tokens` more tokens of a sequence; returns their slots, in order.
    ///
    /// # Errors
    /// A sequence that was closed, or fewer free blocks than are needed; nothing is taken then.
    pub fn append(&mut self, sequence: Sequence, tokens: usize) -> Result<Vec<usize>> {
        let size = self.layout.block_size;
        let held = held(&mut self.sequences, sequence)?;
        let end = held.tokens.saturating_add(tokens);
        let needed = end.div_ceil(size) - held.blocks.len();
        if needed > self.free.len() {
            let value = format!("{needed} more blocks of {size} tokens for {tokens} tokens");
            let must =
                format!("at most the {} free ones of {}", self.free.len(), self.layout.num_blocks);
            return Err(Invalid::new("the need of a sequence", value, must));
        }
        held.blocks.extend(self.free.drain(..needed).map(Some));
        let start = std::mem::replace(&mut held.tokens, end);
        let slot =
            |token: usize| held.blocks[token / size].map(|block| block * size + token % size);
        // The blocks of the newest tokens are never given back before the sequence goes on.
        Ok((start..end).filter_map(slot).collect())
    }

    /// Gives back the blocks that lie wholly before the last `window` tokens of a sequence.
    ///
    /// # Errors
    /// A sequence that was closed.
    pub fn slide(&mut self, sequence: Sequence, window: usize) -> Result<()> {
        let size = self.layout.block_size;
        let held = held(&mut self.sequences, sequence)?;
        let gone = (held.tokens.saturating_sub(window) / size).max(held.gone);
        self.free.extend(held.blocks[held.gone..gone].iter_mut().filter_map(Option::take));
        held.gone = gone;
        Ok(())
    }

    /// The block of each `block_size` tokens of a sequence; `None` where it was given back.
    ///
    /// # Errors
    /// A sequence that was closed.
    pub fn block_table(&self, sequence: Sequence) -> Result<Vec<Option<usize>>> {
        let held = self.sequences.get(&sequence).ok_or_else(|| closed(sequence))?;
        Ok(held.blocks.clone())
    }

    /// The slots of the last `window` tokens of a sequence, or of all of them if there are fewer.
    ///
    /// # Errors
    /// A sequence that was closed, or tokens whose blocks were given back.
    pub fn window(&self, sequence: Sequence, window: usize) -> Result<Vec<usize>> {
        let size = self.layout.block_size;
        let held = self.sequences.get(&sequence).ok_or_else(|| closed(sequence))?;
        let slots = held.tokens.saturating_sub(window)..held.tokens;
        let slot = |token: usize| {
            let block = held.blocks[token / size];
            let gone = || {
                Invalid::new("the window", window, "within the tokens whose blocks are still held")
            };
            block.map(|block| block * size + token % size).ok_or_else(gone)
        };
        slots.map(slot).collect()
    }

    /// Ends a sequence and takes its blocks back.
    ///
    /// # Errors
    /// A sequence that was closed already.
    pub fn close(&mut self, sequence: Sequence) -> Result<()> {
        let held = self.sequences.remove(&sequence).ok_or_else(|| closed(sequence))?;
        self.free.extend(held.blocks.into_iter().flatten());
        Ok(())
    }
}

fn held(sequences: &mut HashMap<Sequence, Held>, sequence: Sequence) -> Result<&mut Held> {
    sequences.get_mut(&sequence).ok_or_else(|| closed(sequence))
}

fn closed(sequence: Sequence) -> Invalid {
    Invalid::new(
        "the sequence",
        format_args!("number {}, which is closed", sequence.0),
        "one that is open",
    )
}
