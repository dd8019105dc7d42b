//! What the device can do at best, measured in the same run.

use super::measure::{burst, stream};
use crate::{
    Result,
    kernel::{Device, Lanes},
};
use cubecl::{prelude::*, server::Handle};

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
    let buffers: Vec<Handle> = (0..8).map(|_| client.empty(1024)).collect();
    let mut queue = || {
        // SAFETY: nothing is touched.
        let slice = |i: usize| unsafe { BufferArg::from_raw_parts(buffers[i].clone(), 64) };
        // SAFETY: nothing is touched.
        unsafe {
            nothing::launch_unchecked(
                client,
                CubeCount::Static(1, 1, 1),
                CubeDim::new_1d(device.strategy().rows_per_cube),
                slice(0),
                slice(1),
                slice(2),
                slice(3),
                slice(4),
                slice(5),
                slice(6),
                slice(7),
                NumbersLaunch::new(1, 2, 3, 4.0, 5, 6, 7, 8.0, 9, 10.0, 11, 12, 13),
            );
        }
        Ok(())
    };
    queue()?;
    Ok(Floor { copy, stream: stream(client, &mut queue)?, host: burst(client, &mut queue)? })
}

type Word = Vector<u32, Const<4>>;

/// As many scalars as the fused kernel has.
#[derive(CubeType, CubeLaunch)]
struct Numbers {
    a: u32,
    b: u32,
    c: u32,
    d: f32,
    e: u32,
    f: u32,
    g: u32,
    h: f32,
    i: u32,
    j: f32,
    k: u32,
    l: u32,
    m: u32,
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments, reason = "as many as the fused kernel has")]
fn nothing(
    a: &[Word],
    b: &[Word],
    c: &[Word],
    d: &[u32],
    e: &[u32],
    f: &[Word],
    g: &mut [Word],
    h: &mut [Vector<u32, Const<2>>],
    numbers: &Numbers,
) {
    // Never: it keeps the arguments from being left out.
    if numbers.a == 0xFFFF_FFFF {
        let reals = u32::reinterpret(numbers.d + numbers.h + numbers.j);
        let counts = numbers.b + numbers.c + numbers.e + numbers.f + numbers.g;
        g[0] = a[0] + b[0] + c[0] + f[0];
        h[0] = Vector::new(d[0] + e[0] + reals + counts + numbers.i + numbers.k);
        h[1] = Vector::new(numbers.l + numbers.m);
    }
}

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
