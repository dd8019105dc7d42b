//! The code that CubeCL generates for a target, without a device of that kind.
//!
//! A [`Target`] makes the [definition](Target::define) of any operator's [`Kernel`] and
//! [compiles](Target::compile) it; `CodeObject` reads AMD's machine code; [`portability`] is a table of what is characteristic of
//! the code for each target.

mod compilers;
#[cfg(feature = "hip")]
mod object;
pub mod portability;

#[cfg(feature = "hip")]
pub use object::{CodeObject, Descriptor, Instruction, UserRegisters};

use cubecl::prelude::KernelDefinition;
use mla_prologue_kernel::{Conversion, Kernel, Runtime, Strategy};
use mla_prologue_operator::{Float16, Invalid};

/// What the kernel can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    language: Language,
    /// The architecture; empty where the language has none.
    arch: &'static str,
    /// Units of a plane.
    pub plane_size: u32,
}

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// C++ for NVRTC.
    CudaCpp,
    /// NVIDIA's assembly, by LLVM.
    Ptx,
    /// C++ for HIP's run-time compiler.
    HipCpp,
    /// AMD's machine code, by LLVM.
    Amdgcn,
    /// Vulkan's binary.
    Spirv,
    /// The shading language of WebGPU.
    Wgsl,
    /// Metal's shading language.
    Msl,
}

impl Language {
    const fn name(self) -> &'static str {
        match self {
            Self::CudaCpp => "cuda-cpp",
            Self::Ptx => "ptx",
            Self::HipCpp => "hip-cpp",
            Self::Amdgcn => "amdgcn",
            Self::Spirv => "spirv",
            Self::Wgsl => "wgsl",
            Self::Msl => "msl",
        }
    }

    /// What runs it. Metal, which nothing here runs, is taken to promise as little as Vulkan.
    const fn runtime(self) -> Runtime {
        match self {
            Self::CudaCpp | Self::Ptx => Runtime::Cuda,
            Self::HipCpp | Self::Amdgcn => Runtime::Rocm,
            Self::Spirv | Self::Wgsl | Self::Msl => Runtime::Vulkan,
        }
    }

    /// Is its compiler part of this build?
    const fn is_linked(self) -> bool {
        match self {
            Self::CudaCpp | Self::Ptx => cfg!(feature = "cuda"),
            Self::HipCpp | Self::Amdgcn => cfg!(feature = "hip"),
            Self::Spirv | Self::Wgsl => cfg!(feature = "vulkan"),
            Self::Msl => cfg!(any(feature = "cuda", feature = "hip")),
        }
    }
}

const fn target(language: Language, arch: &'static str, plane_size: u32) -> Target {
    Target { language, arch, plane_size }
}

/// AMD's planes are twice as wide on CDNA (gfx9).
const TARGETS: [Target; 13] = [
    target(Language::CudaCpp, "sm_90", 32),
    target(Language::Ptx, "sm_90", 32),
    target(Language::HipCpp, "gfx942", 64),
    target(Language::HipCpp, "gfx1100", 32),
    target(Language::Amdgcn, "gfx90a", 64),
    target(Language::Amdgcn, "gfx942", 64),
    // CubeCL 0.11 does not know its planes; the error says so.
    target(Language::Amdgcn, "gfx950", 64),
    target(Language::Amdgcn, "gfx1100", 32),
    target(Language::Amdgcn, "gfx1151", 32),
    target(Language::Amdgcn, "gfx1201", 32),
    target(Language::Spirv, "", 32),
    target(Language::Wgsl, "", 32),
    target(Language::Msl, "", 32),
];

/// Generated code.
#[derive(Clone, Debug)]
pub struct Module {
    /// The name of its function.
    pub entrypoint: String,
    /// The code, to read. Machine code is disassembled.
    pub text: String,
    /// The code as a driver takes it, where that is no text: AMD's code object, or SPIR-V's words.
    pub binary: Vec<u8>,
    /// Bytes of shared memory that a launch gives each cube.
    pub shared: usize,
}

impl Target {
    /// The targets that this build can generate code for.
    pub fn all() -> impl Iterator<Item = Self> {
        TARGETS.into_iter().filter(|target| target.language.is_linked())
    }

    /// The target of that name.
    ///
    /// # Errors
    /// A name that is unknown, or of a compiler that is not in this build.
    pub fn of(name: &str) -> Result<Self, Invalid> {
        Self::all().find(|known| known.to_string() == name).ok_or_else(|| {
            let names: Vec<String> = Self::all().map(|target| target.to_string()).collect();
            let must = match names.as_slice() {
                [] => "one of a build with the feature cuda, hip or vulkan; this has none".into(),
                names => format!("one of {}", names.join(", ")),
            };
            Invalid::new("target", name, must)
        })
    }

    /// What is generated.
    pub fn language(self) -> Language {
        self.language
    }

    /// The architecture; empty where the language has none.
    pub fn arch(self) -> &'static str {
        self.arch
    }

    /// How the kernel is laid out on such a device. Where its own conversions cannot be relied on, integers
    /// are used in any case.
    pub fn strategy(self, conversion: Conversion) -> Strategy {
        let [bf16, f16] = [Float16::Bf16, Float16::F16].map(|dtype| {
            let native = conversion == Conversion::Native;
            Conversion::native_where(native && self.language.runtime().rounds_conversions(dtype))
        });
        Strategy::planes(bf16, f16)
    }

    /// CubeCL's definition of a kernel.
    pub fn define(self, kernel: &dyn Kernel, strategy: &Strategy) -> KernelDefinition {
        kernel.define(strategy, self.plane_size)
    }

    /// Compiles a definition.
    ///
    /// # Errors
    /// An architecture that CubeCL does not know; or a compiler or linker that fails.
    pub fn compile(self, definition: KernelDefinition) -> Result<Module> {
        compilers::compile(self, definition).map_err(|why| {
            // CubeCL's own words are around the reason.
            let cause = why.split_once("Caused by:").map_or(&*why, |(_, cause)| cause);
            let reason = cause.trim().lines().next().unwrap_or("");
            if reason.contains("no known wavefront width") {
                let must = "of an architecture that CubeCL knows";
                return Invalid::new("target", format_args!("{self} ({reason})"), must).into();
            }
            Error::Compile { target: self.to_string(), reason: reason.into() }
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let separator = if self.arch.is_empty() { "" } else { ":" };
        f.pad(&format!("{}{separator}{}", self.language.name(), self.arch))
    }
}

/// The code that CubeCL generates for a problem on a target, to read.
///
/// # Errors
/// A target that is not one of [`Target::all`], and those of [`Target::compile`].
///
/// ```
/// use mla_prologue_codegen::{Target, generate};
/// use mla_prologue_kernel::{Conversion, prologue::PaddingHeads};
/// use mla_prologue_operator::prologue::{Query, RotaryTable, Spec};
/// let problem = Spec::new(1, RotaryTable::new(1)).query(Query::new(1, 2)).validate()?;
/// let kernel = (problem, PaddingHeads::Written);
/// for target in Target::all().filter(|target| target.arch() != "gfx950") {
///     assert!(generate(&target.to_string(), &kernel, Conversion::Native)?.len() > 1000);
/// }
/// assert!(generate("z80", &kernel, Conversion::Native).is_err());
/// # Ok::<(), mla_prologue_codegen::Error>(())
/// ```
pub fn generate(target: &str, kernel: &dyn Kernel, conversion: Conversion) -> Result<String> {
    let target = Target::of(target)?;
    let strategy = target.strategy(conversion);
    target.compile(target.define(kernel, &strategy)).map(|module| module.text)
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid argument.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The code for a target could not be generated.
    #[error("no code for {target}: {reason}")]
    Compile {
        /// The target.
        target: String,
        /// What CubeCL said.
        reason: String,
    },
}

/// The result of whatever generates code.
pub type Result<T, E = Error> = std::result::Result<T, E>;
