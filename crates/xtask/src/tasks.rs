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

fn with_features(task: &str, features: &[String]) -> Command {
    let mut cargo = cargo();
    cargo.args([task, "--no-default-features", "--features", &features.join(",")]);
    cargo
}

/// These runtimes, and Burn.
fn with_burn(features: &[String]) -> Vec<String> {
    features.iter().cloned().chain(["burn".into()]).collect()
}

/// Runs the kernel on the example files and compares. Burn is not needed for that.
pub fn demo(features: &[String], rest: &[String]) -> Result {
    eprintln!("demo: building for {} (the first time takes some minutes)", features.join(", "));
    build_program(features)?;
    let inputs = examples()?;
    let [first, ..] = inputs.as_slice() else {
        return Err("examples/ holds no .safetensors file".into());
    };
    let out = program_folder()?.join("demo.safetensors").display().to_string();
    run(&mut program(&["devices"])?)?;
    run(program(&["run", first, &out])?.args(rest))?;
    verify(&inputs, rest)?;
    eprintln!("demo: q_out and kv_cache of {first} are in {out}");
    Ok(())
}

/// Runs an attention layer through Burn and compares it with the output of another implementation.
pub fn layer(features: &[String], rest: &[String]) -> Result {
    build_program(&with_burn(features))?;
    let y = program_folder()?.join("layer.safetensors").display().to_string();
    run(program(&["layer", LAYER, &y])?.args(rest))?;
    eprintln!("layer: y of {LAYER} is in {y}");
    Ok(())
}

/// An attention layer with its input and output.
const LAYER: &str = "examples/layer/attn_swa_8h.safetensors";

/// Runs the example files of the prologue on a Vulkan device.
pub fn vulkan(features: &[String], rest: &[String]) -> Result {
    let features = features.iter().filter(|feature| *feature != "vulkan").cloned();
    build_program(&features.chain(["vulkan".into()]).collect::<Vec<_>>())?;
    // Attention does not run there (`mla_prologue_kernel::attend::check_device`).
    let mut inputs = examples()?;
    inputs.retain(|path| !path.ends_with("attend.safetensors"));
    verify(&inputs, &[&["--device".into(), "vulkan".into()], rest].concat())
}

fn verify(inputs: &[String], rest: &[String]) -> Result {
    run(program(&["verify"])?.args(inputs).args(rest))
}

fn build_program(features: &[String]) -> Result {
    run(build("build", features).args(["--package", "mla-prologue-cli"]))
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
    let mut test = build("test", &with_burn(features));
    test.args(["--workspace", "--"]).args(rest).env("MLA_PROLOGUE_TOOLS", tools::folder());
    test
}

/// Runs the benchmarks.
pub fn bench(features: &[String], rest: &[String]) -> Result {
    let mut bench = with_features("bench", features);
    run(bench.args(["--package", "mla-prologue-benches", "--"]).args(rest))
}

/// Writes the table of what is generated for each target into its document.
pub fn portability() -> Result {
    build_program(&features::all())?;
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
    build_program(&features)?;
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

/// Runs other documented commands and counts the dependencies that each builds again, which must be none.
pub fn rebuilds(features: &[String]) -> Result {
    let all = with_burn(features);
    let commands = [
        ("cargo build --release", build("build", &all)),
        ("cargo build --release --example burn", {
            let mut example = build("build", &all);
            example.args(["--example", "burn"]);
            example
        }),
        ("the demo", {
            let mut demo = build("build", features);
            demo.args(["--package", "mla-prologue-cli"]);
            demo
        }),
        ("cargo bench", {
            let mut bench = with_features("bench", &all);
            bench.arg("--no-run");
            bench
        }),
        ("an editor's cargo check --release", {
            let mut check = build("check", &all);
            check.args(["--workspace", "--all-targets"]);
            check
        }),
    ];
    let mut failed = Vec::new();
    for (name, mut command) in commands {
        let messages = read(command.args(["--message-format", "json"]))?;
        let again = rebuilt(&messages);
        eprintln!("rebuilds: {name}: {} dependencies", again.len());
        if !again.is_empty() {
            failed.push(format!("{name}: {}", again.join(", ")));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "these build dependencies again, because their features differ (crates/unify):\n{}",
        failed.join("\n")
    ))
}

/// The packages outside of this workspace that cargo's messages say were compiled.
fn rebuilt(messages: &str) -> Vec<String> {
    let own = format!("\"manifest_path\":\"{}/", root().display());
    let compiled = |line: &&str| {
        line.contains("\"reason\":\"compiler-artifact\"") && line.contains("\"fresh\":false")
    };
    let foreign = messages.lines().filter(compiled).filter(|line| !line.contains(&own));
    let name = |line: &str| {
        let start = line.split_once("\"package_id\":\"").map_or(line, |(_, rest)| rest);
        start.split('"').next().unwrap_or(start).to_owned()
    };
    let mut names: Vec<String> = foreign.map(name).collect();
    names.dedup();
    names
}

/// Everything that looks at the sources.
pub fn lint(features: &[String]) -> Result {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    let features = &with_burn(features);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_that_are_built_again_are_counted() {
        let own = root().display().to_string();
        let line = |manifest: &str, id: &str, fresh: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{id}\",\
                 \"manifest_path\":\"{manifest}/Cargo.toml\",\"fresh\":{fresh}}}\n"
            )
        };
        let messages = line(&format!("{own}/crates/cli"), "cli", false)
            + &line("/registry/a", "a#1", false)
            + &line("/registry/b", "b#1", true);
        assert_eq!(rebuilt(&messages), ["a#1"]);
    }
}
