//! Calls in files.

use super::{metadata::Metadata, random_bytes};
use crate::{
    Error, Result,
    file::{load, unreadable},
};
use mla_prologue_operator::{
    CacheLayout, Float16, HEAD_DIM, Index, Invalid, ROPE_DIM, RotaryType,
    prologue::{Call, Key, Problem, Query, RotaryTable, Spec, Tensors},
};
use safetensors::{Dtype, SafeTensors};
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
    let problem = Described::new(described).problem(header.metadata().as_ref().unwrap_or(&none))?;
    let data = |name| file.tensor(name).map_or_else(|_| Vec::new(), |view| view.data().to_vec());
    let mut tensors = Tensors::NAMES.map(data);
    tensors.q_out = random_bytes(problem.sizes().q_out)?;
    Ok(Call::new(problem, tensors)?)
}

/// The tensors of a file without their contents: name, type and shape. What a problem follows from, with the metadata.
pub struct Described<'a>(Vec<(&'a str, Dtype, Vec<usize>)>);

impl<'a> Described<'a> {
    /// Tensors in any order.
    pub fn new(tensors: impl IntoIterator<Item = (&'a str, Dtype, Vec<usize>)>) -> Self {
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        tensors.sort_unstable_by_key(|tensor| tensor.0);
        Self(tensors)
    }

    /// The problem that they and the metadata describe.
    ///
    /// # Errors
    /// The first thing that is invalid.
    pub fn problem(&self, named: &HashMap<String, String>) -> Result<Problem, Invalid> {
        let names: Vec<&str> = self.0.iter().map(|tensor| tensor.0).collect();
        let metadata = Metadata::new(named, &names)?;
        // The tensor whose rows are the tokens, and whose type all have.
        let main = if metadata.q { "q" } else { "kv" };
        let dtype = self.float16(main)?;
        let tokens = self.get(main)?.1.first().copied().unwrap_or(0);
        let query = metadata.q.then(|| self.query(&metadata, dtype)).transpose()?;
        let key = metadata.kv.then(|| self.key(&metadata, tokens, dtype)).transpose()?;
        let norm =
            query.is_some_and(|query| query.norm) || key.is_some_and(|key| key.norm.is_some());
        let eps = metadata.eps(norm)?;
        let position_type = self.index("positions", Some(tokens))?.0;
        Spec::new(tokens, self.table(&metadata)?)
            .dtype(dtype)
            .eps(eps)
            .position_type(position_type)
            .query(query)
            .key(key)
            .validate()
    }

    fn query(&self, metadata: &Metadata, dtype: Float16) -> Result<Query, Invalid> {
        let [_, heads, _] = self.shape("q", [None, None, Some(HEAD_DIM)])?;
        self.require("q", dtype)?;
        let (norm, rope, rounding) = metadata.query_steps()?;
        let padded_heads = metadata.required("padded_heads", "a number of heads")?;
        let scale = metadata.real("q_scale", "a number above 0")?;
        Ok(Query::new(heads, padded_heads).norm(norm).rope(rope).rounding(rounding).scale(scale))
    }

    fn key(&self, metadata: &Metadata, tokens: usize, dtype: Float16) -> Result<Key, Invalid> {
        self.shape("kv", [Some(tokens), Some(HEAD_DIM)])?;
        self.require("kv", dtype)?;
        let weight = self.find("kv_norm_weight").is_some();
        if weight {
            self.shape("kv_norm_weight", [Some(HEAD_DIM)])?;
            self.require("kv_norm_weight", dtype)?;
        }
        let [num_blocks, block_stride] = self.shape("kv_cache", [None, None])?;
        self.dtype("kv_cache", &[Dtype::U8])?;
        let (slot_type, slot_count) = self.index("slot_mapping", None)?;
        let (format, quant_from) = metadata.cache()?;
        let block_size = metadata.required("block_size", "a number of tokens, 1 or more")?;
        let cache = CacheLayout { format, block_size, block_stride, num_blocks };
        let scale = metadata.real("kv_scale", "a number above 0")?;
        let norm = metadata.key_norm(weight)?;
        Ok(Key::new(slot_count, cache)
            .slot_type(slot_type)
            .norm(norm)
            .quant_from(quant_from)
            .scale(scale))
    }

    fn table(&self, metadata: &Metadata) -> Result<RotaryTable, Invalid> {
        let [rows, _] = self.shape("cos_sin_cache", [None, Some(ROPE_DIM)])?;
        let dtype = match self.dtype("cos_sin_cache", &[Dtype::F32, Dtype::BF16, Dtype::F16])? {
            Dtype::BF16 => RotaryType::Bf16,
            Dtype::F16 => RotaryType::F16,
            _ => RotaryType::F32,
        };
        Ok(RotaryTable { rows, dtype, order: metadata.table_order()? })
    }

    fn find(&self, name: &str) -> Option<(Dtype, &[usize])> {
        let found = self.0.iter().find(|tensor| tensor.0 == name);
        found.map(|(_, dtype, shape)| (*dtype, shape.as_slice()))
    }

    fn get(&self, name: &str) -> Result<(Dtype, &[usize]), Invalid> {
        let missing = || Invalid::missing(format_args!("the tensor {name}"), "in the file");
        self.find(name).ok_or_else(missing)
    }

    /// The shape of a tensor, where it has the dimensions that are wanted.
    fn shape<const N: usize>(
        &self,
        name: &str,
        wanted: [Option<usize>; N],
    ) -> Result<[usize; N], Invalid> {
        let (_, shape) = self.get(name)?;
        let fits =
            |(size, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|wanted| wanted == *size);
        match <[usize; N]>::try_from(shape) {
            Ok(sizes) if sizes.iter().zip(&wanted).all(fits) => Ok(sizes),
            _ => {
                let dimension =
                    |size: &Option<usize>| size.map_or("any".into(), |size| size.to_string());
                let wanted: Vec<String> = wanted.iter().map(dimension).collect();
                let must = format!("[{}]", wanted.join(", "));
                Err(Invalid::shape(name, format_args!("{shape:?}"), must))
            }
        }
    }

    /// The type and length of a tensor of indices.
    fn index(&self, name: &str, wanted: Option<usize>) -> Result<(Index, usize), Invalid> {
        let [length] = self.shape(name, [wanted])?;
        let dtype = self.dtype(name, &[Dtype::I64, Dtype::I32])?;
        Ok((if dtype == Dtype::I64 { Index::I64 } else { Index::I32 }, length))
    }

    fn float16(&self, name: &str) -> Result<Float16, Invalid> {
        let dtype = self.dtype(name, &[Dtype::BF16, Dtype::F16])?;
        Ok(if dtype == Dtype::BF16 { Float16::Bf16 } else { Float16::F16 })
    }

    /// The tensor must be of this type.
    fn require(&self, name: &str, wanted: Float16) -> Result<(), Invalid> {
        self.float16(name)?;
        let wanted = if wanted == Float16::Bf16 { Dtype::BF16 } else { Dtype::F16 };
        self.dtype(name, &[wanted]).map(|_| ())
    }

    /// The type of a tensor, which must be one of these.
    fn dtype(&self, name: &str, allowed: &[Dtype]) -> Result<Dtype, Invalid> {
        let (dtype, _) = self.get(name)?;
        if allowed.contains(&dtype) {
            return Ok(dtype);
        }
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        Err(Invalid::dtype(name, dtype, allowed.join(" or ")))
    }
}
