//! What the device can do at best, measured in the same run.

use super::{
    WORKLOADS,
    measure::{burst, stream},
};
use cubecl::prelude::*;
use mla_prologue_cases::Result;
use mla_prologue_kernel::{
    Device, Lanes,
    prologue::{launch_empty, upload},
};

/// Limits of a device and of the way to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Bytes a second that a copy kernel reads and writes.
    pub copy: f64,
    /// Seconds from one launch to the next, of a kernel with the arguments of the fused one that does nothing.
    pub stream: f64,
    /// Seconds that the calling thread spends on such a launch, in bursts of 16.
    pub host: f64,
}

/// Measures them.
///
/// # Errors
/// A device that fails.
pub fn floor(device: &Device) -> Result<Floor> {
    let copy = copy_bandwidth(device)?;
    let client = device.client();
    let call = WORKLOADS[0].case().call()?;
    let mut buffers = upload(device, call.problem(), call.tensors());
    buffers.q_out = Some(device.upload(&call.tensors().q_out));
    buffers.kv_cache = Some(device.upload(&call.tensors().kv_cache));
    let mut queue = || launch_empty(device, call.problem(), &buffers);
    queue()?;
    Ok(Floor { copy, stream: stream(client, &mut queue)?, host: burst(client, &mut queue)? })
}

type Word = Vector<u32, Const<4>>;

/// Bytes a second that a copy kernel reads and writes on the device.
fn copy_bandwidth(device: &Device) -> Result<f64> {
    let client = device.client();
    let cpu = device.strategy().lanes == Lanes::Unit;
    let words = if cpu { 1 << 22 } else { 1 << 26 };
    let [from, to] = [(); 2].map(|()| client.empty(words * 16));
    let units = if cpu { device.strategy().rows_per_cube } else { 256 };
    let per_unit = if cpu { words / units as usize } else { 4 };
    let cubes = (words / per_unit).div_ceil(units as usize) as u32;
    let mut queue = || {
        // SAFETY: each unit stays within the words that there are.
        unsafe {
            copy::launch_unchecked(
                client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(units),
                BufferArg::from_raw_parts(from.clone(), words),
                BufferArg::from_raw_parts(to.clone(), words),
                per_unit as u32,
            );
        }
        Ok(())
    };
    queue()?;
    Ok((2 * words * 16) as f64 / stream(client, &mut queue)?)
}

#[cube(launch_unchecked)]
fn copy(from: &[Word], to: &mut [Word], per_unit: u32) {
    let units = CUBE_COUNT * CUBE_DIM as usize;
    for i in 0..per_unit {
        let at = i as usize * units + ABSOLUTE_POS;
        if at < to.len() {
            to[at] = from[at];
        }
    }
}
