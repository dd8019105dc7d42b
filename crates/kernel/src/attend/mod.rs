//! Attention over the paged cache on a device.

mod blueprint;
mod entries;
mod finish;
mod kernel;
mod launch;
mod load;
mod scratch;
mod steps;

pub use blueprint::{Blueprint, EntriesBlueprint, ListBlueprint, Team};
pub use launch::{Buffers, check_device, launch, run};
pub use mla_prologue_operator::attend::{
    BlockTable, CHUNK, Call, Entries, Extra, Problem, RotaryTable, SCALE, SlotList, Spec, Tensors,
    Window,
};
