//! The FP8 format of a device's own instructions.

use super::{Device, Runtime};
use crate::Result;
use mla_prologue_operator::{CacheFormat, Fp8, Invalid};

impl Device {
    /// The native FP8 format, that of the device's own instructions: OCP on NVIDIA, by the architecture on AMD (FNUZ on
    /// gfx942). `None` where it has no such instructions, so that either is as good.
    ///
    /// ```
    /// assert_eq!(mla_prologue_kernel::Device::open("cpu")?.native_fp8(), None);
    /// # Ok::<(), mla_prologue_kernel::Error>(())
    /// ```
    pub fn native_fp8(&self) -> Option<Fp8> {
        of(self.runtime(), &self.client().properties().identity.fingerprint)
    }

    /// Checks that the cache's FP8 format is the device's native one, where both have one.
    ///
    /// # Errors
    /// Another format.
    pub fn check_fp8(&self, format: CacheFormat) -> Result<()> {
        check(self.name(), self.native_fp8(), format)
    }
}

/// The format of a device, from what CubeCL says it is: `hip-kernel_gfx942:sramecc+:xnack-`.
fn of(runtime: Runtime, fingerprint: &str) -> Option<Fp8> {
    match runtime {
        Runtime::Cuda => Some(Fp8::E4m3fn),
        Runtime::Rocm => Fp8::of_arch(fingerprint.rsplit('_').next()?),
        Runtime::Vulkan | Runtime::Cpu => None,
    }
}

fn check(device: &str, native: Option<Fp8>, format: CacheFormat) -> Result<()> {
    match (native, format.fp8()) {
        (Some(native), Some(fp8)) if native != fp8 => {
            let must = format_args!("{native}, the native FP8 format of {device}");
            Err(Invalid::new("fp8 of the cache", fp8, must).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_chooses_the_format() {
        let of = |fingerprint| of(Runtime::Rocm, fingerprint);
        assert_eq!(of("hip-kernel_gfx942:sramecc+:xnack-"), Some(Fp8::E4m3fnuz));
        assert_eq!(of("hip-kernel_gfx950:sramecc+:xnack-"), Some(Fp8::E4m3fn));
        assert_eq!(of("hip-kernel_gfx1201"), Some(Fp8::E4m3fn));
        assert_eq!(of("hip-kernel_gfx90a:sramecc+:xnack-"), None);
        assert_eq!(of("hip-kernel_gfx1100"), None);
    }

    #[test]
    fn a_cache_of_another_format_is_refused() {
        let cache = CacheFormat::default();
        assert!(check("rocm:0", Some(Fp8::E4m3fn), cache).is_ok());
        assert!(check("rocm:0", None, cache.with_fp8(Fp8::E4m3fnuz)).is_ok());
        assert!(check("rocm:0", Some(Fp8::E4m3fnuz), CacheFormat::Rows16Bit).is_ok());
        let error = check("rocm:0", Some(Fp8::E4m3fnuz), cache).expect_err("OCP on gfx942");
        let must = "it must be e4m3fnuz, the native FP8 format of rocm:0";
        assert!(error.to_string().contains(must), "{error}");
    }
}
