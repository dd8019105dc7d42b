use super::{
    load, unreadable,
    write::{Tensor, write},
};
use crate::{Error, Output, Result};
use mla_prologue_operator::{HEAD_DIM, Half, Invalid, Problem};
use safetensors::{Dtype, SafeTensors};
use std::{collections::BTreeMap, path::Path};

impl Output {
    /// Writes the file whole, or not at all. Equal outputs give equal files.
    ///
    /// # Errors
    /// A path that is something other than a file, or a file that cannot be written.
    pub fn write(&self, path: &Path, problem: &Problem) -> Result<()> {
        write(path, &metadata(problem), &tensors(problem, &self.q_out, &self.kv_cache))
    }

    /// Reads what somebody's call for `problem` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, whose tensors are not those of the problem, or whose metadata says that
    /// they are to be read in another way.
    pub fn read(path: &Path, problem: &Problem) -> Result<Self> {
        let bytes = load(path)?;
        Self::parse(&bytes, problem).map_err(|error| Error::input(path, error))
    }

    fn parse(bytes: &[u8], problem: &Problem) -> Result<Self, Invalid> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
        let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
        let wanted = tensors(problem, &[], &[]);
        let mut names = file.names();
        names.sort_unstable();
        let mut wanted_names: Vec<&str> = wanted.iter().map(|tensor| tensor.0).collect();
        wanted_names.sort_unstable();
        if names != wanted_names {
            let must = wanted_names.join(", ");
            return Err(Invalid::new("the list of tensors", names.join(", "), must));
        }
        for (key, value) in metadata(problem) {
            let stated = header.metadata().as_ref().and_then(|stated| stated.get(key));
            if let Some(stated) = stated.filter(|stated| **stated != value) {
                return Err(Invalid::new(
                    key,
                    stated,
                    format_args!("{value}, or absent, for this input"),
                ));
            }
        }
        let mut output = Self { q_out: Vec::new(), kv_cache: Vec::new() };
        for (name, dtype, shape, _) in wanted {
            let tensor = file.tensor(name).map_err(unreadable)?;
            if (tensor.dtype(), tensor.shape()) != (dtype, shape.as_slice()) {
                let is = format!("{} {:?}", tensor.dtype(), tensor.shape());
                return Err(Invalid::new(name, is, format_args!("{dtype} {shape:?}")));
            }
            let to = if name == "q_out" { &mut output.q_out } else { &mut output.kv_cache };
            *to = tensor.data().to_vec();
        }
        Ok(output)
    }
}

/// The tensors of the file.
fn tensors<'a>(problem: &Problem, q_out: &'a [u8], kv_cache: &'a [u8]) -> Vec<Tensor<'a>> {
    let mut tensors = Vec::new();
    if let Some(query) = problem.query {
        let dtype = match (query.scale, problem.half) {
            (Some(_), _) => Dtype::U8,
            (None, Half::Bf16) => Dtype::BF16,
            (None, Half::F16) => Dtype::F16,
        };
        tensors.push(("q_out", dtype, vec![problem.tokens, query.padded_heads, HEAD_DIM], q_out));
    }
    if let Some(key) = problem.key {
        let shape = vec![key.cache.num_blocks, key.cache.block_stride];
        tensors.push(("kv_cache", Dtype::U8, shape, kv_cache));
    }
    tensors
}

/// What a reader of the tensors must know.
fn metadata(problem: &Problem) -> BTreeMap<&'static str, String> {
    let mut pairs = BTreeMap::new();
    let mut set = |key, value| pairs.insert(key, value);
    if let Some(key) = problem.key {
        set("cache_format", key.cache.format.name().into());
        set("block_size", key.cache.block_size.to_string());
        set("kv_type", problem.half.to_string());
        if let Some(fp8) = key.cache.format.fp8() {
            set("fp8", fp8.to_string());
        }
        if let Some(scale) = key.scale {
            set("kv_scale", scale.to_string());
        }
    }
    if let Some(scale) = problem.query.and_then(|query| query.scale) {
        set("q_scale", scale.to_string());
    }
    pairs
}
