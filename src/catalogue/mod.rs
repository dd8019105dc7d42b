//! The problems that tests, `verify` and benchmarks share: shapes crossed with options, with data drawn
//! from a seed.

mod data;
mod matrix;
mod modes;

pub use data::{Data, Slots};
pub use matrix::matrix;
pub use modes::modes;

use crate::Call;
use mla_prologue_operator::{Invalid, Query, Rounding, Spec};

/// A problem and what its tensors are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The shapes and options.
    pub spec: Spec,
    /// What kind of numbers.
    pub data: Data,
    /// Where the tokens go.
    pub slots: Slots,
    /// What they are drawn with.
    pub seed: u64,
}

impl Case {
    /// Draws the tensors.
    ///
    /// # Errors
    /// A problem that makes no sense.
    pub fn call(&self) -> Result<Call, Invalid> {
        data::draw(self, self.spec.validate()?)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spec { tokens, half, positions, table, query, key, .. } = self.spec;
        write!(f, "{} {half}, {tokens} tokens, {positions} positions", self.data)?;
        write!(f, ", {} table in {} of {}", table.layout, table.number, table.rows)?;
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
            write!(f, ", {} {} slots {}", key.slots, key.slot_type, self.slots)?;
            write!(f, ", {} blocks of {}", cache.num_blocks, cache.block_size)?;
            write!(f, " every {} as {:?}", cache.block_stride, cache.format)?;
            write!(f, ", norm {:?}, from {}", key.norm, key.quant_from)?;
        }
        Ok(())
    }
}
