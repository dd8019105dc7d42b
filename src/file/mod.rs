//! Calls in files: the safetensors files that the command line reads and writes.

mod input;
mod metadata;
mod output;

pub use input::{parse, read};
pub use metadata::{KEYS, KeyInfo};
