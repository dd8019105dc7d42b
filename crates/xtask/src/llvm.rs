//! LLVM 23, which CubeCL's cpu, cuda and hip runtimes link statically.
//!
//! CubeCL's build script looks for it in one folder and downloads it from a release page when it is
//! not there. This module fills the same folder, by whatever way is open: the release page, or the
//! Python package index.

use crate::shell::{Result, at, exists, read, run};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The version that `tracel-llvm-bundler` in `Cargo.lock` asks for.
const VERSION: &str = "23.1.0-4";
const RELEASES: &str = "https://github.com/tracel-ai/tracel-llvm/releases/download";
const PYPI: &str = "mlc-llvm-static[all]==23.1.1.post0";
const MARKER: &str = ".tracel-llvm-installed";

/// Makes sure that LLVM is in the folder where CubeCL's build script looks for it; returns that folder.
pub fn ensure() -> Result<PathBuf> {
    let folder = data_dir()?.join(format!("tracel/tracel-llvm-{VERSION}"));
    if folder.join(MARKER).is_file() {
        let version = check(&folder).map_err(|why| {
            format!(
                "{why}\n{} is damaged: remove it and run `cargo xtask setup` again",
                folder.display()
            )
        })?;
        eprintln!("setup: LLVM {version} is in {}", folder.display());
        return Ok(folder);
    }
    eprintln!("setup: no LLVM in {}; fetching it (once)", folder.display());
    let partial = folder.with_file_name(format!("partial-{}", std::process::id()));
    let result = fetch(&partial).and_then(|version| install(&partial, &folder, &version));
    // What a failure leaves behind is of no use to the next attempt.
    let _ = fs::remove_dir_all(&partial);
    result.map(|()| folder)
}

fn install(partial: &Path, folder: &Path, version: &str) -> Result {
    at("write", partial, fs::write(partial.join("llvm").join(MARKER), ""))?;
    if folder.exists() {
        at("remove the unfinished", folder, fs::remove_dir_all(folder))?;
    }
    at("create", folder, fs::rename(partial.join("llvm"), folder))?;
    eprintln!("setup: installed LLVM {version} in {}", folder.display());
    Ok(())
}

/// Puts LLVM into `partial/llvm` by the first way that works.
fn fetch(partial: &Path) -> Result<String> {
    let attempt = |what: &str, way: fn(&Path) -> Result| {
        eprintln!("setup: trying {what}");
        let _ = fs::remove_dir_all(partial);
        at("create", partial, fs::create_dir_all(partial))?;
        way(partial)?;
        check(&partial.join("llvm"))
    };
    let bundle = attempt("the official bundle", from_releases);
    bundle.or_else(|bundle| {
        eprintln!("setup: not to be had: {bundle}");
        attempt("the Python package index", from_pypi).map_err(|pypi| {
            format!(
                "LLVM {VERSION}, which CubeCL links, could not be fetched.\n  \
                 official bundle ({RELEASES}): {bundle}\n  \
                 Python package index ({PYPI}): {pypi}\n\
                 One of the two must be reachable, with curl, tar and sha256sum for the first or python3 \
                 with pip for the second (Debian: apt-get install curl xz-utils python3-pip)."
            )
        })
    })
}

/// The archive of CubeCL's authors, its checksum compared with the one published beside it.
fn from_releases(partial: &Path) -> Result {
    let name = match std::env::consts::ARCH {
        "x86_64" => "linux-x64",
        "aarch64" => "linux-AArch64",
        other => return Err(format!("none for {other}")),
    };
    let curl = |file: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--location", "--silent", "--show-error", "--connect-timeout", "15"]);
        curl.arg(format!("{RELEASES}/v{VERSION}/{file}"));
        curl
    };
    let sums = read(&mut curl(&format!("{name}.checksums.json")))?;
    let archive = partial.join("llvm.tar.xz");
    run(curl(&format!("{name}.tar.xz")).arg("--output").arg(&archive))?;
    let got = read(Command::new("sha256sum").arg(&archive))?;
    let sum = got.split_whitespace().next().unwrap_or_default();
    if sum.len() != 64 || !sums.contains(&format!("\"{sum}\"")) {
        return Err(format!("the archive's checksum {sum} is not the published one"));
    }
    run(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(partial))?;
    let unpacked = partial.join(format!("tracel-llvm-{VERSION}"));
    at("rename", &unpacked, fs::rename(&unpacked, partial.join("llvm")))
}

/// A build of the same LLVM as a Python package. `--target` keeps it out of every Python
/// environment, and works where the system's own is closed to pip.
fn from_pypi(partial: &Path) -> Result {
    let site = partial.join("site");
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
    ]);
    let extra = PYPI.replace("-static[all]", "-static-extra-targets");
    run(pip.arg(&site).args([&PYPI.replace("[all]", ""), &extra]))?;
    let mut config = Command::new("python3");
    config.args(["-m", "mlc_llvm_static.config", "--prefix"]).env("PYTHONPATH", &site);
    let prefix = PathBuf::from(read(&mut config)?);
    at("move", &prefix, fs::rename(&prefix, partial.join("llvm")))
}

/// What CubeCL's build scripts will ask of this LLVM; returns its version.
fn check(llvm: &Path) -> Result<String> {
    let ask = |what: &str| read(Command::new(llvm.join("bin/llvm-config")).arg(what));
    let version = ask("--version")?;
    if !version.starts_with("23.") {
        return Err(format!("LLVM is {version}, must be 23"));
    }
    let targets = ask("--targets-built")?;
    let host = if cfg!(target_arch = "aarch64") { "AArch64" } else { "X86" };
    for target in [host, "NVPTX", "AMDGPU"] {
        if !targets.split_whitespace().any(|built| built == target) {
            return Err(format!("LLVM {version} lacks the target {target}; it has {targets}"));
        }
    }
    let missing = |file: &&str| !Path::new(file).is_file();
    match ask("--libfiles")?.split_whitespace().find(missing) {
        Some(file) => Err(format!("LLVM {version} lacks {file}")),
        None => Ok(version),
    }
}

fn data_dir() -> Result<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_DATA_HOME")
        .filter(|dir| dir.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .ok_or_else(|| "neither XDG_DATA_HOME nor HOME is set: no place for LLVM".into())
}

/// The `lld` part of the stand-in is compiled, and so are CubeCL's shims.
pub fn check_compiler() -> Result {
    if exists("c++") {
        return Ok(());
    }
    Err("no C++ compiler: CubeCL's build needs `c++` (Debian: apt-get install build-essential)"
        .into())
}
