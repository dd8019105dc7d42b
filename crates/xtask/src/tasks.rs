//! The tasks. Everything is built in the release profile, so that demo, tests and benchmarks share one
//! build of the dependencies.

use crate::{
    features,
    shell::{Result, at, cargo, exists, read, record, root, run},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn build(task: &str, features: &[String]) -> Command {
    let mut cargo = with_features(task, features);
    cargo.arg("--release");
    cargo
}

/// With Burn, always: one build serves everything.
fn with_features(task: &str, features: &[String]) -> Command {
    let mut cargo = cargo();
    let features = format!("burn,{}", features.join(","));
    cargo.args([task, "--no-default-features", "--features", &features]);
    cargo
}

/// Runs the kernel on the example files and compares.
pub fn demo(features: &[String], rest: &[String]) -> Result {
    eprintln!(
        "demo: building for {} (the first time takes some twenty minutes)",
        features.join(", ")
    );
    build_programs(features)?;
    let inputs = examples()?;
    let [first, ..] = inputs.as_slice() else {
        return Err("examples/ holds no .safetensors file".into());
    };
    let out = program_folder()?.join("demo.safetensors").display().to_string();
    run(&mut program(&["devices"])?)?;
    run(program(&["run", first, &out])?.args(rest))?;
    verify(&inputs, rest)?;
    let y = program_folder()?.join("layer.safetensors").display().to_string();
    run(program(&["layer", LAYER, &y])?.args(rest))?;
    eprintln!("demo: q_out and kv_cache of {first} are in {out}, y of {LAYER} in {y}");
    Ok(())
}

/// An attention layer with its input and output.
const LAYER: &str = "examples/layer/attn_swa_8h.safetensors";

/// Runs the example files on a Vulkan device.
pub fn vulkan(features: &[String], rest: &[String]) -> Result {
    let features = features.iter().filter(|feature| *feature != "vulkan").cloned();
    build_programs(&features.chain(["vulkan".into()]).collect::<Vec<_>>())?;
    verify(&examples()?, &[&["--device".into(), "vulkan".into()], rest].concat())
}

fn verify(inputs: &[String], rest: &[String]) -> Result {
    run(program(&["verify"])?.args(inputs).args(rest))
}

/// With the benchmarks, the dependencies get the features that the tests need too, and the tests need not
/// build them again.
fn build_programs(features: &[String]) -> Result {
    run(build("build", features).args(["--workspace", "--bins", "--benches"]))
}

/// The command line, which lies beside this program.
fn program(words: &[&str]) -> Result<Command> {
    let mut program = Command::new(program_folder()?.join("mla-prologue"));
    program.args(words).current_dir(root());
    Ok(program)
}

fn program_folder() -> Result<PathBuf> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    Ok(own.parent().map(Path::to_owned).unwrap_or_default())
}

fn examples() -> Result<Vec<String>> {
    let folder = Path::new("examples");
    let entries = at("read", folder, fs::read_dir(root().join(folder)))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| folder.join(entry.file_name())));
    let inputs =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    let mut inputs: Vec<_> = inputs.map(|path| path.display().to_string()).collect();
    inputs.sort();
    Ok(inputs)
}

/// Runs every test of every crate.
pub fn test(features: &[String], rest: &[String]) -> Result {
    run(&mut test_command(features, rest))
}

fn test_command(features: &[String], rest: &[String]) -> Command {
    let mut test = build("test", features);
    test.args(["--workspace", "--"]).args(rest).env("MLA_PROLOGUE_TOOLS", tools::folder());
    test
}

/// Runs the benchmarks.
pub fn bench(features: &[String], rest: &[String]) -> Result {
    run(with_features("bench", features).arg("--").args(rest))
}

/// Writes the table of what is generated for each target into its document.
pub fn portability() -> Result {
    build_programs(&features::all())?;
    let mut command = program(&["source", "--target", "all"])?;
    let table = read(command.env("MLA_PROLOGUE_TOOLS", tools::folder()))?;
    let path = root().join("docs/portability.md");
    let text = at("read", &path, fs::read_to_string(&path))?;
    let [start, end] = ["<!-- cargo xtask portability -->\n", "\n<!-- end -->"];
    let parts = text.split_once(start).and_then(|(before, rest)| {
        rest.split_once(end).map(|(_, after)| format!("{before}{start}{table}{end}{after}"))
    });
    let text = parts.ok_or_else(|| format!("{} has no place for the table", path.display()))?;
    at("write", &path, fs::write(&path, text))
}

/// Runs everything on the AMD GPU here, and writes what happened into one file.
pub fn rocm(rest: &[String]) -> Result {
    if !features::has_rocm() {
        return Err(
            "there is no ROCm here (libamdhip64.so); docs/rocm.md says what is needed".into()
        );
    }
    let features = ["cpu", "hip"].map(String::from);
    build_programs(&features)?;
    let path = root().join("target/rocm-report.txt");
    let mut report = at("create", &path, fs::File::create(&path))?;
    let mut failed = Vec::new();
    // One that does not start failed as well.
    let mut step = |name: &str, command: &mut Command| match record(command, &mut report) {
        Ok(true) => {}
        Ok(false) => failed.push(name.to_owned()),
        Err(why) => failed.push(why),
    };
    for (tool, words) in [
        ("git", &["log", "-1", "--format=%H %cs"][..]),
        ("rustc", &["--version"]),
        ("rocminfo", &[]),
        ("hipcc", &["--version"]),
    ] {
        if exists(tool) {
            step(tool, Command::new(tool).args(words).current_dir(root()));
        }
    }
    step("devices", &mut program(&["devices"])?);
    step("verify", &mut program(&["verify", "--device", "rocm"])?);
    step("test", &mut test_command(&features, rest));
    step("bench", &mut program(&["bench", "--device", "rocm"])?);
    eprintln!("rocm: the report is {}", path.display());
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("failed: {}; please attach the report", failed.join(", "))),
    }
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
    // Called by their own names: under `cargo run`, cargo-machete does not see that it is a subcommand.
    for (tool, words) in
        [("cargo-deny", &["check", "bans", "licenses", "sources"][..]), ("cargo-machete", &[])]
    {
        if exists(tool) {
            run(Command::new(tool).args(words).current_dir(root()))?;
        } else {
            eprintln!(
                "lint: {tool} is not installed, so it was not run (cargo install --locked {tool})"
            );
        }
    }
    Ok(())
}
