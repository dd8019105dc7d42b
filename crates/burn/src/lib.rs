//! DeepSeek-V4's attention operators on [Burn](https://burn.dev)'s tensors: [`Prologue`], [`Attend`], which attends over the
//! cache that it fills, and [`Gather`], which reads the cache back. A [`KvCache`] is the paged cache with its layout. [`round`] and [`widen`] convert to 16 bits and back on every
//! device.
//!
//! One implementation for CubeCL's backend serves CUDA, ROCm, Vulkan and the CPU, with Burn's Fusion and without; the device
//! is chosen at run time ([`device`]).

mod attend;
mod cache;
mod check;
mod convert;
mod gather;
mod prologue;
mod tensors;

pub use attend::{Attend, AttendOps, AttendTensors, Attended, SlotTensors, WithStats};
pub use cache::KvCache;
pub use convert::{ConvertOps, round, widen};
pub use gather::{Gather, GatherOps};
pub use prologue::{KeyNorm, KeyTensors, PaddedQueries, Prologue, PrologueOps, Tokens};

use burn::{backend::DispatchDevice, tensor::Device};
use mla_prologue_kernel::Result;
use mla_prologue_operator::Invalid;

/// The device that Burn's tensors live on, by the names of
/// [`mla_prologue_kernel::Device::open`]; `auto` is what the environment variable `BURN_DEVICE` names,
/// if it is set, and else the first that can be used of CUDA, ROCm, hardware Vulkan and the CPU.
///
/// Burn's own default takes the first runtime that is compiled in, whether it works or not.
///
/// # Errors
/// An unknown name, or a device that cannot be used here, with the reason.
///
/// ```
/// let device = mla_prologue_burn::device("cpu")?;
/// assert!(mla_prologue_burn::device("cuda:99").is_err());
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn device(name: &str) -> Result<Device> {
    let set = std::env::var("BURN_DEVICE").ok().filter(|set| name == "auto" && !set.is_empty());
    let device = mla_prologue_kernel::Device::open(set.as_deref().unwrap_or(name))?;
    Ok(Device::new(device.cubecl().clone()))
}

/// The kernel crate's device of a device of Burn's. It is resolved once in a process.
///
/// # Errors
/// A device of another backend than CubeCL's.
pub fn kernel_device(device: &Device) -> Result<mla_prologue_kernel::Device> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => mla_prologue_kernel::Device::of(device),
        #[allow(
            unreachable_patterns,
            reason = "there are other backends where another crate asks for them"
        )]
        other => Err(Invalid::new("the device", format!("{other:?}"), check::CUBE).into()),
    }
}
