//! What AMD's driver says of a device before CubeCL starts it, which would panic on a thread of its own.

use cubecl::ir::amd::GfxArch;
use cubecl_hip_sys::{hipDeviceProp_tR0600, hipError_t_hipSuccess, hipGetDevicePropertiesR0600};
use std::{ffi::CStr, mem::MaybeUninit};

/// Checks that CubeCL knows how wide the waves of the device of that number are.
///
/// # Errors
/// An architecture that it does not know, or a driver that cannot tell.
pub fn check(index: usize) -> Result<(), String> {
    let mut properties = MaybeUninit::<hipDeviceProp_tR0600>::zeroed();
    // SAFETY: the driver fills the structure, of which all zeros is a value, or says that it did not; the name in it
    // ends in zero.
    let (status, width, name) = unsafe {
        let status = hipGetDevicePropertiesR0600(properties.as_mut_ptr(), index as i32);
        let properties = properties.assume_init();
        let name = CStr::from_ptr(properties.gcnArchName.as_ptr()).to_string_lossy().into_owned();
        (status, properties.warpSize, name)
    };
    if status != hipError_t_hipSuccess {
        return Err(format!("the driver cannot describe the device (HIP error {status})"));
    }
    let arch = GfxArch::parse(&name);
    match arch.plane_dim() {
        Some(known) if known as i32 == width => Ok(()),
        Some(known) => Err(format!(
            "CubeCL generates code for waves of {known} lanes on {}; the driver says {width}",
            arch.name()
        )),
        None => Err(format!(
            "CubeCL generates no code for {}: it does not know how wide its waves are",
            arch.name()
        )),
    }
}
