//! Safetensors files: reading one whole, and writing one whole or not at all.

mod write;

pub use write::{Tensor, check_destination, check_distinct, replace, write};

use crate::{Error, Result};
use mla_prologue_operator::Invalid;
use safetensors::SafeTensorError;
use std::{fs, io, path::Path};

/// The bytes of an ordinary file. A device, which may never end, is refused.
pub(crate) fn load(path: &Path) -> Result<Vec<u8>> {
    let invalid = |value| Error::input(path, Invalid::new("the file", value, "a safetensors file"));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => invalid("missing"),
        _ => Error::file("read", path, error),
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(invalid("not an ordinary file"));
    }
    fs::read(path).map_err(failed)
}

/// An error of the library.
pub(crate) fn unreadable(error: SafeTensorError) -> Invalid {
    Invalid::new("the file", format_args!("unreadable ({error})"), "a whole safetensors file")
}
