//! The code that is generated for a target, without a device of that kind.

use crate::{
    Conversion, Lanes, Pads, Strategy,
    blueprint::Blueprint,
    kernel::{ScalarsCompilationArg, prologue},
    launch::cube_dim,
    strategy::PLANE_ROWS,
};
use cubecl::{
    ir::{
        AddressType, DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties,
        TargetProperties, features::Features,
    },
    prelude::{BufferCompilationArg, CubeKernel, ExecutionMode, KernelDefinition, KernelSettings},
};
use mla_prologue_operator::{Invalid, Problem, Result};
use std::sync::Arc;

/// A target: its name, the units of a plane, and what compiles for its architecture.
struct Target {
    name: &'static str,
    plane_size: u32,
    compile: fn(KernelDefinition, &str, u32) -> Result<String, String>,
}

/// AMD's planes are twice as wide on CDNA (gfx9).
const TARGETS: &[Target] = &[
    #[cfg(feature = "cuda")]
    Target { name: "cuda-cpp:sm_90", plane_size: 32, compile: compilers::cuda_cpp },
    #[cfg(feature = "cuda")]
    Target { name: "ptx:sm_90", plane_size: 32, compile: compilers::ptx },
    #[cfg(feature = "hip")]
    Target { name: "hip-cpp:gfx942", plane_size: 64, compile: compilers::hip_cpp },
    #[cfg(feature = "hip")]
    Target { name: "hip-cpp:gfx1100", plane_size: 32, compile: compilers::hip_cpp },
    #[cfg(feature = "hip")]
    Target { name: "amdgcn:gfx90a", plane_size: 64, compile: compilers::amdgcn },
    #[cfg(feature = "hip")]
    Target { name: "amdgcn:gfx942", plane_size: 64, compile: compilers::amdgcn },
    #[cfg(feature = "hip")]
    Target { name: "amdgcn:gfx1100", plane_size: 32, compile: compilers::amdgcn },
    #[cfg(feature = "hip")]
    Target { name: "amdgcn:gfx1201", plane_size: 32, compile: compilers::amdgcn },
    #[cfg(any(feature = "cuda", feature = "hip"))]
    Target { name: "msl", plane_size: 32, compile: compilers::msl },
];

/// The targets that this build can generate code for: those of the features `cuda` and `hip`.
pub fn targets() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.name)
}

/// The code that CubeCL generates for a problem on a target: C++, PTX, or, for `amdgcn`, LLVM's
/// intermediate representation (assembly where `CUBECL_DEBUG_PLIRON` is set).
///
/// # Errors
/// A target that is not one of [`targets`], or a problem that cannot be compiled for it.
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
/// for target in source::targets() {
///     assert!(source::generate(target, &spec.validate()?, Conversion::Native)?.len() > 1000);
/// }
/// assert!(source::generate("z80", &spec.validate()?, Conversion::Native).is_err());
/// # Ok::<(), Invalid>(())
/// ```
pub fn generate(target: &str, problem: &Problem, conversion: Conversion) -> Result<String> {
    let Some(known) = TARGETS.iter().find(|known| known.name == target) else {
        let names: Vec<&str> = targets().collect();
        let must = match names.as_slice() {
            [] => "one of a build with the feature cuda or hip; this has none".into(),
            names => format!("one of {}", names.join(", ")),
        };
        return Err(Invalid::new("target", target, must));
    };
    let arch = target.split_once(':').map_or("", |(_, arch)| arch);
    (known.compile)(kernel(known.plane_size, problem, conversion).define(), arch, known.plane_size)
        .map_err(|why| {
            Invalid::new("the problem", why, format_args!("one that compiles for {target}"))
        })
}

/// The kernel for a device with planes of that size.
fn kernel(plane_size: u32, problem: &Problem, conversion: Conversion) -> prologue::Prologue {
    let (lanes, rows_per_cube) = (Lanes::Plane, PLANE_ROWS);
    let (bf16, f16) = (conversion, conversion);
    let strategy = Strategy { lanes, bf16, f16, rows_per_cube, few_rows: 0 };
    let blueprint = Blueprint::new(problem, &strategy, Pads::Written);
    let settings = KernelSettings::new(
        cube_dim(blueprint.lanes, blueprint.rows_per_cube).into(),
        ExecutionMode::Unchecked,
        AddressType::U32,
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

/// CubeCL's compilers.
#[cfg(any(feature = "cuda", feature = "hip"))]
mod compilers {
    use super::KernelDefinition;
    use cubecl::Compiler;
    use cubecl_cpp::{
        shared::{CompilationOptions, CppCompiler, CppSupportedFeatures},
        target::CppTarget,
    };
    use cubecl_llvm::{LlvmTarget, PlironArtifact, PlironCompiler, PlironOptions};
    use std::fmt::Display;

    #[cfg(feature = "cuda")]
    pub fn cuda_cpp(
        definition: KernelDefinition,
        _arch: &str,
        plane_size: u32,
    ) -> Result<String, String> {
        cpp::<cubecl_cpp::target::Cuda>(definition, plane_size, true)
    }

    #[cfg(feature = "hip")]
    pub fn hip_cpp(
        definition: KernelDefinition,
        _arch: &str,
        plane_size: u32,
    ) -> Result<String, String> {
        cpp::<cubecl_cpp::target::Hip>(definition, plane_size, false)
    }

    pub fn msl(
        definition: KernelDefinition,
        _arch: &str,
        plane_size: u32,
    ) -> Result<String, String> {
        cpp::<cubecl_cpp::target::Metal>(definition, plane_size, false)
    }

    #[cfg(feature = "cuda")]
    pub fn ptx(
        definition: KernelDefinition,
        _arch: &str,
        _plane_size: u32,
    ) -> Result<String, String> {
        let sm_arch = Some(cubecl::ir::nvidia::SmArch::new(90, true));
        let options = PlironOptions { sm_arch, grid_constants: true, ..Default::default() };
        match llvm(LlvmTarget::Nvptx, definition, &options)? {
            PlironArtifact::NvptxCode(module) => {
                let bytes = module.ptx.iter().map(|&byte| byte as u8);
                let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            other => Ok(other.to_string()),
        }
    }

    #[cfg(feature = "hip")]
    pub fn amdgcn(
        definition: KernelDefinition,
        arch: &str,
        _plane_size: u32,
    ) -> Result<String, String> {
        let arch = Some(cubecl::ir::amd::GfxArch::parse(arch));
        match llvm(LlvmTarget::AmdGpu, definition, &PlironOptions { arch, ..Default::default() })? {
            PlironArtifact::AmdGpuCode(module) => Ok(module.asm.unwrap_or(module.ir)),
            other => Ok(other.to_string()),
        }
    }

    fn cpp<T: CppTarget>(
        definition: KernelDefinition,
        plane_size: u32,
        grid_constants: bool,
    ) -> Result<String, String>
    where
        CppCompiler<T>: Compiler<CompilationOptions = CompilationOptions, Representation: Display>,
    {
        let supports_features =
            CppSupportedFeatures { grid_constants, fast_math: true, ..Default::default() };
        let options = CompilationOptions {
            warp_size: plane_size as usize,
            supports_features,
            amd_wmma: None,
        };
        let kernel = CppCompiler::<T>::default().compile(definition, &options);
        kernel.map(|kernel| kernel.to_string()).map_err(|error| error.to_string())
    }

    fn llvm(
        target: LlvmTarget,
        definition: KernelDefinition,
        options: &PlironOptions,
    ) -> Result<PlironArtifact, String> {
        let mut compiler = PlironCompiler { target };
        compiler.compile(definition, options).map_err(|error| error.to_string())
    }
}
