//! The problems that tests, `verify` and benchmarks share: shapes crossed with options, with data drawn
//! from a seed.

mod data;
mod matrix;
mod modes;

pub use data::{Data, SlotPattern};
pub use matrix::matrix;
pub use modes::modes;

use crate::Result;
use mla_prologue_operator::{
    Rounding,
    prologue::{Call, Query, Spec},
};

/// A problem and what its tensors are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The shapes and options.
    pub spec: Spec,
    /// What kind of numbers.
    pub data: Data,
    /// Which slots the tokens go to.
    pub slots: SlotPattern,
    /// What they are drawn with.
    pub seed: u64,
}

impl Case {
    /// Draws the tensors.
    ///
    /// # Errors
    /// An invalid problem.
    pub fn call(&self) -> Result<Call> {
        data::draw(self, self.spec.validate()?)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spec { tokens, dtype, position_type, table, query, key, .. } = self.spec;
        write!(f, "{} {dtype}, {tokens} tokens, {position_type} positions", self.data)?;
        write!(f, ", {} table in {} of {}", table.order, table.dtype, table.rows)?;
        if let Some(query) = query {
            write!(f, ", {} of {} heads", query.heads, query.padded_heads)?;
            let Query { norm, rope, rounding, scale, strides, .. } = query;
            let flags = [
                (!norm, "no norm"),
                (!rope, "no rope"),
                (rounding != Rounding::None, "rounded"),
                (scale.is_some(), "in fp8"),
                (strides.is_some(), "strided"),
            ];
            for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
                write!(f, " {name}")?;
            }
        }
        if let Some(key) = key {
            let cache = key.cache;
            write!(f, ", {} {} slots {}", key.slot_count, key.slot_type, self.slots)?;
            write!(f, ", {} blocks of {}", cache.num_blocks, cache.block_size)?;
            write!(f, " every {} as {:?}", cache.block_stride, cache.format)?;
            write!(f, ", norm {:?}, from {}", key.norm, key.quant_from)?;
        }
        Ok(())
    }
}
