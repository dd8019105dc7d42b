//! The problems that tests, `verify` and benchmarks share: shapes crossed with options, with data drawn
//! from a seed.

mod data;
mod matrix;

pub use data::{Data, Slots};
pub use matrix::matrix;

use crate::Call;
use mla_prologue_operator::{Invalid, Spec};

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
        let Spec { tokens, half, query, key, .. } = self.spec;
        write!(f, "{} {half}, {tokens} tokens", self.data)?;
        if let Some(query) = query {
            let norm = if query.norm { "" } else { ", no norm" };
            write!(f, ", {} of {} heads{norm}", query.heads, query.padded_heads)?;
        }
        if let Some(key) = key {
            let cache = key.cache;
            write!(f, ", {} slots {}", key.slots, self.slots)?;
            write!(
                f,
                ", {} blocks of {} every {}",
                cache.num_blocks, cache.block_size, cache.block_stride
            )?;
        }
        Ok(())
    }
}
