//! What others' compilers and checkers say of the generated code, where they are here: `cargo xtask tools`
//! fetches NVIDIA's; Debian has `spirv-val` in `spirv-tools`.

use super::emulated::find;
use crate::support::{file, spec};
use libloading::{Library, Symbol};
use mla_prologue::{
    kernel::{Conversion, prologue::PaddingHeads},
    operator::{Float16, prologue::Problem},
};
use mla_prologue_cases::prologue::{catalogue, problem};
use mla_prologue_codegen::{Module, Target, portability};
use std::{
    collections::HashMap,
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs,
    path::{Path, PathBuf},
    process::Command,
    ptr,
};

/// The base operator in both types, and every mode.
fn problems() -> Vec<Problem> {
    let base = Float16::ALL.iter().map(|&dtype| spec(1).dtype(dtype));
    let modes = catalogue::modes().into_iter().map(|case| case.spec);
    base.chain(modes).map(|spec| spec.validate().expect("valid")).collect()
}

fn compile(target: &str, problem: &Problem, conversion: Conversion) -> Option<Module> {
    let target = find(target)?;
    let kernel = (*problem, PaddingHeads::Written);
    let definition = target.define(&kernel, &target.strategy(conversion));
    Some(target.compile(definition).expect("a problem that compiles"))
}

/// NVIDIA's tools that were fetched.
fn tools() -> Option<PathBuf> {
    let folder = env::var_os("MLA_PROLOGUE_TOOLS").map(PathBuf::from);
    let folder = folder.map(|folder| folder.join("nvidia"));
    let found = folder.filter(|folder| folder.is_dir());
    if found.is_none() {
        println!("left out: no tools in MLA_PROLOGUE_TOOLS (cargo xtask tools)");
    }
    found
}

#[test]
fn ptx_is_assembled_without_spills() {
    if tools().is_none() {
        return;
    }
    for problem in problems() {
        let Some(module) = compile("ptx:sm_90", &problem, Conversion::Native) else { return };
        let assembled = portability::ptxas(&module.text).expect("ptxas takes it");
        assert_eq!((assembled.stack, assembled.spills), (0, 0), "{problem:?}");
        // Two cubes of 256 units on each quarter of a multiprocessor.
        assert!(assembled.registers <= 64, "{assembled:?} for {problem:?}");
    }
}

#[test]
fn cuda_cpp_is_compiled() {
    let Some(tools) = tools() else { return };
    for problem in problems().iter().step_by(4) {
        let Some(module) = compile("cuda-cpp:sm_90", problem, Conversion::Native) else { return };
        let ptx = nvrtc(&tools, &module.text).expect("NVRTC takes it");
        assert!(ptx.contains(&module.entrypoint), "{problem:?}");
        // What goes into one instruction is what the reference says: as much as LLVM's.
        let count = |text: &str| text.lines().filter(|line| line.contains("fma.rn.f32")).count();
        let llvm = compile("ptx:sm_90", problem, Conversion::Native).expect("the same build");
        assert_eq!(count(&ptx), count(&llvm.text), "{problem:?}");
    }
}

/// Compiles C++ for Hopper; gives PTX.
fn nvrtc(tools: &Path, code: &str) -> Result<String, String> {
    type Program = *mut c_void;
    type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
    type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
    let path = tools.join("cuda_nvrtc/lib/libnvrtc.so.12");
    let include = tools.join("cuda_runtime/include");
    let options = ["--gpu-architecture=sm_90".into(), format!("-I{}", include.display())];
    let options = options.map(|option| CString::new(option).expect("no zero"));
    let code = CString::new(code).expect("no zero");
    // SAFETY: NVRTC's functions as nvrtc.h declares them; every text is as long as it said.
    unsafe {
        let library = Library::new(path).map_err(|error| error.to_string())?;
        let create: Symbol<
            unsafe extern "C" fn(
                *mut Program,
                *const c_char,
                *const c_char,
                c_int,
                *const c_void,
                *const c_void,
            ) -> c_int,
        > = library.get(b"nvrtcCreateProgram").map_err(|error| error.to_string())?;
        let compile: Symbol<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int> =
            library.get(b"nvrtcCompileProgram").map_err(|error| error.to_string())?;
        let text = |program, size: &[u8], get: &[u8]| -> Result<String, String> {
            let size: Symbol<Size> = library.get(size).map_err(|error| error.to_string())?;
            let get: Symbol<Text> = library.get(get).map_err(|error| error.to_string())?;
            let mut length = 0;
            size(program, &mut length);
            let mut bytes = vec![0 as c_char; length + 1];
            get(program, bytes.as_mut_ptr());
            Ok(CStr::from_ptr(bytes.as_ptr()).to_string_lossy().into_owned())
        };
        let mut program = ptr::null_mut();
        create(&mut program, code.as_ptr(), c"kernel.cu".as_ptr(), 0, ptr::null(), ptr::null());
        let pointers = options.each_ref().map(|option| option.as_ptr());
        match compile(program, pointers.len() as c_int, pointers.as_ptr()) {
            0 => text(program, b"nvrtcGetPTXSize", b"nvrtcGetPTX"),
            _ => Err(text(program, b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog")?),
        }
    }
}

#[test]
fn spirv_is_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kernel.spv");
    for problem in problems() {
        let Some(module) = compile("spirv", &problem, Conversion::Integer) else { return };
        fs::write(&path, &module.binary).expect("written");
        let mut command = Command::new("spirv-val");
        let output = command.args(["--target-env", "vulkan1.3"]).arg(&path).output();
        let Ok(output) = output else {
            println!("left out: no spirv-val (Debian: apt-get install spirv-tools)");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{problem:?}: {said}");
    }
}

/// Every language, for a third of the modes each.
#[test]
fn every_target_has_code() {
    for target in Target::all().filter(|target| target.arch() != "gfx950") {
        for problem in problems().iter().step_by(3) {
            let module = compile(&target.to_string(), problem, Conversion::Native);
            assert!(module.is_some_and(|module| module.text.len() > 1000), "{target}");
        }
    }
}

/// What the document says of AMD's code is what is generated; `cargo xtask portability` writes it anew.
#[test]
fn the_table_of_the_document_is_as_generated() {
    let problem = problem(HashMap::new()).expect("the base operator");
    let table = portability::table(&(problem, PaddingHeads::Written), Conversion::Native);
    let document = fs::read_to_string(file("docs/portability.md")).expect("the document");
    for line in table.lines().filter(|line| line.contains("amdgcn")) {
        assert!(document.contains(line), "not in docs/portability.md: {line}");
    }
}

/// CubeCL does not know how wide this architecture's planes are.
#[test]
fn an_architecture_that_is_not_known_is_refused_with_the_reason() {
    let Ok(target) = Target::of("amdgcn:gfx950") else { return };
    let kernel = (spec(1).validate().expect("valid"), PaddingHeads::Written);
    let definition = target.define(&kernel, &target.strategy(Conversion::Native));
    let error = target.compile(definition).expect_err("CubeCL 0.11 does not know gfx950");
    assert!(error.to_string().contains("no known wavefront width"), "{error}");
}
