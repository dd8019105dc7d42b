use super::{load, unreadable};
use crate::{Error, Output, Result};
use mla_prologue_operator::{HEAD_DIM, Half, Invalid, Problem};
use safetensors::{Dtype, SafeTensors};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A tensor of the file: its name, type, shape and bytes.
type Tensor<'a> = (&'static str, Dtype, Vec<usize>, &'a [u8]);

impl Output {
    /// Writes the file under a temporary name and renames it, so that a failure leaves none. Equal outputs
    /// give equal files.
    ///
    /// # Errors
    /// A path that is something other than a file, or a file that cannot be written.
    pub fn write(&self, path: &Path, problem: &Problem) -> Result<()> {
        let path = &destination(path)?;
        let failed = |error: io::Error| Error::file("write", path, error.kind());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = tempfile::Builder::new()
            .prefix(".mla-prologue-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(failed)?;
        let tensors = tensors(problem, &self.q_out, &self.kv_cache);
        file.write_all(&header(problem, &tensors)).map_err(failed)?;
        tensors.iter().try_for_each(|(.., bytes)| file.write_all(bytes)).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
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

/// Where to write: a link's target, or the path itself, unless it is something that is no file.
fn destination(path: &Path) -> Result<PathBuf> {
    let Ok(resolved) = fs::canonicalize(path) else { return Ok(path.to_owned()) };
    if resolved.is_file() {
        return Ok(resolved);
    }
    let is = if resolved.is_dir() { "a folder" } else { "no ordinary file" };
    Err(Error::input(path, Invalid::new("OUT", is, "a file, or nothing yet")))
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

/// The header of the file: its length, then JSON padded to a multiple of 8. The library's own writer puts
/// metadata in random order.
fn header(problem: &Problem, tensors: &[Tensor]) -> Vec<u8> {
    let mut entries = serde_json::Map::new();
    entries.insert("__metadata__".into(), serde_json::json!(metadata(problem)));
    let mut end = 0;
    for (name, dtype, shape, bytes) in tensors {
        let start = end;
        end += bytes.len();
        let entry = serde_json::json!({"dtype": dtype.to_string(), "shape": shape, "data_offsets": [start, end]});
        entries.insert((*name).into(), entry);
    }
    let mut json = serde_json::Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes(), json.as_slice()].concat()
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
