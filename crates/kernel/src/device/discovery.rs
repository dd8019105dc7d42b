//! Which devices there are, each with a reason where it cannot be used.

use super::{Device, Runtime};
use crate::{Error, Result};
use cubecl::device::{WgpuDevice, WgpuDeviceKind};
use std::panic;

/// A device, or a runtime without one.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The name to open it by.
    pub name: String,
    /// What it is, or why it cannot be used.
    pub state: Result<String>,
}

/// The first device that can be used of CUDA, ROCm, a hardware Vulkan device and the CPU.
pub fn best() -> Result<Device> {
    let mut reasons = Vec::new();
    for runtime in Runtime::ALL {
        let found = find(runtime, 0).and_then(|(device, software)| {
            if software {
                return Err("it is a software device: name it to use it".into());
            }
            Device::start(&runtime.device_name(0), runtime, &device)
        });
        match found {
            Ok(device) => return Ok(device),
            Err(reason) => reasons.push(format!("{runtime}: {reason}")),
        }
    }
    Err(Error::unavailable("auto", reasons.join("; ")))
}

/// Every device of every runtime.
pub fn list() -> Vec<Listing> {
    let mut listings = Vec::new();
    for runtime in Runtime::ALL {
        for index in 0.. {
            let name = runtime.device_name(index);
            let found = find(runtime, index);
            if index > 0 && found.is_err() {
                break;
            }
            let state = found.and_then(|(device, _)| Device::start(&name, runtime, &device));
            let state = state.map(|device| device.describe());
            let state = state.map_err(|reason| Error::unavailable(&name, reason));
            listings.push(Listing { name, state });
        }
    }
    listings
}

/// The device of a runtime by its index, and whether it is a software device.
pub fn find(runtime: Runtime, index: usize) -> Result<(cubecl::Device, bool), String> {
    if !runtime.is_linked() {
        let feature = runtime.feature();
        return Err(format!("this program was built without it (cargo feature `{feature}`)"));
    }
    let missing = |what: &str, driver: &str| match index {
        0 => format!("no {what} was found; {driver}"),
        _ => format!("there is no {what} of that number"),
    };
    let named = |device: Result<cubecl::Device, _>, what: &str, driver: &str| {
        device.map(|device| (device, false)).map_err(|_| missing(what, driver))
    };
    match runtime {
        Runtime::Cuda => named(
            caught(|| cubecl::Device::cuda(index))?,
            "NVIDIA GPU",
            "is the driver (libcuda.so.1) installed?",
        ),
        Runtime::Rocm => {
            let device = caught(|| cubecl::Device::rocm(index))?;
            let device = named(device, "AMD GPU", "is ROCm (libamdhip64.so) installed?")?;
            #[cfg(feature = "hip")]
            caught(|| super::amd::check(index))??;
            Ok(device)
        }
        Runtime::Vulkan => caught(vulkan_devices)?
            .into_iter()
            .nth(index)
            .ok_or_else(|| missing("Vulkan device", "is a driver installed?")),
        Runtime::Cpu if index > 0 => Err("there is one cpu device".into()),
        Runtime::Cpu if !has_fma() => {
            Err("the processor has no fused multiply-add, without which the results would differ"
                .into())
        }
        Runtime::Cpu => named(cubecl::Device::cpu(), "processor", "it cannot be used by CubeCL"),
    }
}

/// Vulkan's devices, hardware before software.
fn vulkan_devices() -> Vec<(cubecl::Device, bool)> {
    let all = cubecl::Device::enumerate_all().into_iter();
    let kinds = all.filter_map(|device| match device {
        cubecl::Device::Wgpu(WgpuDevice { kind, .. }) => Some(kind),
        _ => None,
    });
    let mut devices: Vec<_> = kinds
        .filter_map(|kind| {
            let software = kind == WgpuDeviceKind::Cpu;
            cubecl::Device::vulkan(kind).ok().map(|device| (device, software))
        })
        .collect();
    devices.sort_by_key(|&(_, software)| software);
    devices
}

#[cfg(target_arch = "x86_64")]
fn has_fma() -> bool {
    std::arch::is_x86_feature_detected!("fma")
}

/// Every processor that can be met here besides x86 has it.
#[cfg(not(target_arch = "x86_64"))]
fn has_fma() -> bool {
    true
}

/// Runtimes panic where a driver is installed but does not work: that becomes the reason.
pub fn caught<T>(start: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(panic::AssertUnwindSafe(start)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let first = text.and_then(|text| text.lines().next()).unwrap_or("no reason given");
        format!("the driver does not work: {first}")
    })
}
