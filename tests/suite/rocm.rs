//! CubeCL's own HIP runtime on a stand-in for AMD's driver, which emulates what is launched.

use mla_prologue_emulator::driver;
use rstest::rstest;
use std::{
    env,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A folder that looks like ROCm's, and a device of that architecture in it.
fn stand_in(program: &str, arch: &str, wave: usize) -> (TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder");
    driver::compile(folder.path()).expect("the stand-in compiles");
    let mut command = Command::new(program);
    command.env("ROCM_PATH", folder.path());
    command.env("STAND_IN_ARCH", arch).env("STAND_IN_WAVE", wave.to_string());
    (folder, command)
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// CubeCL does not know the waves of these, and would panic.
#[rstest]
#[case("gfx950:sramecc+:xnack-", 64, "gfx950")]
#[case("gfx906", 64, "gfx906")]
#[case("gfx1337", 32, "gfx1337")]
fn an_architecture_without_code_is_an_error_that_names_it(
    #[case] arch: &str,
    #[case] wave: usize,
    #[case] name: &str,
) {
    let why = format!("CubeCL generates no code for {name}");
    let (_folder, mut program) = stand_in(env!("CARGO_BIN_EXE_mla-prologue"), arch, wave);
    let output = program.arg("devices").output().expect("the program starts");
    let (listed, errors) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(listed.contains(&why), "{listed}");
    assert!(!errors.contains("panicked"), "{errors}");
    let (_folder, mut program) = stand_in(env!("CARGO_BIN_EXE_mla-prologue"), arch, wave);
    program.args(["verify", "examples/basic.safetensors", "--device", "rocm"]);
    let output = program.output().expect("the program starts");
    let (_, errors) = text(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(&why) && !errors.contains("panicked"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// Tests of this suite that use devices, in a process whose only one is the stand-in's.
#[rstest]
#[case("gfx942:sramecc+:xnack-", 64)]
#[case("gfx1100", 32)]
#[case("gfx1201", 32)]
fn the_suite_passes_on_the_stand_in(#[case] arch: &str, #[case] wave: usize) {
    const TESTS: [&str; 4] = ["bitwise::golden", "bitwise::the_modes", "gather::", "indices::"];
    let own = env::current_exe().expect("this program");
    let (_folder, mut suite) = stand_in(&own.display().to_string(), arch, wave);
    let output = suite.args(TESTS).args(["--test-threads", "1"]).output().expect("it starts");
    let (said, errors) = text(&output);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(!said.contains(" 0 passed"), "{said}");
}
