//! Buffers of a device: what a launch asks of them, and the cubes that it has.

use crate::{Device, Result, row::Lanes};
use cubecl::{
    client::Client,
    prelude::{AddressType, CubeCount, CubeDim},
    server::Handle,
};
use mla_prologue_operator::{Invalid, Kind, LANES};

/// Checks a buffer that is used, if only in part: it must be there, on this device, aligned, and large enough.
pub(crate) fn check_buffer(
    device: &Device,
    name: &str,
    buffer: Option<&Handle>,
    bytes: usize,
) -> Result<()> {
    let size = buffer.map_or(0, |buffer| buffer.size_in_used() as usize);
    if size < bytes {
        return Err(Invalid::size(name, size, format_args!("at least {bytes} bytes")).into());
    }
    let Some(buffer) = buffer else { return Ok(()) };
    if buffer.service != device.client().service_id() {
        let must = format!("a buffer of {}", device.name());
        let error = Invalid::new(name, "a buffer of another device", must);
        return Err(error.of(Kind::Device).into());
    }
    let offset = buffer.offset_start.unwrap_or(0);
    if !offset.is_multiple_of(ALIGNMENT) {
        let must = format!("a multiple of {ALIGNMENT} bytes");
        let error = Invalid::new(format_args!("the offset of {name}"), offset, must);
        return Err(error.of(Kind::Size).into());
    }
    Ok(())
}

/// Buffers begin at a word.
const ALIGNMENT: u64 = 16;

/// Cubes for that many rows.
pub(crate) fn grid(
    client: &Client,
    rows: usize,
    lanes: Lanes,
    rows_per_cube: u32,
) -> (CubeCount, CubeDim) {
    (cubes(client, rows.div_ceil(rows_per_cube as usize)), cube_dim(lanes, rows_per_cube))
}

/// That many cubes, spread over two dimensions where one does not hold them.
pub(crate) fn cubes(client: &Client, count: usize) -> CubeCount {
    let count = count as u32;
    let x = count.min(client.properties().hardware.max_cube_count.0);
    CubeCount::Static(x, count.div_ceil(x), 1)
}

/// The units of a cube.
pub(crate) fn cube_dim(lanes: Lanes, rows_per_cube: u32) -> CubeDim {
    match lanes {
        Lanes::Plane => CubeDim::new_2d(LANES as u32, rows_per_cube),
        Lanes::Unit => CubeDim::new_1d(rows_per_cube),
    }
}

/// The width of indices into buffers of these sizes, in bytes, given the bytes of a word of each.
pub(crate) fn address_type(buffers: impl Iterator<Item = (usize, usize)>) -> AddressType {
    AddressType::from_len(buffers.map(|(bytes, word)| bytes / word).max().unwrap_or(0))
}
