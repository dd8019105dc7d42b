//! An executor of the C++ that is generated for HIP and CUDA: compiled for the processor, with a header that
//! stands in for the GPU's.

use crate::{Buffer, Executable};
use libloading::{Library as Loaded, Symbol};
use mla_prologue_codegen::Module;
use mla_prologue_kernel::Dispatch;
use mla_prologue_operator::Access;
use std::{
    env,
    ffi::{c_int, c_void},
    fs,
    process::Command,
};
use tempfile::TempDir;

/// A kernel, compiled.
pub struct Library {
    loaded: Loaded,
    /// Lanes of a wave.
    width: u32,
    /// Bytes of a cube's memory.
    shared: usize,
    /// Holds the file that is loaded.
    _folder: TempDir,
}

/// What the generated code includes; `shim.hpp` has all of it.
const HEADERS: [&str; 4] = ["hip/hip_bf16.h", "hip/hip_fp16.h", "cuda_bf16.h", "cuda_fp16.h"];

/// Bytes around a buffer that must stay as they are.
const GUARD: usize = 1 << 16;
/// What they hold.
const GUARDED: u8 = 0xA5;

type Run = unsafe extern "C" fn(*const *mut c_void, u32, u32, u32, u32, usize) -> c_int;

impl Library {
    /// Compiles generated C++ by the compiler that `CXX` names, or `c++`, to run in waves of that many lanes.
    /// Nothing is fused that is not written so.
    ///
    /// # Errors
    /// A compiler that is missing, or what it says.
    pub fn compile(module: &Module, width: u32) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
            fs::write(path, text)
        };
        let entry = format!(
            "\nextern \"C\" __attribute__((visibility(\"default\"))) \\
             int run(void *const *arguments, unsigned cubes, unsigned x, unsigned y, unsigned width, size_t shared) {{\n    \
             return shim::launch({}, arguments, cubes, x, y, width, shared);\n}}\n",
            module.entrypoint
        );
        let text = format!("#include \"shim.hpp\"\n{}{entry}", of_the_cube(&module.text));
        HEADERS
            .iter()
            .try_for_each(|name| write(name, ""))
            .and_then(|()| write("shim.hpp", include_str!("shim.hpp")))
            .and_then(|()| write("kernel.cpp", &text))
            .map_err(|error| error.to_string())?;
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
        let output = Command::new(&compiler)
            .current_dir(folder.path())
            .args(["-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-I."])
            .args(["-ffp-contract=off", "-fno-strict-aliasing", "kernel.cpp", "-o", "kernel.so"])
            .output()
            .map_err(|error| format!("{compiler}: {error}; set CXX to a C++ compiler"))?;
        if !output.status.success() {
            return Err(format!("{compiler}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        // SAFETY: the library was made above, and nothing runs when it is loaded.
        let loaded = unsafe { Loaded::new(folder.path().join("kernel.so")) };
        let loaded = loaded.map_err(|error| error.to_string())?;
        Ok(Self { loaded, width, shared: module.shared, _folder: folder })
    }
}

impl Executable for Library {
    /// Writes outside of a buffer, and to one that is only read, are found when the launch is over.
    fn run(&mut self, dispatch: &Dispatch, buffers: &mut [Buffer]) -> Result<(), String> {
        let mut guarded: Vec<Guarded> = buffers.iter().cloned().map(Guarded::new).collect();
        let mut info = dispatch.info.clone();
        let arguments = guarded.iter_mut().map(Guarded::start).chain([info.as_mut_ptr()]);
        let arguments: Vec<*mut c_void> = arguments.map(|start| start.cast()).collect();
        let [x, y] = dispatch.cube;
        // SAFETY: the function is the one that `compile` added; the buffers are as the kernel wants them, and it
        // stays within them or, where it has a fault, so near that the guards take it.
        let wrong = unsafe {
            let run: Symbol<Run> = self.loaded.get(b"run").map_err(|error| error.to_string())?;
            run(arguments.as_ptr(), dispatch.cubes, x, y, self.width, self.shared)
        };
        match wrong {
            0 => {}
            1 => return Err("not every unit of a cube is at the same barrier".into()),
            _ => return Err("writes outside of shared memory".into()),
        }
        guarded.iter().try_for_each(Guarded::check)?;
        for (buffer, after) in buffers.iter_mut().zip(&guarded) {
            buffer.bytes.copy_from_slice(after.contents());
        }
        Ok(())
    }
}

/// The declaration of a cube's memory, as a pointer to the shim's.
fn of_the_cube(text: &str) -> String {
    let start = "extern __shared__ __align__(";
    let Some((before, rest)) = text.split_once(start) else { return text.into() };
    let declared = rest.split_once(") char ").and_then(|(_, rest)| rest.split_once("[];"));
    let Some((name, after)) = declared else { return text.into() };
    format!("{before}char *{name} = shim::shared;{after}")
}

/// A buffer between guards.
struct Guarded {
    buffer: Buffer,
    bytes: Vec<u8>,
    /// Where it begins, aligned as a device would.
    start: usize,
}

impl Guarded {
    fn new(buffer: Buffer) -> Self {
        let mut bytes = vec![GUARDED; buffer.bytes.len() + 2 * GUARD];
        let start = GUARD / 2 + bytes[GUARD / 2..].as_ptr().align_offset(256);
        bytes[start..start + buffer.bytes.len()].copy_from_slice(&buffer.bytes);
        Self { buffer, bytes, start }
    }

    fn start(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    fn contents(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.buffer.bytes.len()]
    }

    fn check(&self) -> Result<(), String> {
        let Buffer { name, bytes, access } = &self.buffer;
        let (before, rest) = self.bytes.split_at(self.start);
        let after = &rest[bytes.len()..];
        if before.iter().chain(after).any(|&byte| byte != GUARDED) {
            return Err(format!("writes outside of {name}"));
        }
        match *access == Access::Read && self.contents() != bytes {
            true => Err(format!("writes {name}")),
            false => Ok(()),
        }
    }
}
