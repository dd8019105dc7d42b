//! The paged cache: insertion of keys, and reading them back.

use crate::{numbers::from_float16, quant};
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Float16, Fp8, HEAD_DIM, NOPE_DIM, PadScaleByte, prologue::Key,
};
use rayon::prelude::*;

/// The tokens that are inserted and their slots: those whose slot is not negative. Tokens past the end
/// of `slots` (data-parallel padding) are not.
pub fn inserted(slots: impl Iterator<Item = i64>) -> Vec<(usize, usize)> {
    let slots = slots.enumerate();
    slots.filter_map(|(token, slot)| Some((token, usize::try_from(slot).ok()?))).collect()
}

/// Stores rows of keys into their slots. `x` are the values to be quantized, `rounded` the bytes of the
/// same rows in 16 bits. No other byte of the cache changes.
pub fn insert(
    key: &Key,
    slots: impl Iterator<Item = usize>,
    x: &[f32],
    rounded: &[u8],
    cache: &mut [u8],
) {
    let rows = x.par_chunks_exact(HEAD_DIM).zip(rounded.par_chunks_exact(2 * HEAD_DIM));
    let tokens: Vec<(Vec<u8>, Vec<u8>)> = rows.map(|(x, rounded)| token(key, x, rounded)).collect();
    for (slot, (data, scales)) in slots.zip(tokens) {
        cache[key.cache.data(slot)].copy_from_slice(&data);
        let kept = key.cache.scales(slot).start;
        cache[kept..kept + scales.len()].copy_from_slice(&scales);
    }
}

/// The data bytes and UE8M0 scales of one token.
fn token(key: &Key, x: &[f32], rounded: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match key.cache.format {
        CacheFormat::Fp8DsMla { fp8, pad_scale_byte } => {
            let (mut scales, mut data) = blocks(&x[..NOPE_DIM], 64, fp8);
            data.extend(&rounded[2 * NOPE_DIM..]);
            if pad_scale_byte == PadScaleByte::Zero {
                scales.push(0);
            }
            (data, scales)
        }
        CacheFormat::Mxfp8 { fp8 } => {
            let (scales, data) = blocks(x, 32, fp8);
            (data, scales)
        }
        CacheFormat::Rows16Bit => (rounded.to_vec(), Vec::new()),
        CacheFormat::RowsFp8 { fp8 } => {
            (quant::with_scale(x, key.scale.unwrap_or(1.0), fp8), Vec::new())
        }
    }
}

fn blocks(x: &[f32], size: usize, fp8: Fp8) -> (Vec<u8>, Vec<u8>) {
    let (scales, values): (Vec<u8>, Vec<Vec<u8>>) =
        x.chunks_exact(size).map(|x| quant::block(x, fp8)).unzip();
    (scales, values.concat())
}

/// The 512 values of a slot, as an attention kernel would read them. `scale` is that of a cache of FP8
/// rows.
pub fn read(
    layout: &CacheLayout,
    dtype: Float16,
    scale: Option<f32>,
    cache: &[u8],
    slot: usize,
) -> Vec<f32> {
    let (data, scales) = (&cache[layout.data(slot)], &cache[layout.scales(slot)]);
    let halves = |bytes: &[u8]| -> Vec<f32> {
        bytes
            .chunks_exact(2)
            .map(|b| from_float16(u16::from_le_bytes([b[0], b[1]]), dtype))
            .collect()
    };
    let quantized = |bytes: &[u8], block: usize, fp8| -> Vec<f32> {
        let value = |(i, &byte): (usize, &u8)| {
            quant::decode(byte, fp8) * quant::decode_scale(scales[i / block])
        };
        bytes.iter().enumerate().map(value).collect()
    };
    match layout.format {
        CacheFormat::Fp8DsMla { fp8, .. } => {
            let (nope, rope) = data.split_at(NOPE_DIM);
            [quantized(nope, 64, fp8), halves(rope)].concat()
        }
        CacheFormat::Mxfp8 { fp8 } => quantized(data, 32, fp8),
        CacheFormat::Rows16Bit => halves(data),
        CacheFormat::RowsFp8 { fp8 } => {
            let scale = scale.unwrap_or(1.0);
            data.iter().map(|&byte| quant::decode(byte, fp8) * scale).collect()
        }
    }
}
