//! The code that is generated for a target, without a device of that kind.
//!
//! A [`Target`] makes the [definition](Target::define) of the kernel that a problem needs there and
//! [compiles](Target::compile) it; [`Dispatch`] is how a driver would be told to start it.

mod compilers;
mod dispatch;
#[cfg(feature = "hip")]
mod object;

pub use dispatch::Dispatch;
#[cfg(feature = "hip")]
pub use object::{CodeObject, Descriptor, Instruction, UserRegisters};

use crate::{
    Conversion, Lanes, Pads, Runtime, Strategy,
    blueprint::Blueprint,
    kernel::{ScalarsCompilationArg, prologue},
    launch::{address_type, cube_dim},
    strategy::PLANE_ROWS,
};
use cubecl::{
    ir::{
        DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties,
        TargetProperties, features::Features,
    },
    prelude::{BufferCompilationArg, CubeKernel, ExecutionMode, KernelDefinition, KernelSettings},
};
use mla_prologue_operator::{Half, Invalid, Problem, Result};
use std::sync::Arc;

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

    /// What runs it. Metal, which nothing here does, is taken to promise as little as Vulkan.
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
}

impl Target {
    /// The targets that this build can generate code for.
    pub fn all() -> impl Iterator<Item = Self> {
        TARGETS.into_iter().filter(|target| target.language.is_linked())
    }

    /// The target of that name.
    ///
    /// # Errors
    /// A name that is none of this build's.
    pub fn of(name: &str) -> Result<Self> {
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
        let [bf16, f16] = [Half::Bf16, Half::F16].map(|half| {
            let native = conversion == Conversion::Native;
            Conversion::native_where(native && self.language.runtime().rounds_conversions(half))
        });
        Strategy { lanes: Lanes::Plane, bf16, f16, rows_per_cube: PLANE_ROWS, few_rows: 0 }
    }

    /// CubeCL's definition of the kernel for a problem.
    pub fn define(self, problem: &Problem, strategy: &Strategy, pads: Pads) -> KernelDefinition {
        kernel(self.plane_size, problem, Blueprint::new(problem, strategy, pads)).define()
    }

    /// Compiles a definition.
    ///
    /// # Errors
    /// An architecture that CubeCL does not know; or a compiler or linker that fails.
    pub fn compile(self, definition: KernelDefinition) -> crate::Result<Module> {
        compilers::compile(self, definition).map_err(|why| {
            // CubeCL's own words are around the reason.
            let cause = why.split_once("Caused by:").map_or(&*why, |(_, cause)| cause);
            let reason = cause.trim().lines().next().unwrap_or("");
            if reason.contains("no known wavefront width") {
                let must = "of an architecture that CubeCL knows";
                return Invalid::new("target", format_args!("{self} ({reason})"), must).into();
            }
            crate::Error::Compile { target: self.to_string(), reason: reason.into() }
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
/// # use mla_prologue_operator::*;
/// # let spec = Spec {
/// #     tokens: 1,
/// #     half: Half::Bf16,
/// #     eps: 1e-6,
/// #     positions: Index::I64,
/// #     table: RotaryTable { rows: 1, number: RotaryType::F32, layout: RotaryLayout::Halves },
/// #     query: Some(Query::new(1, 2)),
/// #     key: None,
/// # };
/// use mla_prologue_kernel::{Conversion, source};
/// for target in source::Target::all().filter(|target| target.arch() != "gfx950") {
///     let code = source::generate(&target.to_string(), &spec.validate()?, Conversion::Native)?;
///     assert!(code.len() > 1000);
/// }
/// assert!(source::generate("z80", &spec.validate()?, Conversion::Native).is_err());
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn generate(target: &str, problem: &Problem, conversion: Conversion) -> crate::Result<String> {
    let target = Target::of(target)?;
    let definition = target.define(problem, &target.strategy(conversion), Pads::Written);
    target.compile(definition).map(|module| module.text)
}

/// The kernel for a device with planes of that size.
fn kernel(plane_size: u32, problem: &Problem, blueprint: Blueprint) -> prologue::Prologue {
    let settings = KernelSettings::new(
        cube_dim(blueprint.lanes, blueprint.rows_per_cube).into(),
        ExecutionMode::Unchecked,
        address_type(problem.sizes()),
    );
    let buffer = || BufferCompilationArg { inplace: None };
    prologue::Prologue::new(
        settings,
        properties(plane_size),
        Arc::new(TargetProperties::default()),
        buffer(),
        buffer(),
        buffer(),
        buffer(),
        buffer(),
        buffer(),
        buffer(),
        buffer(),
        scalars(),
        blueprint.out_words(),
        blueprint,
    )
}

fn scalars() -> ScalarsCompilationArg {
    ScalarsCompilationArg {
        tokens: (),
        slots: (),
        table_rows: (),
        eps: (),
        heads: (),
        q_token_stride: (),
        q_head_stride: (),
        q_scale_inverse: (),
        kv_row_stride: (),
        kv_scale_inverse: (),
        block_size: (),
        block_stride: (),
        cache_slots: (),
    }
}

/// The properties of a device that is not there.
fn properties(plane_size: u32) -> Arc<DeviceProperties> {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: plane_size,
        plane_size_max: plane_size,
        max_bindings: 32,
        max_shared_memory_size: 65536,
        max_cube_count: (i32::MAX as u32, u32::from(u16::MAX), u32::from(u16::MAX)),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 16,
        cube_mma_reserved_shared_memory: 0,
    };
    let identity =
        DeviceIdentity { name: "none".into(), fingerprint: "none".into(), physical: None };
    Arc::new(DeviceProperties::new(
        Features::default(),
        MemoryDeviceProperties::new(u64::MAX, 256),
        hardware,
        cubecl::profile::TimingMethod::Device,
        identity,
    ))
}
