//! What is known when the kernel is compiled.

use crate::{
    Strategy,
    row::{Codec, Lanes},
};
use mla_prologue_operator::{CacheFormat, Index, gather::Problem};

/// Everything that the generated code depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// How the 32 lanes of a row map to hardware.
    pub lanes: Lanes,
    /// Rows that a cube works on at once.
    pub rows_per_cube: u32,
    /// The type of the cache's 16-bit values, and how it is converted.
    pub codec: Codec,
    /// Are the values rounded to that type?
    pub rounded: bool,
    /// The cache.
    pub format: CacheFormat,
    /// The type of the indices.
    pub index_type: Index,
    /// The type of the block table's entries, if there is one.
    pub block_table: Option<Index>,
}

impl Blueprint {
    /// The specialization for a problem on a device with this strategy.
    pub fn new(problem: &Problem, strategy: &Strategy) -> Self {
        let spec = problem.spec();
        Self {
            lanes: strategy.lanes,
            rows_per_cube: strategy.rows_per_cube(spec.rows),
            codec: strategy.codec(spec.dtype),
            rounded: spec.rounded,
            format: spec.cache.format,
            index_type: spec.index_type,
            block_table: spec.block_table.map(|table| table.index_type),
        }
    }
}
