//! Cases of attention.

pub mod catalogue;
mod file;
mod metadata;
mod truth;
mod verify;

pub use catalogue::{Case, Data, SlotPattern};
pub use file::{parse, read, read_output, write_output};
pub use metadata::KEYS;
pub use verify::compare;
