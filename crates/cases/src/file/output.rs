//! Outputs in files: exactly the tensors that a call writes, and the metadata that tells how to read them.

use super::{Tensor, load, unreadable};
use crate::{Error, Result};
use mla_prologue_operator::{Invalid, Kind};
use safetensors::SafeTensors;
use std::{collections::BTreeMap, path::Path};

/// Reads the tensors of an output, whose contents in `wanted` are ignored, in their order.
///
/// # Errors
/// A file that cannot be read, whose tensors are others, or whose metadata says something else.
pub fn read_exactly(
    path: &Path,
    wanted: &[Tensor],
    metadata: &BTreeMap<&'static str, String>,
) -> Result<Vec<Vec<u8>>> {
    let bytes = load(path)?;
    parse(&bytes, wanted, metadata).map_err(|error| Error::input(path, error))
}

fn parse(
    bytes: &[u8],
    wanted: &[Tensor],
    metadata: &BTreeMap<&'static str, String>,
) -> Result<Vec<Vec<u8>>, Invalid> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let mut names = file.names();
    names.sort_unstable();
    let mut wanted_names: Vec<&str> = wanted.iter().map(|tensor| tensor.0).collect();
    wanted_names.sort_unstable();
    if names != wanted_names {
        let must = wanted_names.join(", ");
        return Err(Invalid::new("the list of tensors", names.join(", "), must));
    }
    for (key, value) in metadata {
        let stated = header.metadata().as_ref().and_then(|stated| stated.get(*key));
        if let Some(stated) = stated.filter(|stated| *stated != value) {
            let must = format_args!("{value}, or absent, for this input");
            return Err(Invalid::new(key, stated, must));
        }
    }
    let contents = wanted.iter().map(|(name, dtype, shape, _)| {
        let tensor = file.tensor(name).map_err(unreadable)?;
        if (tensor.dtype(), tensor.shape()) != (*dtype, shape.as_slice()) {
            let is = format!("{} {:?}", tensor.dtype(), tensor.shape());
            let error = Invalid::new(name, is, format_args!("{dtype} {shape:?}"));
            return Err(error.of(Kind::Shape));
        }
        Ok(tensor.data().to_vec())
    });
    contents.collect()
}
