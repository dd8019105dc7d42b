//! Calls in files: the safetensors files that the command line reads and writes.

mod input;
#[cfg(feature = "burn")]
mod layer;
mod least;
mod metadata;
mod output;
mod write;

pub use write::{check_destination, check_distinct, replace};

pub use input::{parse, read};
#[cfg(feature = "burn")]
pub use layer::{LayerFile, write_layer};
pub use least::{TENSOR_KEYS, least};
pub use metadata::{KEYS, KeyInfo};

use crate::{Error, Result};
use mla_prologue_operator::Invalid;
use safetensors::SafeTensorError;
use std::{fs, io, path::Path};

/// The bytes of an ordinary file. What never ends, as a device, is refused.
fn load(path: &Path) -> Result<Vec<u8>> {
    let invalid = |value| Error::input(path, Invalid::new("the file", value, "a safetensors file"));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => invalid("missing"),
        _ => Error::file("read", path, error),
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(invalid("no ordinary file"));
    }
    fs::read(path).map_err(failed)
}

/// What the library cannot read.
fn unreadable(error: SafeTensorError) -> Invalid {
    Invalid::new("the file", format_args!("unreadable ({error})"), "a whole safetensors file")
}
