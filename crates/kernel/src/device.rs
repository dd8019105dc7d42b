//! Devices by name, each with a reason where it cannot be used.

use crate::{Error, Result, Strategy};
use cubecl::{
    client::Client,
    device::{WgpuDevice, WgpuDeviceKind},
    server::Handle,
};
use mla_prologue_operator::Half;
use std::{fmt, panic};

/// A way to reach devices.
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
    fn device_name(self, index: usize) -> String {
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
    pub(crate) const fn rounds_conversions(self, half: Half) -> bool {
        match self {
            Self::Cuda => true,
            Self::Rocm => matches!(half, Half::Bf16),
            Self::Vulkan | Self::Cpu => false,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A device that is ready for work.
pub struct Device {
    name: String,
    runtime: Runtime,
    device: cubecl::Device,
    client: Client,
    strategy: Strategy,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A device, or a runtime without one, as a list for people shows it.
#[derive(Debug)]
pub struct Listing {
    /// What to call it.
    pub name: String,
    /// What it is, or why it cannot be used.
    pub state: Result<String>,
}

impl Device {
    /// Opens the device of that name: `cuda`, `cuda:1`, `rocm`, `vulkan`, `cpu`, or `auto` for the first
    /// that can be used of CUDA, ROCm, a hardware Vulkan device and the CPU.
    ///
    /// # Errors
    /// A name that is none, or a device that cannot be used here, with the reason.
    ///
    /// ```
    /// use mla_prologue_kernel::Device;
    /// let device = Device::open("cpu")?;
    /// assert_eq!(device.name(), "cpu");
    /// assert!(Device::open("cpu:1").is_err());
    /// # Ok::<(), mla_prologue_kernel::Error>(())
    /// ```
    pub fn open(name: &str) -> Result<Self> {
        if name == "auto" {
            return Self::open_best();
        }
        let (runtime, index) =
            name.split_once(':').map_or((name, "0"), |(runtime, index)| (runtime, index));
        let known = Runtime::ALL.into_iter().find(|known| known.name() == runtime);
        let (Some(runtime), Ok(index)) = (known, index.parse()) else {
            let must = "auto, cpu, or cuda, rocm or vulkan, where :0, :1 and so on may follow";
            return Err(mla_prologue_operator::Invalid::new("device", name, must).into());
        };
        Self::of_runtime(runtime, index)
            .and_then(|(device, _)| Self::start(name, runtime, &device))
            .map_err(|reason| Error::unavailable(name, reason))
    }

    /// The device that CubeCL, or a framework above it, knows by another name.
    ///
    /// # Errors
    /// A device that cannot be used here, or of a runtime that is not supported.
    pub fn of(device: &cubecl::Device) -> Result<Self> {
        let (runtime, name) = match device {
            cubecl::Device::Cuda(device) => {
                (Runtime::Cuda, Runtime::Cuda.device_name(device.index))
            }
            cubecl::Device::Hip(device) => {
                let name = Runtime::Rocm.device_name(device.index);
                #[cfg(feature = "hip")]
                caught(|| crate::amd::check(device.index))
                    .and_then(|known| known)
                    .map_err(|reason| Error::unavailable(&name, reason))?;
                (Runtime::Rocm, name)
            }
            cubecl::Device::Wgpu(device) => (Runtime::Vulkan, format!("{:?}", device.kind)),
            cubecl::Device::Cpu(_) => (Runtime::Cpu, Runtime::Cpu.to_string()),
            other => {
                return Err(Error::unavailable(
                    format!("{other:?}"),
                    "its runtime is not supported",
                ));
            }
        };
        Self::start(&name, runtime, device).map_err(|reason| Error::unavailable(name, reason))
    }

    fn open_best() -> Result<Self> {
        let mut reasons = Vec::new();
        for runtime in Runtime::ALL {
            let found = Self::of_runtime(runtime, 0).and_then(|(device, software)| {
                if software {
                    return Err("it is software: name it to use it".into());
                }
                Self::start(&runtime.device_name(0), runtime, &device)
            });
            match found {
                Ok(device) => return Ok(device),
                Err(reason) => reasons.push(format!("{runtime}: {reason}")),
            }
        }
        Err(Error::unavailable("auto", reasons.join("; ")))
    }

    /// Every device of every runtime; a runtime that has none is listed with the reason.
    pub fn list() -> Vec<Listing> {
        let mut listings = Vec::new();
        for runtime in Runtime::ALL {
            for index in 0.. {
                let name = runtime.device_name(index);
                let found = Self::of_runtime(runtime, index);
                if index > 0 && found.is_err() {
                    break;
                }
                let state = found.and_then(|(device, _)| Self::start(&name, runtime, &device));
                let state = state.map(|device| device.describe());
                listings.push(Listing {
                    state: state.map_err(|reason| Error::unavailable(&name, reason)),
                    name,
                });
            }
        }
        listings
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// CubeCL's client of the device, which buffers belong to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// CubeCL's name of the device, which Burn's device is made of.
    pub fn cubecl(&self) -> &cubecl::Device {
        &self.device
    }

    /// Copies bytes to the device, where a buffer of none cannot be.
    pub fn upload(&self, bytes: &[u8]) -> Handle {
        self.client.create_from_slice(if bytes.is_empty() { &[0; 16] } else { bytes })
    }

    /// Reads the first `bytes` bytes of a buffer back, once what was queued before is done.
    ///
    /// # Errors
    /// A device that failed, at this or at what was queued before.
    pub fn read(&self, buffer: &Handle, bytes: usize) -> Result<Vec<u8>> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let rest = buffer.size_in_used() - bytes as u64;
        let result = self.client.read_one(buffer.clone().offset_end(rest));
        Ok(result.map_err(|error| Error::failed("running the kernel", error))?.to_vec())
    }

    /// How the kernel is laid out on it.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        let identity = &self.client.properties().identity;
        format!("{} ({})", identity.name.trim(), identity.fingerprint)
    }

    /// The device of a runtime by its index, and whether it is software that plays a GPU.
    fn of_runtime(runtime: Runtime, index: usize) -> Result<(cubecl::Device, bool), String> {
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
                caught(|| crate::amd::check(index))??;
                Ok(device)
            }
            Runtime::Vulkan => caught(vulkan_devices)?
                .into_iter()
                .nth(index)
                .ok_or_else(|| missing("Vulkan device", "is a driver installed?")),
            Runtime::Cpu if index > 0 => Err("there is one cpu device".into()),
            Runtime::Cpu if !has_fma() => Err(
                "the processor has no fused multiply-add, without which the results would differ"
                    .into(),
            ),
            Runtime::Cpu => {
                named(cubecl::Device::cpu(), "processor", "it cannot be used by CubeCL")
            }
        }
    }

    fn start(name: &str, runtime: Runtime, device: &cubecl::Device) -> Result<Self, String> {
        let client = caught(|| device.client())?;
        let strategy = Strategy::new(runtime, client.properties());
        Ok(Self { name: name.to_owned(), runtime, device: device.clone(), client, strategy })
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

/// Runtimes panic where a driver is there but does not work; that is a reason like any other.
fn caught<T>(start: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(panic::AssertUnwindSafe(start)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let first = text.and_then(|text| text.lines().next()).unwrap_or("no reason given");
        format!("the driver does not work: {first}")
    })
}
