//! Files of any operator.

use crate::{Result, attend, file::load, prologue};
use mla_prologue_operator as operator;
use safetensors::SafeTensors;
use std::path::Path;

/// A call in a file: of which operator, its tensors tell.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each file")]
pub enum Input {
    /// As `mla-prologue run` takes it.
    Prologue(operator::prologue::Call),
    /// As `mla-prologue attend` takes it: with slots or a block table of entries to attend to.
    Attend(operator::attend::Call),
}

impl Input {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of [`prologue::read`] or [`attend::read`].
    pub fn read(path: &Path) -> Result<Self> {
        let attends = |file: SafeTensors| {
            let names = file.names();
            ["slots", "block_table"].iter().any(|name| names.contains(name))
        };
        if SafeTensors::deserialize(&load(path)?).is_ok_and(attends) {
            return attend::read(path).map(Self::Attend);
        }
        prologue::read(path).map(Self::Prologue)
    }
}
