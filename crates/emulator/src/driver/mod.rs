//! A stand-in for AMD's driver, so that CubeCL's own HIP runtime can be run: it compiles, uploads and launches as on
//! a GPU, and what it launches is emulated.
//!
//! The library is found by CubeCL where `ROCM_PATH` says, which must be set before the process starts.

use crate::{
    amdgcn::{Grid, Program},
    memory::Memory,
};
use libloading::{Library, Symbol};
use std::{
    collections::HashMap,
    env,
    ffi::{c_int, c_void},
    fs,
    path::Path,
    process::Command,
    slice,
    sync::{Mutex, OnceLock},
};

/// Compiles the stand-in into a folder, under the names of AMD's libraries.
///
/// # Errors
/// A folder that cannot be written, or a C++ compiler that is missing or fails.
pub fn compile(folder: &Path) -> Result<(), String> {
    fs::write(folder.join("driver.cpp"), include_str!("driver.cpp"))
        .map_err(|error| error.to_string())?;
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut compiler = Command::new(compiler);
    compiler.current_dir(folder).args(["-std=c++17", "-O1", "-shared", "-fPIC"]);
    let output = compiler.args(["driver.cpp", "-o", "libamdhip64.so"]).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // CubeCL wants the run-time compiler's library too, and calls nothing of it.
    let copied = fs::copy(folder.join("libamdhip64.so"), folder.join("libhiprtc.so"));
    copied.map(|_| ()).map_err(|error| error.to_string())
}

/// Has the stand-in in the folder that `ROCM_PATH` names emulate what it is to launch, from now on.
///
/// # Errors
/// No such folder, or another library in it.
pub fn attach() -> Result<(), String> {
    static ATTACHED: OnceLock<Result<Library, String>> = OnceLock::new();
    let attached = ATTACHED.get_or_init(|| {
        let folder = env::var("ROCM_PATH").map_err(|error| error.to_string())?;
        // SAFETY: the library is `compile`'s, the same that CubeCL loads, and stays loaded.
        unsafe {
            let library = Library::new(Path::new(&folder).join("libamdhip64.so"))
                .map_err(|error| error.to_string())?;
            let by: Symbol<unsafe extern "C" fn(Launch)> =
                library.get(b"stand_in_launch_by").map_err(|error| error.to_string())?;
            by(launch);
            Ok(library)
        }
    });
    attached.as_ref().map(|_| ()).map_err(Clone::clone)
}

type Launch = unsafe extern "C" fn(
    *const u8,
    usize,
    *const [u32; 3],
    *const [u32; 3],
    u32,
    *const *const u64,
    *const Allocation,
    usize,
) -> c_int;

/// Memory that the stand-in gave out.
#[repr(C)]
struct Allocation {
    address: u64,
    size: u64,
}

/// HIP's `hipErrorLaunchFailure`.
const FAILED: c_int = 719;

/// Emulates a launch; what goes wrong is said on standard error.
///
/// # Safety
/// The pointers are the driver's: a code object, the sizes of the grid and of a block, the bytes that a block shares, as many arguments as the
/// kernel has, and all memory that it may use.
unsafe extern "C" fn launch(
    image: *const u8,
    size: usize,
    grid: *const [u32; 3],
    block: *const [u32; 3],
    shared: u32,
    arguments: *const *const u64,
    allocations: *const Allocation,
    count: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let (image, grid, block, allocations) = unsafe {
        let allocations = slice::from_raw_parts(allocations, count);
        (slice::from_raw_parts(image, size), *grid, *block, allocations)
    };
    let result = program(image, |program| {
        let count = program.descriptor.arguments as usize / size_of::<u64>();
        // SAFETY: every argument of the kernel is an address, of which HIP takes the address.
        let arguments: Vec<u64> = unsafe {
            slice::from_raw_parts(arguments, count).iter().map(|&argument| *argument).collect()
        };
        let grid = Grid { cubes: grid, cube: block };
        let packet = grid.packet();
        let mut memory = Host { allocations, own: [bytes_of(&arguments), &packet] };
        let [arguments, packet] = memory.own.map(|own| own.as_ptr() as u64);
        program.launch(grid, shared as usize, [arguments, packet], &mut memory)
    });
    match result {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("the stand-in for AMD's driver: {why}");
            FAILED
        }
    }
}

/// The program of a code object, which is read once.
fn program(image: &[u8], run: impl FnOnce(&Program) -> Result<(), String>) -> Result<(), String> {
    static PROGRAMS: Mutex<Option<HashMap<Vec<u8>, Program>>> = Mutex::new(None);
    let mut programs = PROGRAMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let programs = programs.get_or_insert_default();
    if !programs.contains_key(image) {
        let arch = env::var("STAND_IN_ARCH").map_err(|error| error.to_string())?;
        let arch = arch.split(':').next().unwrap_or(&arch);
        programs.insert(image.to_vec(), Program::load(image, 0, arch)?);
    }
    run(&programs[image])
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: every byte of a u64 is one.
    unsafe { slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The process's memory, where the driver gave it out, and what the launch itself brings.
struct Host<'a> {
    allocations: &'a [Allocation],
    own: [&'a [u8]; 2],
}

impl Host<'_> {
    /// A pointer to words, which lie within one allocation.
    fn at(&self, address: u64, words: usize) -> Result<*mut c_void, String> {
        let end = address.wrapping_add(4 * words as u64);
        let own = self.own.iter().map(|own| (own.as_ptr() as u64, own.len() as u64));
        let given = self.allocations.iter().map(|given| (given.address, given.size));
        let within = |(start, size): (u64, u64)| start <= address && end <= start + size;
        if address.is_multiple_of(4) && own.chain(given).any(within) {
            Ok(address as *mut c_void)
        } else {
            Err(format!("accesses {words} words at {address:#x}, outside of every allocation"))
        }
    }
}

impl Memory for Host<'_> {
    fn load(&self, address: u64, words: &mut [u32]) -> Result<(), String> {
        let from = self.at(address, words.len())?.cast::<u32>();
        // SAFETY: `at` found the words in memory of this process.
        words.copy_from_slice(unsafe { slice::from_raw_parts(from, words.len()) });
        Ok(())
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), String> {
        let to = self.at(address, words.len())?.cast::<u32>();
        // SAFETY: as in `load`; the driver runs nothing else meanwhile.
        unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Ok(())
    }
}
