//! Which runtimes are built.

use crate::shell::Result;
use std::path::Path;

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

fn listed(list: &str) -> Result<Vec<String>> {
    if list == "all" {
        return Ok(RUNTIMES.map(String::from).to_vec());
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
    for (feature, library) in [("cuda", "libcuda.so.1"), ("hip", "libamdhip64.so")] {
        if has_library(library) {
            features.push(feature.into());
        }
    }
    features
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
