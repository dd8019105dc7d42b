//! `cargo xtask …`: everything that a person or CI does with the repository.

mod features;
mod lld;
mod llvm;
mod shell;
mod tasks;
mod tools;

use shell::Result;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK [--features LIST]

  setup   provide LLVM 23, which CubeCL links (once; the other tasks do it by themselves)
  demo    run the fused kernel on the example files, on the best device here, and prove it equal,
          bit for bit, to the reference
  layer   run an attention layer through Burn, and compare it with another implementation's output
  test    run the test suite on every device here
  vulkan  run the example files on the Vulkan device here, hardware or software: some minutes where
          Mesa compiles for the CPU
  bench   run the benchmarks
  rocm    run the catalogue, the test suite and the benchmark on the AMD GPU here, and write one report
          (target/rocm-report.txt) to attach to an issue
  tools   fetch NVIDIA's compilers, to which the tests then hand the generated code (200 MB, no GPU needed)
  portability
          write the table of docs/portability.md again
  rebuilds
          count the dependencies that other documented commands would build again, after test and lint: none
  lint    rustfmt, clippy, rustdoc; cargo-deny and cargo-machete where they are installed
  ci      lint, then test

--features LIST   the runtimes to build: a comma-separated list of cpu, cuda, hip, vulkan, cuda-cpp, or
                  all for the first four. Without it: cpu, and those whose driver is found here.
What follows -- goes to the program that the task runs, as in `cargo xtask test -- --nocapture`.
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or("help".into());
    match run(&task, &words.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {task}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &str, words: &[String]) -> Result {
    let (features, rest) = features::parse(words)?;
    match task {
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(())
        }
        "setup" => setup(),
        "demo" => setup().and_then(|()| tasks::demo(&features, rest)),
        "layer" => setup().and_then(|()| tasks::layer(&features, rest)),
        "test" => setup().and_then(|()| tasks::test(&features, rest)),
        "vulkan" => setup().and_then(|()| tasks::vulkan(&features, rest)),
        "rocm" => setup().and_then(|()| tasks::rocm(rest)),
        "tools" => tools::fetch(),
        "portability" => setup().and_then(|()| tasks::portability()),
        "bench" => setup().and_then(|()| tasks::bench(&features, rest)),
        "rebuilds" => tasks::rebuilds(&features),
        "lint" => setup().and_then(|()| tasks::lint(&features)),
        "ci" => setup()
            .and_then(|()| tasks::lint(&features))
            .and_then(|()| tasks::test(&features, rest)),
        _ => Err(format!("no such task; `cargo xtask help` lists them\n\n{HELP}")),
    }
}

fn setup() -> Result {
    llvm::check_compiler()?;
    lld::ensure(&llvm::ensure()?)
}
