//! Runs the code that is generated for GPUs on the processor, so that it can be compared with the
//! reference where there is no such GPU. It takes the kernel of any operator, on named buffers.
//!
//! - `amdgcn`: AMD's machine code, for CDNA (waves of 64) and RDNA (waves of 32).
//! - `cpp`: the C++ for HIP and CUDA, compiled for the processor.
//! - [`mod@driver`]: a stand-in for AMD's driver, on which CubeCL's own HIP runtime runs.

#[cfg(feature = "hip")]
mod amdgcn;
#[cfg(any(feature = "cuda", feature = "hip"))]
mod cpp;
#[cfg(feature = "hip")]
pub mod driver;
#[cfg(any(feature = "cuda", feature = "hip"))]
mod memory;

#[cfg(any(feature = "cuda", feature = "hip"))]
use mla_prologue_codegen::Language;
use mla_prologue_codegen::{Module, Target};
use mla_prologue_kernel::Dispatch;
use mla_prologue_operator::Access;

/// A compiled kernel that an emulator can run.
pub trait Executable {
    /// Runs a launch on buffers, in the order of the kernel's arguments; those that are written are updated.
    ///
    /// # Errors
    /// An access that the kernel must not make, or code that is not understood.
    fn run(&mut self, dispatch: &Dispatch, buffers: &mut [Buffer]) -> Result<(), String>;

    /// From now on, the hardware's reciprocals and square roots are rounded this way, where it has any.
    fn set_estimate(&mut self, _estimate: Estimate) {}

    /// How many instructions there are, and which of them ran, where that is known.
    fn coverage(&self) -> Vec<bool> {
        Vec::new()
    }
}

/// A buffer of a kernel.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The tensor's name, for errors.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// What the kernel may do with it; no byte is written twice.
    pub access: Access,
}

/// The buffers of a call: an operator's tensors with their names and what it does with them.
pub fn buffers<'a>(
    tensors: impl Iterator<Item = (&'static str, (&'a Vec<u8>, Access))>,
) -> Vec<Buffer> {
    let buffer =
        |(name, (bytes, access)): (_, (&Vec<u8>, _))| Buffer { name, bytes: bytes.clone(), access };
    tensors.map(buffer).collect()
}

/// How reciprocals and square roots come out, which the hardware promises to one unit in the last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// The nearest number.
    #[default]
    Nearest,
    /// The next number above, where the result is not a number of its own.
    Above,
    /// The next number below.
    Below,
}

impl Estimate {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Nearest, Self::Above, Self::Below];

    /// Such a number for a result that is right to 53 bits.
    #[cfg(feature = "hip")]
    fn round(self, result: f64) -> f32 {
        let nearest = result as f32;
        match self {
            Self::Above if f64::from(nearest) < result => nearest.next_up(),
            Self::Below if f64::from(nearest) > result => nearest.next_down(),
            _ => nearest,
        }
    }
}

/// Loads what was compiled for a target.
///
/// # Errors
/// Code that no emulator runs, or with an instruction that is unknown.
pub fn load(target: Target, module: &Module) -> Result<Box<dyn Executable>, String> {
    match target.language() {
        #[cfg(feature = "hip")]
        Language::Amdgcn => {
            Ok(Box::new(amdgcn::Program::load(&module.binary, module.shared, target.arch())?))
        }
        #[cfg(any(feature = "cuda", feature = "hip"))]
        Language::HipCpp | Language::CudaCpp => {
            Ok(Box::new(cpp::Library::compile(module, target.plane_size)?))
        }
        other => Err(format!("no emulator runs {} in {other:?}", module.entrypoint)),
    }
}
