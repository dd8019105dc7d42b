//! The problems that tests, `verify` and benchmarks share: every pair of options meets in some case, with data drawn
//! from a seed.

mod data;
mod modes;

pub use data::{Data, SlotPattern};
pub use modes::modes;

use crate::Result;
use mla_prologue_operator::attend::{Call, Entries, Spec};

/// A problem and what its tensors are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The shapes and options.
    pub spec: Spec,
    /// What kind of numbers.
    pub data: Data,
    /// Which entries count.
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
        let Spec { tokens, heads, q_heads, padded_heads, dtype, cache, .. } = self.spec;
        write!(f, "{} {dtype}, {tokens} tokens, {heads} of {q_heads} heads", self.data)?;
        write!(f, " to {padded_heads}, {:?} in blocks of {}", cache.format, cache.block_size)?;
        match &self.spec.entries {
            Entries::Slots(list) => {
                write!(f, ", {} {} slots {}", list.count, list.index_type, self.slots)?;
                write!(f, ", lens {:?}", list.lens)?;
            }
            Entries::Window(window) => write!(f, ", {window:?}")?,
        }
        if let Some(extra) = &self.spec.extra {
            let (list, block_size) = (&extra.slots, extra.cache.block_size);
            write!(f, ", {} {} extra in blocks of {block_size}", list.count, list.index_type)?;
            write!(f, ", lens {:?}", list.lens)?;
        }
        let Spec { sinks, rotary, scale, .. } = self.spec;
        write!(f, ", sinks {sinks}, scale {scale}, rotary {rotary:?}")
    }
}
