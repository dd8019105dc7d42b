//! NVIDIA's compilers, which tests hand the generated code to: no driver and no GPU is needed for that.

use crate::shell::{Result, at, root, run};
use std::{fs, path::PathBuf, process::Command};

/// `ptxas`, NVRTC, and the headers that it includes.
const PACKAGES: [&str; 3] = [
    "nvidia-cuda-nvcc-cu12==12.9.86",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
    "nvidia-cuda-runtime-cu12==12.9.79",
];

/// Where they are.
pub fn folder() -> PathBuf {
    root().join("target/tools")
}

/// Fetches them from the Python package index.
pub fn fetch() -> Result {
    if folder().is_dir() {
        eprintln!("tools: already in {}", folder().display());
        return Ok(());
    }
    let partial = folder().with_extension("partial");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    run(pip.args(["--upgrade", "--target"]).arg(&partial).args(PACKAGES))?;
    at("rename", &partial, fs::rename(&partial, folder()))
}
