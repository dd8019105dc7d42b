//! Cases of attention.

pub mod catalogue;
mod file;
mod metadata;
mod options;
mod truth;
mod verify;

pub use catalogue::{Case, Data, SlotPattern};
pub use file::{first_tokens, parse, read, read_output, write_output};
pub use metadata::KEYS;
pub use options::{TENSOR_KEYS, problem};
pub use verify::compare;
