//! What a call wrote, in files.

use crate::{
    Error, Result,
    file::{Tensor, load, unreadable, write},
};
use mla_prologue_operator::{
    Float16, HEAD_DIM, Invalid, Kind,
    prologue::{Call, Problem, Spec, Tensors},
};
use safetensors::{Dtype, SafeTensors};
use std::{collections::BTreeMap, path::Path};

/// Writes what a call wrote, whole or not at all. Equal outputs give equal files.
///
/// # Errors
/// A path that is something other than a file, or a file that cannot be written.
pub fn write_output(path: &Path, call: &Call) -> Result<()> {
    let (spec, Tensors { q_out, kv_cache, .. }) = (call.problem().spec(), call.tensors());
    write(path, &metadata(spec), &tensors(spec, q_out, kv_cache))
}

/// Reads what somebody's call for `problem` wrote: `q_out` and `kv_cache`; the others are empty.
///
/// # Errors
/// A file that cannot be read, whose tensors are not those of the problem, or whose metadata says that
/// they are to be read in another way.
pub fn read_output(path: &Path, problem: &Problem) -> Result<Tensors<Vec<u8>>> {
    let bytes = load(path)?;
    parse(&bytes, problem.spec()).map_err(|error| Error::input(path, error))
}

fn parse(bytes: &[u8], spec: &Spec) -> Result<Tensors<Vec<u8>>, Invalid> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let wanted = tensors(spec, &[], &[]);
    let mut names = file.names();
    names.sort_unstable();
    let mut wanted_names: Vec<&str> = wanted.iter().map(|tensor| tensor.0).collect();
    wanted_names.sort_unstable();
    if names != wanted_names {
        let must = wanted_names.join(", ");
        return Err(Invalid::new("the list of tensors", names.join(", "), must));
    }
    for (key, value) in metadata(spec) {
        let stated = header.metadata().as_ref().and_then(|stated| stated.get(key));
        if let Some(stated) = stated.filter(|stated| **stated != value) {
            let must = format_args!("{value}, or absent, for this input");
            return Err(Invalid::new(key, stated, must));
        }
    }
    let mut output = Tensors::default();
    for (name, dtype, shape, _) in wanted {
        let tensor = file.tensor(name).map_err(unreadable)?;
        if (tensor.dtype(), tensor.shape()) != (dtype, shape.as_slice()) {
            let is = format!("{} {:?}", tensor.dtype(), tensor.shape());
            let error = Invalid::new(name, is, format_args!("{dtype} {shape:?}"));
            return Err(error.of(Kind::Shape));
        }
        let to = if name == "q_out" { &mut output.q_out } else { &mut output.kv_cache };
        *to = tensor.data().to_vec();
    }
    Ok(output)
}

/// The tensors of the file.
fn tensors<'a>(spec: &Spec, q_out: &'a [u8], kv_cache: &'a [u8]) -> Vec<Tensor<'a>> {
    let mut tensors = Vec::new();
    if let Some(query) = spec.query {
        let dtype = match (query.scale, spec.dtype) {
            (Some(_), _) => Dtype::U8,
            (None, Float16::Bf16) => Dtype::BF16,
            (None, Float16::F16) => Dtype::F16,
        };
        tensors.push(("q_out", dtype, vec![spec.tokens, query.padded_heads, HEAD_DIM], q_out));
    }
    if let Some(key) = spec.key {
        let shape = vec![key.cache.num_blocks, key.cache.block_stride];
        tensors.push(("kv_cache", Dtype::U8, shape, kv_cache));
    }
    tensors
}

/// What a reader of the tensors must know.
fn metadata(spec: &Spec) -> BTreeMap<&'static str, String> {
    let mut pairs = BTreeMap::new();
    let mut set = |key, value| pairs.insert(key, value);
    if let Some(key) = spec.key {
        set("cache_format", key.cache.format.name().into());
        set("block_size", key.cache.block_size.to_string());
        set("kv_type", spec.dtype.to_string());
        if let Some(fp8) = key.cache.format.fp8() {
            set("fp8", fp8.to_string());
        }
        if let Some(scale) = key.scale {
            set("kv_scale", scale.to_string());
        }
    }
    if let Some(scale) = spec.query.and_then(|query| query.scale) {
        set("q_scale", scale.to_string());
    }
    pairs
}
