//! The tasks. Everything is built in the release profile, so that demo, tests and benchmarks share one
//! build of the dependencies.

use crate::shell::{Result, at, cargo, exists, root, run};
use std::{fs, process::Command};

fn build(task: &str, features: &[String]) -> Command {
    let mut cargo = cargo();
    cargo.args([task, "--release", "--no-default-features", "--features", &features.join(",")]);
    cargo
}

/// Runs the kernel on the example files and compares.
pub fn demo(features: &[String], rest: &[String]) -> Result {
    eprintln!("demo: building for {} (the first time takes some minutes)", features.join(", "));
    let program = |words: &[&str]| {
        let mut run = build("run", features);
        run.args(["--quiet", "--"]).args(words);
        run
    };
    let out = root().join("target/demo");
    at("create", &out, fs::create_dir_all(&out))?;
    let out = out.join("prologue.safetensors").display().to_string();
    let inputs = examples()?;
    let [first, ..] = inputs.as_slice() else {
        return Err("examples/ holds no .safetensors file".into());
    };
    run(&mut program(&["devices"]))?;
    run(program(&["run", first, &out]).args(rest))?;
    let mut verify = vec!["verify"];
    verify.extend(inputs.iter().map(String::as_str));
    run(program(&verify).args(rest))?;
    eprintln!("demo: q_out and kv_cache of {first} are in {out}");
    Ok(())
}

fn examples() -> Result<Vec<String>> {
    let folder = root().join("examples");
    let entries = at("read", &folder, fs::read_dir(&folder))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let inputs =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    let mut inputs: Vec<_> = inputs.map(|path| path.display().to_string()).collect();
    inputs.sort();
    Ok(inputs)
}

/// Runs every test of every crate.
pub fn test(features: &[String], rest: &[String]) -> Result {
    run(build("test", features).args(["--workspace", "--"]).args(rest))
}

/// Runs the benchmarks.
pub fn bench(features: &[String], rest: &[String]) -> Result {
    let mut bench = cargo();
    bench.args(["bench", "--no-default-features", "--features", &features.join(","), "--"]);
    run(bench.args(rest))
}

/// Everything that looks at the sources.
pub fn lint(features: &[String]) -> Result {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(build("clippy", features).args([
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    run(build("doc", features)
        .args(["--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "--deny warnings"))?;
    for (tool, words) in [
        ("cargo-deny", &["deny", "check", "bans", "licenses", "sources"][..]),
        ("cargo-machete", &["machete"]),
    ] {
        if exists(tool) {
            run(cargo().args(words))?;
        } else {
            eprintln!(
                "lint: {tool} is not installed, so it was not run (cargo install --locked {tool})"
            );
        }
    }
    Ok(())
}
