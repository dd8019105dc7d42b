//! What is known when the kernel is compiled.

use super::scratch::CHUNK_MAX;
use crate::{
    Strategy,
    row::{Codec, Lanes, rope::Rotary},
};
use mla_prologue_operator::{
    CacheFormat, HEAD_DIM, Index, LANE_RUN,
    attend::{CHUNK, Entries, Problem, SlotList},
};

/// Words that a unit of a cube loads at once.
const KEY_BATCH: usize = 8;

/// Everything that the generated code depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// How the work of a token is divided.
    pub team: Team,
    /// The type of the queries, the output and the caches' 16-bit values, and how it is converted.
    pub codec: Codec,
    /// The format of both caches.
    pub format: CacheFormat,
    /// The entries of the first cache.
    pub entries: EntriesBlueprint,
    /// Those of the second, if there is one.
    pub extra: Option<ListBlueprint>,
    /// Is there a sink for each head?
    pub sinks: bool,
    /// The type of the positions.
    pub position_type: Index,
    /// The rotation that is undone.
    pub rotary: Option<Rotary>,
    /// Are `max` and `sum` written?
    pub stats: bool,
}

/// The entries of the first cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntriesBlueprint {
    /// A list of slots.
    Slots(ListBlueprint),
    /// A window of each token's sequence.
    Window {
        /// The type of the block table's entries.
        table: Index,
        /// The type of the sequences of the tokens, if they are told.
        sequence_ids: Option<Index>,
    },
}

/// A list of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListBlueprint {
    /// The type of the slots.
    pub index_type: Index,
    /// The type of their counts, if there are any.
    pub lens: Option<Index>,
}

/// Who works on a tile of heads of a token, and in which pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    /// A cube does a tile together, in shared memory; otherwise each of its units does one alone, in memory of its own.
    pub shared: bool,
    /// Units of a cube.
    pub units: u32,
    /// Heads of a tile.
    pub heads: usize,
    /// Values of a vector, of heads or of dimensions.
    pub width: usize,
    /// Dimensions of the keys that are in memory at once: all, or as many as shared memory holds.
    pub slice: usize,
    /// Keys of a piece of the scores.
    pub keys_per_item: usize,
    /// Vectors of heads of a piece of the scores.
    pub vectors_per_item: usize,
    /// Heads of a piece of the output, which has `width` dimensions.
    pub heads_per_item: usize,
}

impl Team {
    /// The division for so many heads on a device with this strategy.
    pub fn new(heads: usize, strategy: &Strategy) -> Self {
        match strategy.lanes {
            Lanes::Unit if strategy.shared_memory == 0 => Self::alone(heads, strategy),
            _ => Self::together(heads, strategy),
        }
    }

    /// A unit that has vectors and a memory of its own.
    fn alone(heads: usize, strategy: &Strategy) -> Self {
        let width = 8;
        let heads = if heads > width { 2 * width } else { width };
        Self {
            shared: false,
            units: strategy.rows_per_cube,
            heads,
            width,
            slice: HEAD_DIM,
            keys_per_item: 4,
            vectors_per_item: heads / width,
            heads_per_item: width,
        }
    }

    /// The units of a cube, with vectors of what they load at once.
    fn together(heads: usize, strategy: &Strategy) -> Self {
        let width = 4;
        let heads = [4, 8].into_iter().find(|tile| heads <= *tile).unwrap_or(16);
        // As many as hide the time that a key takes to come, also where fewer have a score or an output.
        let units = 256;
        let mut team = Self {
            shared: true,
            units,
            heads,
            width,
            slice: HEAD_DIM,
            keys_per_item: 1,
            vectors_per_item: (CHUNK * heads / width).div_ceil(units as usize),
            heads_per_item: 1,
        };
        while team.memory() > strategy.shared_memory && team.slice > 64 {
            team.slice /= 2;
        }
        team.heads_per_item = (heads * team.slice / width / units as usize).max(width);
        team
    }

    /// Vectors of a key's dimensions in memory: in shared memory one more, so that the keys of neighbouring units are in
    /// different banks.
    pub const fn key_stride(self) -> usize {
        self.slice / self.width + self.shared as usize
    }

    /// Vectors of heads.
    pub const fn head_vectors(self) -> usize {
        self.heads / self.width
    }

    /// Pieces of the scores of a chunk.
    pub const fn score_items(self) -> usize {
        CHUNK / self.keys_per_item * (self.head_vectors() / self.vectors_per_item)
    }

    /// Vectors of dimensions of a slice.
    pub const fn slice_vectors(self) -> usize {
        self.slice / self.width
    }

    /// Slices of a key.
    pub const fn slices(self) -> usize {
        HEAD_DIM / self.slice
    }

    /// Pieces of the output of a slice.
    pub const fn output_items(self) -> usize {
        self.slice_vectors() * (self.heads / self.heads_per_item)
    }

    /// Vectors of a word of 8 values.
    pub const fn word_vectors(self) -> usize {
        LANE_RUN / self.width
    }

    /// Words of a slice of the keys of a chunk that each unit loads.
    pub const fn key_items(self) -> usize {
        CHUNK * self.slice / LANE_RUN / self.workers()
    }

    /// Of these, as many as are on their way at once.
    pub const fn key_batch(self) -> usize {
        match (self.shared, self.key_items() < KEY_BATCH) {
            (false, _) => 1,
            (true, true) => self.key_items(),
            (true, false) => KEY_BATCH,
        }
    }

    /// Parts of a chunk whose largest scores are found apart.
    pub const fn max_parts(self) -> usize {
        if self.shared { 8 } else { 1 }
    }

    /// Units that share the pieces.
    pub const fn workers(self) -> usize {
        if self.shared { self.units as usize } else { 1 }
    }

    /// Vectors of the output that a unit holds.
    pub const fn output_vectors(self) -> usize {
        self.slices() * self.output_items().div_ceil(self.workers()) * self.heads_per_item
    }

    /// Bytes of shared memory: keys, queries, weights, slots and what is known of each head.
    pub const fn memory(self) -> usize {
        4 * (self.width * (CHUNK * self.key_stride() + self.slice * self.head_vectors())
            + self.width * self.head_vectors() * (CHUNK + CHUNK_MAX + self.max_parts())
            + 2 * CHUNK)
    }
}

impl Blueprint {
    /// The specialization for a problem on a device with this strategy.
    pub fn new(problem: &Problem, strategy: &Strategy) -> Self {
        let spec = problem.spec();
        let list = |list: &SlotList| ListBlueprint { index_type: list.index_type, lens: list.lens };
        let codec = strategy.codec(spec.dtype);
        Self {
            team: Team::new(spec.heads, strategy),
            codec,
            format: spec.cache.format,
            entries: match &spec.entries {
                Entries::Slots(slots) => EntriesBlueprint::Slots(list(slots)),
                Entries::Window(window) => EntriesBlueprint::Window {
                    table: window.table.index_type,
                    sequence_ids: window.sequence_ids,
                },
            },
            extra: spec.extra.as_ref().map(|extra| list(&extra.slots)),
            sinks: spec.sinks,
            position_type: spec.position_type,
            rotary: spec.rotary.map(|table| Rotary {
                dtype: table.dtype,
                order: table.order,
                conversion: codec.conversion,
            }),
            stats: spec.stats,
        }
    }
}
