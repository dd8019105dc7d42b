//! CubeCL's own HIP runtime on a stand-in for AMD's driver, which emulates what is launched.

use mla_prologue::kernel::Device;
use mla_prologue_emulator::driver;
use rstest::rstest;
use std::{
    env,
    process::{Command, Output},
};
use tempfile::TempDir;

/// This suite as a process whose only device is the stand-in's, of that architecture.
fn stand_in(arch: &str, wave: usize) -> (TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder");
    driver::compile(folder.path()).expect("the stand-in compiles");
    let mut command = Command::new(env::current_exe().expect("this program"));
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
    let (_folder, mut suite) = stand_in(arch, wave);
    suite.env(WHY, format!("CubeCL generates no code for {name}"));
    let output = suite.arg("in_a_child_the_reason_is_given");
    let output = output.arg("--nocapture").output().expect("it starts");
    let (said, errors) = text(&output);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("1 passed"), "{said}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// Set in a child process: the reason that its device must give.
const WHY: &str = "STAND_IN_WHY";

#[test]
fn in_a_child_the_reason_is_given() {
    let Ok(why) = env::var(WHY) else {
        println!("left out: this is for the process that the test above starts");
        return;
    };
    driver::attach().expect("the stand-in is where ROCM_PATH says");
    let listed = Device::list().into_iter().find(|listing| listing.name == "rocm:0");
    let listed = listed.expect("rocm is listed").state.expect_err("it cannot be used");
    let opened = Device::open("rocm").expect_err("it cannot be used");
    for error in [listed, opened] {
        assert!(error.to_string().contains(&why), "{error}");
    }
}

/// Tests of this suite that use devices, in a process whose only one is the stand-in's.
#[rstest]
#[case("gfx942:sramecc+:xnack-", 64)]
#[case("gfx1100", 32)]
#[case("gfx1201", 32)]
fn the_suite_passes_on_the_stand_in(#[case] arch: &str, #[case] wave: usize) {
    // Burn's own kernels have instructions that the emulator lacks.
    const TESTS: [&str; 7] = [
        "attend::golden",
        "bitwise::golden",
        "bitwise::the_modes",
        "gather::slots",
        "gather::tokens_of_sequences",
        "gather::what_was_inserted_is_read",
        "indices::",
    ];
    let (_folder, mut suite) = stand_in(arch, wave);
    let output = suite.args(TESTS).args(["--test-threads", "1"]).output().expect("it starts");
    let (said, errors) = text(&output);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(!said.contains(" 0 passed"), "{said}");
}
