use super::{
    load,
    metadata::{Metadata, TENSORS},
    unreadable,
};
use crate::{Call, Error, Result};
use mla_prologue_operator::{
    CacheLayout, HEAD_DIM, Half, Index, Invalid, Key, Problem, Query, ROPE_DIM, RotaryTable,
    RotaryType, Spec,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{collections::HashMap, path::Path};

/// Reads a call from a safetensors file.
///
/// # Errors
/// A file that cannot be read, or that holds what cannot be used: no safetensors, a tensor or key that
/// is missing, unknown or wrong, a position or slot out of range.
pub fn read(path: &Path) -> Result<Call> {
    let bytes = load(path)?;
    parse(&bytes).map_err(|error| Error::input(path, error))
}

/// Reads a call from the bytes of a safetensors file.
///
/// # Errors
/// The first thing in it that cannot be used.
pub fn parse(bytes: &[u8]) -> Result<Call, Invalid> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let none = HashMap::new();
    let named = metadata.metadata().as_ref().unwrap_or(&none);
    let views = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let mut tensors: Vec<(&str, TensorView)> = views.iter().collect();
    tensors.sort_unstable_by_key(|&(name, _)| name);
    let file = File { tensors };
    let problem = file.problem(named)?;
    let [q, kv, kv_norm_weight, positions, slot_mapping, cos_sin_cache, kv_cache] = TENSORS
        .each_ref()
        .map(|(name, _)| file.find(name).map_or_else(Vec::new, |view| view.data().to_vec()));
    let call =
        Call { problem, q, kv, kv_norm_weight, positions, slot_mapping, cos_sin_cache, kv_cache };
    call.inputs().check(&problem)?;
    Ok(call)
}

/// The tensors of a file by name.
struct File<'a> {
    tensors: Vec<(&'a str, TensorView<'a>)>,
}

impl File<'_> {
    fn problem(&self, named: &HashMap<String, String>) -> Result<Problem, Invalid> {
        let names: Vec<&str> = self.tensors.iter().map(|&(name, _)| name).collect();
        let metadata = Metadata::new(named, &names)?;
        // What the tokens are counted in, and the type of what is done.
        let main = if metadata.q { "q" } else { "kv" };
        let half = half(main, self.get(main)?)?;
        let tokens = self.get(main)?.shape().first().copied().unwrap_or(0);
        let query = metadata.q.then(|| self.query(&metadata, half)).transpose()?;
        let key = metadata.kv.then(|| self.key(&metadata, tokens, half)).transpose()?;
        let norm =
            query.is_some_and(|query| query.norm) || key.is_some_and(|key| key.norm.is_some());
        let spec = Spec {
            tokens,
            half,
            eps: metadata.eps(norm)?,
            positions: self.index("positions", Some(tokens))?.0,
            table: self.table(&metadata)?,
            query,
            key,
        };
        spec.validate()
    }

    fn query(&self, metadata: &Metadata, half: Half) -> Result<Query, Invalid> {
        let [_, heads, _] = self.shape("q", [None, None, Some(HEAD_DIM)])?;
        self.require_half("q", half)?;
        let (norm, rope, rounding) = metadata.query_steps()?;
        let padded_heads = metadata.required("padded_heads", "a number of heads")?;
        let scale = metadata.real("q_scale", "a number above 0")?;
        Ok(Query { norm, rope, rounding, scale, ..Query::new(heads, padded_heads) })
    }

    fn key(&self, metadata: &Metadata, tokens: usize, half: Half) -> Result<Key, Invalid> {
        self.shape("kv", [Some(tokens), Some(HEAD_DIM)])?;
        self.require_half("kv", half)?;
        let weight = self.find("kv_norm_weight").is_some();
        if weight {
            self.shape("kv_norm_weight", [Some(HEAD_DIM)])?;
            self.require_half("kv_norm_weight", half)?;
        }
        let [num_blocks, block_stride] = self.shape("kv_cache", [None, None])?;
        require_dtype("kv_cache", self.get("kv_cache")?, &[Dtype::U8])?;
        let (slot_type, slots) = self.index("slot_mapping", None)?;
        let (format, quant_from) = metadata.cache()?;
        let block_size = metadata.required("block_size", "a number of tokens, 1 or more")?;
        let cache = CacheLayout { format, block_size, block_stride, num_blocks };
        let scale = metadata.real("kv_scale", "a number above 0")?;
        let norm = metadata.key_norm(weight)?;
        Ok(Key { slot_type, norm, quant_from, scale, ..Key::new(slots, cache) })
    }

    fn table(&self, metadata: &Metadata) -> Result<RotaryTable, Invalid> {
        let [rows, _] = self.shape("cos_sin_cache", [None, Some(ROPE_DIM)])?;
        let table = self.get("cos_sin_cache")?;
        require_dtype("cos_sin_cache", table, &[Dtype::F32, Dtype::BF16, Dtype::F16])?;
        let number = match table.dtype() {
            Dtype::BF16 => RotaryType::Bf16,
            Dtype::F16 => RotaryType::F16,
            _ => RotaryType::F32,
        };
        Ok(RotaryTable { rows, number, layout: metadata.rotary_layout()? })
    }

    fn find(&self, name: &str) -> Option<&TensorView<'_>> {
        self.tensors.iter().find(|&&(known, _)| known == name).map(|(_, view)| view)
    }

    fn get(&self, name: &str) -> Result<&TensorView<'_>, Invalid> {
        self.find(name).ok_or_else(|| {
            Invalid::new(format_args!("the tensor {name}"), "missing", "in the file")
        })
    }

    /// The shape of a tensor, where it has the dimensions that are wanted.
    fn shape<const N: usize>(
        &self,
        name: &str,
        wanted: [Option<usize>; N],
    ) -> Result<[usize; N], Invalid> {
        let shape = self.get(name)?.shape();
        let fits =
            |(size, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|wanted| wanted == *size);
        match <[usize; N]>::try_from(shape) {
            Ok(sizes) if sizes.iter().zip(&wanted).all(fits) => Ok(sizes),
            _ => {
                let dimension =
                    |size: &Option<usize>| size.map_or("any".into(), |size| size.to_string());
                let wanted: Vec<String> = wanted.iter().map(dimension).collect();
                let must = format!("[{}]", wanted.join(", "));
                Err(Invalid::new(
                    format_args!("the shape of {name}"),
                    format_args!("{shape:?}"),
                    must,
                ))
            }
        }
    }

    /// The type and length of a tensor of indices.
    fn index(&self, name: &str, wanted: Option<usize>) -> Result<(Index, usize), Invalid> {
        let [length] = self.shape(name, [wanted])?;
        let tensor = self.get(name)?;
        require_dtype(name, tensor, &[Dtype::I64, Dtype::I32])?;
        let index = if tensor.dtype() == Dtype::I64 { Index::I64 } else { Index::I32 };
        Ok((index, length))
    }

    fn require_half(&self, name: &str, wanted: Half) -> Result<(), Invalid> {
        let dtype = if wanted == Half::Bf16 { Dtype::BF16 } else { Dtype::F16 };
        half(name, self.get(name)?)?;
        require_dtype(name, self.get(name)?, &[dtype])
    }
}

fn half(name: &str, tensor: &TensorView) -> Result<Half, Invalid> {
    require_dtype(name, tensor, &[Dtype::BF16, Dtype::F16])?;
    Ok(if tensor.dtype() == Dtype::BF16 { Half::Bf16 } else { Half::F16 })
}

fn require_dtype(name: &str, tensor: &TensorView, allowed: &[Dtype]) -> Result<(), Invalid> {
    if allowed.contains(&tensor.dtype()) {
        return Ok(());
    }
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    Err(Invalid::new(format_args!("the type of {name}"), tensor.dtype(), allowed.join(" or ")))
}
