use crate::{Error, Result};
use mla_prologue_operator::Invalid;
use safetensors::Dtype;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A tensor of a file: its name, type, shape and bytes.
pub type Tensor<'a> = (&'static str, Dtype, Vec<usize>, &'a [u8]);

/// Writes a safetensors file.
///
/// # Errors
/// Those of [`replace`].
pub fn write(
    path: &Path,
    metadata: &BTreeMap<&'static str, String>,
    tensors: &[Tensor],
) -> Result<()> {
    let header = header(metadata, tensors);
    let contents = tensors.iter().map(|(.., bytes)| *bytes);
    replace(path, [header.as_slice()].into_iter().chain(contents))
}

/// Writes a file of these parts under a temporary name and renames it, so that a failure leaves none.
///
/// # Errors
/// A path that cannot be a file.
pub fn replace<'a>(path: &Path, parts: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
    let path = &destination("the file", path)?;
    let failed = |error: io::Error| Error::file("write", path, error.kind());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".mla-prologue-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder(path).unwrap_or(Path::new("."))).map_err(failed)?;
    parts.into_iter().try_for_each(|part| file.write_all(part)).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// A file named on a command line: by which argument, and where.
pub type Named<'a> = (&'static str, &'a Path);

/// Checks, before the work whose results they are to hold, that files can be written: none is one of the inputs or another
/// output. `-` as `--json` is standard output.
///
/// # Errors
/// A folder that is missing, something other than a file, or a file that would be lost.
pub fn check_outputs(inputs: &[Named], outputs: &[Named]) -> Result<()> {
    for (i, (name, path)) in outputs.iter().enumerate() {
        if path.as_os_str() == "-" {
            if *name == "--json" {
                continue;
            }
            return Err(Invalid::new(*name, "-", "a file: standard output takes only JSON").into());
        }
        let target = destination(name, path)?;
        if let Some(folder) = folder(&target).filter(|folder| !folder.is_dir()) {
            let reason = format_args!("there is no folder {}", folder.display());
            return Err(Error::file(format!("write {name}"), &target, reason));
        }
        let target = identity(&target);
        let same = |(_, other): &&Named| identity(other) == target;
        if let Some((other, _)) = inputs.iter().chain(&outputs[..i]).find(same) {
            let must = format_args!("another file than {other}");
            return Err(Invalid::new(*name, path.display(), must).into());
        }
    }
    Ok(())
}

/// What a path is compared by: the path without links, as far as it is there.
fn identity(path: &Path) -> PathBuf {
    let whole = || fs::canonicalize(path).ok();
    let in_folder = || {
        let folder = fs::canonicalize(folder(path).unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    whole().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

/// Where to write: a link's target, or the path itself, unless it is something other than a file.
fn destination(argument: &str, path: &Path) -> Result<PathBuf> {
    let Ok(resolved) = fs::canonicalize(path) else {
        // A link to what is not there yet, or nothing.
        let target = fs::read_link(path).ok();
        let target = target.map(|target| folder(path).unwrap_or(Path::new("")).join(target));
        return Ok(target.unwrap_or_else(|| path.to_owned()));
    };
    if resolved.is_file() {
        return Ok(resolved);
    }
    let is = if resolved.is_dir() { "a folder" } else { "not an ordinary file" };
    Err(Error::input(path, Invalid::new(argument, is, "a file, or nothing yet")))
}

/// The header of the file: its length, then JSON padded to a multiple of 8. The library's own writer puts
/// metadata in random order.
fn header(metadata: &BTreeMap<&'static str, String>, tensors: &[Tensor]) -> Vec<u8> {
    let mut entries = serde_json::Map::new();
    entries.insert("__metadata__".into(), serde_json::json!(metadata));
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
