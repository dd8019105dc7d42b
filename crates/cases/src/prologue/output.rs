//! What a call wrote, in files.

use crate::{
    Result,
    file::{Tensor, float16, read_exactly, write},
};
use mla_prologue_operator::{
    HEAD_DIM,
    prologue::{Call, Problem, Spec, Tensors},
};
use safetensors::Dtype;
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
    let spec = problem.spec();
    let wanted = tensors(spec, &[], &[]);
    let contents = read_exactly(path, &wanted, &metadata(spec))?;
    let mut output = Tensors::default();
    for ((name, ..), bytes) in wanted.iter().zip(contents) {
        let to = if *name == "q_out" { &mut output.q_out } else { &mut output.kv_cache };
        *to = bytes;
    }
    Ok(output)
}

/// The tensors of the file.
fn tensors<'a>(spec: &Spec, q_out: &'a [u8], kv_cache: &'a [u8]) -> Vec<Tensor<'a>> {
    let mut tensors = Vec::new();
    if let Some(query) = spec.query {
        let dtype = query.scale.map_or(float16(spec.dtype), |_| Dtype::U8);
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
