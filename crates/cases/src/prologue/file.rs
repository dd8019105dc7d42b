//! Calls in files.

use super::metadata::Metadata;
use crate::{
    Error, Result,
    file::{Described, Dim, load, random_bytes, unreadable},
};
use mla_prologue_operator::{
    Float16, HEAD_DIM, Invalid, SCALE_RANGE,
    prologue::{Call, Key, Problem, Query, Spec, Tensors},
};
use safetensors::SafeTensors;
use std::{collections::HashMap, path::Path};

/// Reads a call from a safetensors file.
///
/// # Errors
/// A file that cannot be read, or whose contents are invalid: not safetensors, a tensor or key that
/// is missing, unknown or wrong, a position or slot out of range.
pub fn read(path: &Path) -> Result<Call> {
    parse(&load(path)?).map_err(|error| match error {
        Error::Invalid(invalid) => Error::input(path, invalid),
        other => other,
    })
}

/// Reads a call from the bytes of a safetensors file.
///
/// # Errors
/// The first thing in it that is invalid.
pub fn parse(bytes: &[u8]) -> Result<Call> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let described = file.iter().map(|(name, view)| (name, view.dtype(), view.shape().to_vec()));
    let none = HashMap::new();
    let named = header.metadata().as_ref().unwrap_or(&none);
    let problem = problem(&Described::new(described), named)?;
    let data = |name| file.tensor(name).map_or_else(|_| Vec::new(), |view| view.data().to_vec());
    let mut tensors = Tensors::NAMES.map(data);
    tensors.q_out = random_bytes("q_out", problem.sizes().q_out)?;
    Ok(Call::new(problem, tensors)?)
}

/// The problem that they and the metadata describe.
///
/// # Errors
/// The first thing that is invalid.
pub fn problem(file: &Described, named: &HashMap<String, String>) -> Result<Problem, Invalid> {
    let metadata = Metadata::new(named, &file.names())?;
    // The tensor whose rows are the tokens, and whose type all have.
    let main = if metadata.q { "q" } else { "kv" };
    let dtype = file.float16(main)?;
    let tokens = file.get(main)?.1.first().copied().unwrap_or(0);
    let query = metadata.q.then(|| query(file, &metadata, dtype)).transpose()?;
    let key = metadata.kv.then(|| key(file, &metadata, tokens, dtype)).transpose()?;
    let norm = query.is_some_and(|query| query.norm) || key.is_some_and(|key| key.norm.is_some());
    let eps = metadata.eps(norm)?;
    let position_type = file.index("positions", [Dim::Is(tokens)])?.0;
    Spec::new(tokens, file.table(metadata.table_order()?)?)
        .dtype(dtype)
        .eps(eps)
        .position_type(position_type)
        .query(query)
        .key(key)
        .validate()
}

fn query(file: &Described, metadata: &Metadata, dtype: Float16) -> Result<Query, Invalid> {
    let [_, heads, _] =
        file.shape("q", [Dim::Any("tokens"), Dim::Any("heads"), Dim::Is(HEAD_DIM)])?;
    file.require("q", dtype)?;
    let (norm, rope, rounding) = metadata.query_steps()?;
    let padded_heads = metadata.required("padded_heads", "a number of heads")?;
    let scale = metadata.real("q_scale", SCALE_RANGE)?;
    Ok(Query::new(heads, padded_heads).norm(norm).rope(rope).rounding(rounding).scale(scale))
}

fn key(
    file: &Described,
    metadata: &Metadata,
    tokens: usize,
    dtype: Float16,
) -> Result<Key, Invalid> {
    file.shape("kv", [Dim::Is(tokens), Dim::Is(HEAD_DIM)])?;
    file.require("kv", dtype)?;
    let weight = file.find("kv_norm_weight").is_some();
    if weight {
        file.shape("kv_norm_weight", [Dim::Is(HEAD_DIM)])?;
        file.require("kv_norm_weight", dtype)?;
    }
    let (slot_type, [slot_count]) = file.index("slot_mapping", [Dim::Any("slots")])?;
    let (format, quant_from) = metadata.cache()?;
    let block_size = metadata.required("block_size", "a number of tokens, 1 or more")?;
    let cache = file.cache("kv_cache", format, block_size)?;
    let scale = metadata.real("kv_scale", SCALE_RANGE)?;
    let norm = metadata.key_norm(weight)?;
    Ok(Key::new(slot_count, cache)
        .slot_type(slot_type)
        .norm(norm)
        .quant_from(quant_from)
        .scale(scale))
}
