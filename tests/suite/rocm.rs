//! What a user of an AMD GPU is told, with a stand-in for the driver that has such a device and can do nothing.

use rstest::rstest;
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

/// HIP's device properties: where the wavefront's width and the architecture's name are in them.
const DRIVER: &str = r#"
    #include <cstdlib>
    #include <cstring>
    extern "C" int hipGetDeviceCount(int *count) { *count = 1; return 0; }
    extern "C" int hipGetDevicePropertiesR0600(char *properties, int) {
        memset(properties, 0, 1472);
        strcpy(properties, "a stand-in");
        *reinterpret_cast<int *>(properties + 308) = atoi(getenv("STAND_IN_WAVE"));
        strcpy(properties + 1160, getenv("STAND_IN_ARCH"));
        return 0;
    }
    extern "C" int hipDeviceGetPCIBusId(char *, int, int) { return 1; }
"#;

/// A folder that looks like ROCm's.
fn driver() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("driver.cpp"), DRIVER).expect("written");
    for library in ["libamdhip64.so", "libhiprtc.so"] {
        let mut compiler = Command::new("c++");
        compiler.current_dir(folder.path());
        compiler.args(["-shared", "-fPIC", "driver.cpp", "-o", library]);
        assert!(compiler.status().expect("a C++ compiler").success());
    }
    folder
}

fn program(driver: &Path, arch: &str, wave: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_mla-prologue"));
    program.env("ROCM_PATH", driver).env("STAND_IN_ARCH", arch).env("STAND_IN_WAVE", wave);
    let output = program.args(words).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// CubeCL does not know the waves of these, and would panic.
#[rstest]
#[case("gfx950:sramecc+:xnack-", "64", "gfx950")]
#[case("gfx906", "64", "gfx906")]
#[case("gfx1337", "32", "gfx1337")]
fn an_architecture_without_code_is_an_error_that_names_it(
    #[case] arch: &str,
    #[case] wave: &str,
    #[case] name: &str,
) {
    if cfg!(not(feature = "hip")) {
        println!("left out: this build has no hip");
        return;
    }
    let driver = driver();
    let why = format!("CubeCL generates no code for {name}");
    let (code, listed, errors) = program(driver.path(), arch, wave, &["devices"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(listed.contains(&why), "{listed}");
    assert!(!errors.contains("panicked"), "{errors}");
    let words = ["verify", "examples/basic.safetensors", "--device", "rocm"];
    let (code, _, errors) = program(driver.path(), arch, wave, &words);
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains(&why) && !errors.contains("panicked"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}
