//! Devices by name; what they can do, and so how kernels are laid out on them.

#[cfg(feature = "hip")]
mod amd;
mod discovery;
mod fp8;
mod runtime;
mod strategy;

pub use discovery::Listing;
pub use runtime::Runtime;
pub use strategy::Strategy;

use crate::{Error, Result};
use cubecl::{client::Client, server::Handle};
use discovery::caught;
use mla_prologue_operator::{Invalid, Kind};
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// A device that is ready for work. A clone is the same device.
#[derive(Clone)]
pub struct Device(Arc<Opened>);

struct Opened {
    name: String,
    runtime: Runtime,
    device: cubecl::Device,
    client: Client,
    strategy: Strategy,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// The devices that [`Device::of`] was asked for.
static KNOWN: RwLock<Vec<Device>> = RwLock::new(Vec::new());

impl Device {
    /// Opens the device of that name: `cuda`, `cuda:1`, `rocm`, `vulkan`, `cpu`, or `auto` for the first
    /// that can be used of CUDA, ROCm, a hardware Vulkan device and the CPU.
    ///
    /// # Errors
    /// An unknown name, or a device that cannot be used here, with the reason.
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
            return discovery::best();
        }
        let (runtime, index) =
            name.split_once(':').map_or((name, "0"), |(runtime, index)| (runtime, index));
        let known = Runtime::ALL.into_iter().find(|known| known.name() == runtime);
        let (Some(runtime), Ok(index)) = (known, index.parse()) else {
            let must = "auto, cpu, or cuda, rocm or vulkan, where :0, :1 and so on may follow";
            return Err(Invalid::new("device", name, must).into());
        };
        discovery::find(runtime, index)
            .and_then(|(device, _)| Self::start(name, runtime, &device))
            .map_err(|reason| Error::unavailable(name, reason))
    }

    /// The device that CubeCL, or a framework above it, knows by another name. It is resolved once in a process.
    ///
    /// # Errors
    /// A device that cannot be used here, or of a runtime that is not supported.
    pub fn of(device: &cubecl::Device) -> Result<Self> {
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|known| known.cubecl() == device) {
            return Ok(known.clone());
        }
        drop(known);
        let resolved = Self::resolve(device)?;
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).push(resolved.clone());
        Ok(resolved)
    }

    fn resolve(device: &cubecl::Device) -> Result<Self> {
        let (runtime, name) = match device {
            cubecl::Device::Cuda(device) => {
                (Runtime::Cuda, Runtime::Cuda.device_name(device.index))
            }
            cubecl::Device::Hip(device) => {
                let name = Runtime::Rocm.device_name(device.index);
                #[cfg(feature = "hip")]
                caught(|| amd::check(device.index))
                    .and_then(|known| known)
                    .map_err(|reason| Error::unavailable(&name, reason))?;
                (Runtime::Rocm, name)
            }
            cubecl::Device::Wgpu(device) => (Runtime::Vulkan, format!("{:?}", device.kind)),
            cubecl::Device::Cpu(_) => (Runtime::Cpu, Runtime::Cpu.to_string()),
            other => {
                let reason = "its runtime is not supported";
                return Err(Error::unavailable(format!("{other:?}"), reason));
            }
        };
        Self::start(&name, runtime, device).map_err(|reason| Error::unavailable(name, reason))
    }

    fn start(name: &str, runtime: Runtime, device: &cubecl::Device) -> Result<Self, String> {
        let client = caught(|| device.client())?;
        let strategy = Strategy::new(runtime, client.properties());
        let (name, device) = (name.to_owned(), device.clone());
        Ok(Self(Arc::new(Opened { name, runtime, device, client, strategy })))
    }

    /// The same device through a client of the caller's own, which may have a stream of its own: launches go there.
    ///
    /// # Errors
    /// A client of another device.
    pub fn with_client(&self, client: Client) -> Result<Self> {
        if client.service_id() != self.client().service_id() {
            let must = format!("a client of {}", self.name());
            let error = Invalid::new("the client", "a client of another device", must);
            return Err(error.of(Kind::Device).into());
        }
        let Opened { name, runtime, device, strategy, .. } = &*self.0;
        let (name, device) = (name.clone(), device.clone());
        let (runtime, strategy) = (*runtime, *strategy);
        Ok(Self(Arc::new(Opened { name, runtime, device, client, strategy })))
    }

    /// Every device of every runtime; a runtime that has none is listed with the reason.
    pub fn list() -> Vec<Listing> {
        discovery::list()
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> Runtime {
        self.0.runtime
    }

    /// CubeCL's client of the device, which buffers belong to.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// CubeCL's name of the device, which Burn's device is made of.
    pub fn cubecl(&self) -> &cubecl::Device {
        &self.0.device
    }

    /// Copies bytes to the device. A buffer cannot be empty: no bytes take 16.
    pub fn upload(&self, bytes: &[u8]) -> Handle {
        self.client().create_from_slice(if bytes.is_empty() { &[0; 16] } else { bytes })
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
        let result = self.client().read_one(buffer.clone().offset_end(rest));
        Ok(result.map_err(|error| Error::failed("running the kernel", error))?.to_vec())
    }

    /// How kernels are laid out on it.
    pub fn strategy(&self) -> Strategy {
        self.0.strategy
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        let identity = &self.client().properties().identity;
        format!("{} ({})", identity.name.trim(), identity.fingerprint)
    }
}
