//! What a framework needs to do with whole tensors on every device, with the bits of the prologue's own
//! conversions: f32 to 16 bits and back, and a copy of a cache.

use crate::{
    Device, Result,
    buffers::check_buffer,
    row::{CacheWord, Codec, Word, words},
};
use cubecl::{prelude::*, server::Handle};
use mla_prologue_operator::{Float16, Invalid};

/// Queues the rounding of `values` f32 values to 16 bits, to nearest even.
///
/// # Errors
/// A count that is no multiple of 8, or a buffer that is too small, of another device, or not aligned to
/// 16 bytes.
pub fn round(
    device: &Device,
    values: usize,
    dtype: Float16,
    from: &Handle,
    to: &Handle,
) -> Result<()> {
    launch(device, values, dtype, (from, 4), (to, 2), false)
}

/// Queues the conversion of `values` 16-bit values to f32, which is exact.
///
/// # Errors
/// Those of [`round`].
pub fn widen(
    device: &Device,
    values: usize,
    dtype: Float16,
    from: &Handle,
    to: &Handle,
) -> Result<()> {
    launch(device, values, dtype, (from, 2), (to, 4), true)
}

fn launch(
    device: &Device,
    values: usize,
    dtype: Float16,
    (from, from_bytes): (&Handle, usize),
    (to, to_bytes): (&Handle, usize),
    widen: bool,
) -> Result<()> {
    if !values.is_multiple_of(8) || values / 8 > u32::MAX as usize {
        let must = "a multiple of 8, below 2^35";
        return Err(Invalid::new("the count of values to convert", values, must).into());
    }
    check_buffer(device, "from", Some(from), values * from_bytes)?;
    check_buffer(device, "to", Some(to), values * to_bytes)?;
    let words = values / 8;
    let Some((count, dim)) = grid(device, words) else { return Ok(()) };
    let slice = |buffer: &Handle, bytes: usize| {
        // SAFETY: the buffer was found to be at least this large.
        unsafe { BufferArg::from_raw_parts(buffer.clone(), values * bytes / 16) }
    };
    // SAFETY: a unit past the last word does nothing.
    unsafe {
        convert::launch_unchecked(
            device.client(),
            count,
            dim,
            AddressType::from_len(values / 4),
            slice(from, from_bytes),
            slice(to, to_bytes),
            words as u32,
            device.strategy().codec(dtype),
            widen,
        );
    }
    Ok(())
}

/// Queues a copy of `bytes` bytes, a multiple of 8.
///
/// # Errors
/// Another count, or a buffer that is too small, of another device, or not aligned to 16 bytes.
pub fn copy(device: &Device, bytes: usize, from: &Handle, to: &Handle) -> Result<()> {
    if !bytes.is_multiple_of(8) {
        return Err(Invalid::new("the count of bytes to copy", bytes, "a multiple of 8").into());
    }
    check_buffer(device, "from", Some(from), bytes)?;
    check_buffer(device, "to", Some(to), bytes)?;
    for start in (0..bytes).step_by(COPY_BYTES) {
        let words = COPY_BYTES.min(bytes - start) / 8;
        let Some((count, dim)) = grid(device, words) else { continue };
        // SAFETY: the buffers were found to be at least this large, and a unit past the last word does
        // nothing.
        unsafe {
            let slice = |buffer: &Handle| {
                BufferArg::from_raw_parts(buffer.clone().offset_start(start as u64), words)
            };
            copy_words::launch_unchecked(
                device.client(),
                count,
                dim,
                AddressType::from_len(words),
                slice(from),
                slice(to),
                words as u32,
            );
        }
    }
    Ok(())
}

/// Bytes that one launch copies: their words can be counted in 32 bits.
const COPY_BYTES: usize = 1 << 34;

/// Units of a cube, each of which has one word.
const UNITS: u32 = 256;

/// Cubes for that many words, if there are any.
fn grid(device: &Device, words: usize) -> Option<(CubeCount, CubeDim)> {
    let client = device.client();
    let dim = CubeDim::new_1d(UNITS.min(client.properties().hardware.max_units_per_cube));
    (words > 0).then(|| (cubecl::calculate_cube_count_elemwise(client, words, dim), dim))
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn copy_words(from: &[CacheWord], to: &mut [CacheWord], words: u32) {
    if ABSOLUTE_POS < words as usize {
        to[ABSOLUTE_POS] = from[ABSOLUTE_POS];
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn convert(
    from: &[Word],
    to: &mut [Word],
    words: u32,
    #[comptime] codec: Codec,
    #[comptime] widen: bool,
) {
    let word = ABSOLUTE_POS;
    if word < words as usize {
        let mut x = Array::<f32>::new(8usize);
        if widen {
            words::decode(from[word], &mut x, 0usize, codec);
            words::store_f32(&x, 0usize, to, 2 * word);
        } else {
            #[unroll]
            for i in 0..8usize {
                x[i] = f32::reinterpret(from[2 * word + i / 4].extract(i % 4));
            }
            to[word] = words::encode(&x, 0usize, codec);
        }
    }
}
