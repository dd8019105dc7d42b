use crate::{Error, Output, Result};
use mla_prologue_operator::{HEAD_DIM, Half, Invalid, Problem};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt, path::Path};

impl Output {
    /// Writes the file under a temporary name and renames it, so that a failure leaves none.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path, problem: &Problem) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| Error::file("write", path, error);
        let views = views(problem, &self.q_out, &self.kv_cache).map_err(|error| failed(&error))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".mla-prologue-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(|error| failed(&error))?;
        safetensors::serialize_to_file(views, Some(metadata(problem)), file.path())
            .map_err(|error| failed(&error))?;
        file.persist(path).map_err(|error| failed(&error.error))?;
        Ok(())
    }

    /// Reads what somebody's call for `problem` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or whose tensors are not those of the problem.
    pub fn read(path: &Path, problem: &Problem) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| Error::file("read", path, error))?;
        let invalid = |error| Error::input(path, error);
        let unreadable =
            |error| invalid(Invalid::new("the file", error, "a whole safetensors file"));
        let tensors = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
        let mut output = Self {
            q_out: vec![0; problem.q_out_bytes()],
            kv_cache: vec![0; problem.cache_bytes()],
        };
        let wanted = views(problem, &output.q_out, &output.kv_cache).map_err(unreadable)?;
        let shapes: Vec<_> = wanted
            .iter()
            .map(|(name, view)| (*name, view.dtype(), view.shape().to_vec()))
            .collect();
        let names: Vec<&str> = shapes.iter().map(|(name, ..)| *name).collect();
        if tensors.len() != shapes.len() || names.iter().any(|name| tensors.tensor(name).is_err()) {
            let mut found = tensors.names();
            found.sort_unstable();
            return Err(invalid(Invalid::new(
                "the tensors of the file",
                found.join(", "),
                names.join(", "),
            )));
        }
        for (name, dtype, shape) in shapes {
            let tensor = tensors.tensor(name).map_err(unreadable)?;
            if (tensor.dtype(), tensor.shape()) != (dtype, shape.as_slice()) {
                let is = format!("{} {:?}", tensor.dtype(), tensor.shape());
                return Err(invalid(Invalid::new(name, is, format_args!("{dtype} {shape:?}"))));
            }
            let to = if name == "q_out" { &mut output.q_out } else { &mut output.kv_cache };
            to.copy_from_slice(tensor.data());
        }
        Ok(output)
    }
}

/// The tensors of the file.
fn views<'a>(
    problem: &Problem,
    q_out: &'a [u8],
    kv_cache: &'a [u8],
) -> Result<Vec<(&'static str, TensorView<'a>)>, safetensors::SafeTensorError> {
    let mut views = Vec::new();
    if let Some(query) = problem.query {
        let dtype = match (query.scale, problem.half) {
            (Some(_), _) => Dtype::U8,
            (None, Half::Bf16) => Dtype::BF16,
            (None, Half::F16) => Dtype::F16,
        };
        let shape = vec![problem.tokens, query.padded_heads, HEAD_DIM];
        views.push(("q_out", TensorView::new(dtype, shape, q_out)?));
    }
    if let Some(key) = problem.key {
        let shape = vec![key.cache.num_blocks, key.cache.block_stride];
        views.push(("kv_cache", TensorView::new(Dtype::U8, shape, kv_cache)?));
    }
    Ok(views)
}

/// What a reader of the tensors must know.
fn metadata(problem: &Problem) -> HashMap<String, String> {
    let mut pairs = HashMap::new();
    let mut set = |key: &str, value: String| pairs.insert(key.to_owned(), value);
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
