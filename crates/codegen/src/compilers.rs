//! CubeCL's compilers.

use crate::{Module, Target};
use cubecl::prelude::KernelDefinition;

/// Compiles a definition for a target.
pub fn compile(target: Target, definition: KernelDefinition) -> Result<Module, String> {
    match target.language {
        #[cfg(feature = "cuda")]
        crate::Language::CudaCpp => {
            cpp::compile::<cubecl_cpp::target::Cuda>(target, definition, true)
        }
        #[cfg(feature = "hip")]
        crate::Language::HipCpp => {
            cpp::compile::<cubecl_cpp::target::Hip>(target, definition, false)
        }
        #[cfg(any(feature = "cuda", feature = "hip"))]
        crate::Language::Msl => {
            cpp::compile::<cubecl_cpp::target::Metal>(target, definition, false)
        }
        #[cfg(feature = "cuda")]
        crate::Language::Ptx => llvm::ptx(definition),
        #[cfg(feature = "hip")]
        crate::Language::Amdgcn => llvm::amdgcn(target.arch, definition),
        #[cfg(feature = "vulkan")]
        crate::Language::Spirv => wgpu::spirv(definition),
        #[cfg(feature = "vulkan")]
        crate::Language::Wgsl => wgpu::wgsl(definition),
        #[allow(unreachable_patterns, reason = "with all features every language has its compiler")]
        other => {
            let name = definition.settings.kernel_name;
            Err(format!("this build has no {}, which {name} needs", other.name()))
        }
    }
}

#[cfg(any(feature = "cuda", feature = "hip"))]
mod cpp {
    use super::{KernelDefinition, Module, Target};
    use cubecl::Compiler;
    use cubecl_cpp::{
        shared::{CompilationOptions, ComputeKernel, CppCompiler, CppSupportedFeatures},
        target::CppTarget,
    };

    pub fn compile<T: CppTarget>(
        target: Target,
        definition: KernelDefinition,
        grid_constants: bool,
    ) -> Result<Module, String>
    where
        CppCompiler<T>:
            Compiler<CompilationOptions = CompilationOptions, Representation = ComputeKernel>,
    {
        let supports_features =
            CppSupportedFeatures { grid_constants, fast_math: true, ..Default::default() };
        let options = CompilationOptions {
            warp_size: target.plane_size as usize,
            supports_features,
            amd_wmma: None,
        };
        let entrypoint = definition.settings.kernel_name.clone();
        let kernel = CppCompiler::<T>::default().compile(definition, &options);
        let kernel = kernel.map_err(|error| error.to_string())?;
        let (text, shared) = (kernel.to_string(), kernel.shared_memory_size);
        Ok(Module { entrypoint, text, binary: Vec::new(), shared })
    }
}

#[cfg(any(feature = "cuda", feature = "hip"))]
mod llvm {
    use super::{KernelDefinition, Module};
    use cubecl::Compiler;
    use cubecl_llvm::{LlvmTarget, PlironArtifact, PlironCompiler, PlironOptions};

    #[cfg(feature = "cuda")]
    pub fn ptx(definition: KernelDefinition) -> Result<Module, String> {
        let sm_arch = Some(cubecl::ir::nvidia::SmArch::new(90, true));
        let options = PlironOptions { sm_arch, grid_constants: true, ..Default::default() };
        match artifact(LlvmTarget::Nvptx, definition, &options)? {
            PlironArtifact::NvptxCode(module) => {
                let bytes = module.ptx.iter().map(|&byte| byte as u8);
                let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let shared = module.shared_memory_size;
                Ok(Module { entrypoint: module.entrypoint, text, binary: Vec::new(), shared })
            }
            _ => Err("no PTX".into()),
        }
    }

    #[cfg(feature = "hip")]
    pub fn amdgcn(arch: &str, definition: KernelDefinition) -> Result<Module, String> {
        let arch = cubecl::ir::amd::GfxArch::parse(arch);
        let options = PlironOptions { arch: Some(arch.clone()), ..Default::default() };
        match artifact(LlvmTarget::AmdGpu, definition, &options)? {
            PlironArtifact::AmdGpuCode(module) => {
                let binary = module.code_object.to_vec();
                let text = crate::CodeObject::parse(&binary, arch.name())?.to_string();
                let shared = module.shared_memory_size;
                Ok(Module { entrypoint: module.entrypoint, text, binary, shared })
            }
            _ => Err("no code object".into()),
        }
    }

    fn artifact(
        target: LlvmTarget,
        definition: KernelDefinition,
        options: &PlironOptions,
    ) -> Result<PlironArtifact, String> {
        let mut compiler = PlironCompiler { target };
        compiler.compile(definition, options).map_err(|error| error.to_string())
    }
}

#[cfg(feature = "vulkan")]
mod wgpu {
    use super::{KernelDefinition, Module};
    use cubecl::Compiler;
    use cubecl::{VulkanCompilationOptions, WgpuCompilationOptions};
    use cubecl_wgpu::{SpirvCompiler, WgslCompiler};

    pub fn spirv(definition: KernelDefinition) -> Result<Module, String> {
        let vulkan = VulkanCompilationOptions {
            max_spirv_version: (1, 6),
            max_vector_size: 4,
            push_constant_size: 128,
            ..Default::default()
        };
        let options = WgpuCompilationOptions { supports_u64: true, vulkan, ..Default::default() };
        let entrypoint = definition.settings.kernel_name.clone();
        let kernel = SpirvCompiler.compile(definition, &options);
        let kernel = kernel.map_err(|error| error.to_string())?;
        let binary = kernel.assembled_module.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Module { entrypoint, text: kernel.to_string(), binary, shared: 0 })
    }

    pub fn wgsl(definition: KernelDefinition) -> Result<Module, String> {
        let entrypoint = definition.settings.kernel_name.clone();
        let kernel = WgslCompiler.compile(definition, &WgpuCompilationOptions::default());
        let kernel = kernel.map_err(|error| error.to_string())?;
        let (text, shared) = (kernel.to_string(), kernel.shared_memory_size);
        Ok(Module { entrypoint, text, binary: Vec::new(), shared })
    }
}
