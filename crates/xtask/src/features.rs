//! Which runtimes are built.

use crate::shell::Result;
use std::path::{Path, PathBuf};

const RUNTIMES: [&str; 4] = ["cpu", "cuda", "hip", "vulkan"];
/// What may be named besides: CUDA by another way.
const VARIANT: &str = "cuda-cpp";

/// Takes `--features LIST` from a task's words; returns the features and the words after `--`.
pub fn parse(words: &[String]) -> Result<(Vec<String>, &[String])> {
    let (own, rest) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (words, &words[..0]),
    };
    match own {
        [] => Ok((detected(), rest)),
        [flag, list] if flag == "--features" => Ok((listed(list)?, rest)),
        [other, ..] => Err(format!("{other}: must be --features LIST, or follow --")),
    }
}

/// Every runtime.
pub fn all() -> Vec<String> {
    RUNTIMES.map(String::from).to_vec()
}

fn listed(list: &str) -> Result<Vec<String>> {
    if list == "all" {
        return Ok(all());
    }
    let known = |name: &&str| RUNTIMES.contains(name) || *name == VARIANT;
    match list.split(',').find(|name| !known(name)) {
        Some(name) => Err(format!(
            "--features {name}: must be all, or of {} and {VARIANT}",
            RUNTIMES.join(", ")
        )),
        None => Ok(list.split(',').map(String::from).collect()),
    }
}

/// The CPU, and the GPUs whose driver is installed.
fn detected() -> Vec<String> {
    let mut features = vec!["cpu".to_string()];
    if has_library("libcuda.so.1") {
        features.push("cuda".into());
    }
    if has_rocm() {
        features.push("hip".into());
    }
    features
}

/// Is ROCm's runtime here, where CubeCL looks for it?
pub fn has_rocm() -> bool {
    let set = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut folders = set.flat_map(|path| [path.join("lib"), path]);
    folders.any(|folder| folder.join("libamdhip64.so").exists()) || has_library("libamdhip64.so")
}

fn has_library(name: &str) -> bool {
    let set = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/opt/rocm/lib",
    ];
    let usual = usual.iter().map(Path::new).any(|folder| folder.join(name).exists());
    usual || std::env::split_paths(&set).any(|folder| folder.join(name).exists())
}
