//! Runs the code that is generated for GPUs on the processor, so that it can be compared with the
//! definition where there is no such GPU.
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
use memory::{Access, Buffer};

use mla_prologue_kernel::source::{Dispatch, Module, Target};
use mla_prologue_operator::{Inputs, Outputs};

/// A kernel that an emulator can run.
pub trait Kernel {
    /// Runs the call of a problem.
    ///
    /// # Errors
    /// An access that the kernel must not make, or code that is not understood.
    fn run(&mut self, dispatch: &Dispatch, inputs: &Inputs, outputs: Outputs)
    -> Result<(), String>;

    /// From now on, the hardware's reciprocals and square roots are such, where it has any.
    fn set_estimate(&mut self, _estimate: Estimate) {}

    /// How many instructions there are, and which of them ran, where that is known.
    fn coverage(&self) -> Vec<bool> {
        Vec::new()
    }
}

/// How reciprocals and square roots come out, which the hardware promises to one unit in the last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// The nearest number.
    #[default]
    Nearest,
    /// The next number above, where the result is none.
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
/// Code that no emulator runs, or that has something in it that is not known.
pub fn load(target: Target, module: &Module) -> Result<Box<dyn Kernel>, String> {
    match target.language() {
        #[cfg(feature = "hip")]
        mla_prologue_kernel::source::Language::Amdgcn => {
            Ok(Box::new(amdgcn::Program::load(&module.binary, target.arch())?))
        }
        #[cfg(any(feature = "cuda", feature = "hip"))]
        mla_prologue_kernel::source::Language::HipCpp
        | mla_prologue_kernel::source::Language::CudaCpp => {
            Ok(Box::new(cpp::Library::compile(module, target.plane_size)?))
        }
        other => Err(format!("nothing here runs {} in {other:?}", module.entrypoint)),
    }
}

/// The buffers of a call, in the order of the kernel's arguments. Those that the problem has no use for are
/// empty.
#[cfg(any(feature = "cuda", feature = "hip"))]
fn buffers(inputs: &Inputs, outputs: &Outputs) -> Vec<Buffer> {
    let read = |name, bytes: &[u8]| Buffer { name, bytes: bytes.to_vec(), access: Access::Read };
    let write = |name, bytes: &[u8], access| Buffer { name, bytes: bytes.to_vec(), access };
    vec![
        read("q", inputs.q),
        read("kv", inputs.kv),
        read("kv_norm_weight", inputs.kv_norm_weight),
        read("positions", inputs.positions),
        read("slot_mapping", inputs.slot_mapping),
        read("cos_sin_cache", inputs.cos_sin_cache),
        write("q_out", outputs.q_out, Access::Write),
        write("kv_cache", outputs.kv_cache, Access::ReadWrite),
    ]
}
