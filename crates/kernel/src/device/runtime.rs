use mla_prologue_operator::Float16;
use std::fmt;

/// A way to reach devices. ROCm is the platform; HIP is its interface, and the name of its cargo feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs, through HIP.
    Rocm,
    /// Whatever has a Vulkan driver.
    Vulkan,
    /// The processor.
    Cpu,
}

impl Runtime {
    /// Every runtime, in the order in which `auto` tries them.
    pub const ALL: [Self; 4] = [Self::Cuda, Self::Rocm, Self::Vulkan, Self::Cpu];

    /// The name that device names begin with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::Vulkan => "vulkan",
            Self::Cpu => "cpu",
        }
    }

    /// The name of its device of that number; there is one CPU.
    pub(super) fn device_name(self, index: usize) -> String {
        if self == Self::Cpu { self.to_string() } else { format!("{self}:{index}") }
    }

    /// Is it compiled into this program?
    pub const fn is_linked(self) -> bool {
        match self {
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Rocm => cfg!(feature = "hip"),
            Self::Vulkan => cfg!(feature = "vulkan"),
            Self::Cpu => cfg!(feature = "cpu"),
        }
    }

    /// The feature that compiles it in.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::Rocm => "hip",
            other => other.name(),
        }
    }

    /// Does it round division and square root as IEEE says? Vulkan only promises to come close, so
    /// results that depend on them may differ there in the last place.
    pub const fn is_exact(self) -> bool {
        !matches!(self, Self::Vulkan)
    }

    /// Can its own conversions to this type be relied on? Vulkan's may round either way, and on a CPU
    /// without such instructions the generated code does not link. For AMD, LLVM 23.1.0 makes one
    /// instruction of a product and its conversion to f16, in which -0 becomes +0
    /// (<https://github.com/llvm/llvm-project/pull/214544>).
    pub const fn rounds_conversions(self, dtype: Float16) -> bool {
        match self {
            Self::Cuda => true,
            Self::Rocm => matches!(dtype, Float16::Bf16),
            Self::Vulkan | Self::Cpu => false,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
