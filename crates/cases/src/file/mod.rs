//! Safetensors files: reading one whole, and writing one whole or not at all.

mod described;
mod keys;
mod output;
mod write;

pub use described::{Described, Dim};
pub use keys::{KeyInfo, Keys, take_optional_type, take_type};
pub use output::read_exactly;
pub use write::{Named, Tensor, check_outputs, replace, write};

use crate::{Error, Result};
use mla_prologue_operator::{Float16, Invalid};
use safetensors::{Dtype, SafeTensorError};
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

/// A 16-bit type in a file.
pub(crate) const fn float16(dtype: Float16) -> Dtype {
    match dtype {
        Float16::Bf16 => Dtype::BF16,
        Float16::F16 => Dtype::F16,
    }
}

/// Random bytes for a tensor before a call writes it, so that what is not written shows.
///
/// # Errors
/// More than the memory that is there.
pub(crate) fn random_bytes(tensor: &str, count: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(count);
    reserved.map_err(|_| Error::Memory { tensor: tensor.into(), bytes: count })?;
    bytes.resize(count, 0);
    fastrand::Rng::with_seed(count as u64).fill(&mut bytes);
    Ok(bytes)
}
