//! Cases of the prologue.

pub mod catalogue;
mod file;
mod metadata;
mod options;
mod output;
mod verify;

pub use catalogue::{Case, Data, SlotPattern};
pub use file::{parse, read};
pub use metadata::KEYS;
pub use options::{TENSOR_KEYS, problem};
pub use output::{read_output, write_output};
pub use verify::compare;
