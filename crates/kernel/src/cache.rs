//! Insertion of a key into the paged cache.
//!
//! Within a block of the cache, the data of all its tokens come first, then the scale bytes of all. The
//! cache is addressed in words of 8 bytes, which is how a token's data and scales are aligned.

use crate::{
    blueprint::{Blueprint, KeyBlueprint},
    lanes, quant,
    words::{self, HalfWord},
};
use cubecl::prelude::*;
use mla_prologue_operator::{CacheFormat, LANES, PadScaleByte, QuantFrom};

/// The cache of one launch.
#[derive(CubeType, Clone, Copy)]
pub struct Slot {
    /// Where the data of the slot begins, in words of 8 bytes.
    data: usize,
    /// Where its scales begin.
    scales: usize,
}

/// Finds a slot: token `slot % block_size` of block `slot / block_size`.
#[cube]
pub fn locate(
    slot: u32,
    block_size: u32,
    block_stride: u32,
    #[comptime] format: CacheFormat,
) -> Slot {
    let start = (slot / block_size) as usize * block_stride as usize;
    let token = (slot % block_size) as usize;
    let data_words = comptime!(format.data_bytes() / 8);
    let scale_words = comptime!(format.scale_bytes() / 8);
    Slot {
        data: start + token * data_words,
        scales: start + block_size as usize * data_words + token * scale_words,
    }
}

/// Stores a row of a key. No other byte of the cache changes.
#[cube]
pub fn insert(
    x: &mut Array<f32>,
    cache: &mut [HalfWord],
    slot: Slot,
    scale_inverse: f32,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let count = comptime!(blueprint.lanes.per_unit());
    match comptime!(key.format) {
        CacheFormat::Fp8DsMla { .. } | CacheFormat::Mxfp8 { .. } => {
            insert_blocks(x, cache, slot, key, blueprint)
        }
        CacheFormat::Rows16Bit =>
        {
            #[unroll(count == 1)]
            for lane in 0..count {
                #[unroll]
                for run in 0..2usize {
                    let at = slot.data
                        + 2 * (run * 32 + lanes::first(comptime!(blueprint.lanes)) + lane);
                    store_half(&*x, lane * 16 + run * 8, cache, at, blueprint);
                }
            }
        }
        CacheFormat::RowsFp8 { fp8 } =>
        {
            #[unroll(count == 1)]
            for lane in 0..count {
                #[unroll]
                for run in 0..2usize {
                    let at = slot.data + run * 32 + lanes::first(comptime!(blueprint.lanes)) + lane;
                    cache[at] = quant::encode_each(&*x, lane * 16 + run * 8, scale_inverse, fp8);
                }
            }
        }
    }
}

/// Stores the 8 values of a run in 16 bits.
#[cube]
fn store_half(
    x: &Array<f32>,
    from: usize,
    cache: &mut [HalfWord],
    at: usize,
    #[comptime] blueprint: Blueprint,
) {
    let word = words::encode(x, from, comptime!(blueprint.half), comptime!(blueprint.conversion));
    #[unroll]
    for i in 0..2usize {
        let mut half = HalfWord::empty();
        half.insert(0usize, word.extract(2 * i));
        half.insert(1usize, word.extract(2 * i + 1));
        cache[at + i] = half;
    }
}

/// Stores a row in blocks of values that share a scale byte.
#[cube]
fn insert_blocks(
    x: &mut Array<f32>,
    cache: &mut [HalfWord],
    slot: Slot,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let count = comptime!(lanes.per_unit());
    let fp8 = comptime!(key.format.fp8().unwrap_or_default());
    // Neighbouring lanes that share a scale byte.
    let group = comptime!(key.format.quant_block().unwrap_or(64) / mla_prologue_operator::LANE_RUN);
    let rope_in_half = comptime!(matches!(key.format, CacheFormat::Fp8DsMla { .. }));

    let mut scales = Array::<u32>::new(comptime!(2 * count));
    #[unroll(count == 1)]
    for lane in 0..count {
        #[unroll]
        for run in 0..2usize {
            let at = lane * 16 + run * 8;
            // The RoPE values are stored as they are: where they are not quantized, rounding them
            // here changes nothing.
            if comptime!(key.quant_from == QuantFrom::Half) {
                words::round(x, at, comptime!(blueprint.half), comptime!(blueprint.conversion));
            }
            let mut largest = words::magnitude(x[at]);
            #[unroll]
            for i in 1..8usize {
                largest = max(largest, words::magnitude(x[at + i]));
            }
            scales[lane * 2 + run] = largest;
        }
    }
    lanes::max_in_groups(&mut scales, 2usize, group, lanes);

    #[unroll(count == 1)]
    for lane in 0..count {
        #[unroll]
        for run in 0..2usize {
            let index = run * 32 + lanes::first(lanes) + lane;
            let scale = quant::scale_byte(scales[lane * 2 + run], fp8);
            scales[lane * 2 + run] = scale;
            let quantized = comptime!(!(rope_in_half && run == 1)) || index < 56;
            if quantized {
                cache[slot.data + index] =
                    quant::encode_block(&*x, lane * 16 + run * 8, scale, fp8);
            } else {
                let at = slot.data + 56 + 2 * (index - 56);
                store_half(&*x, lane * 16 + run * 8, cache, at, blueprint);
            }
        }
    }
    store_scales(&scales, cache, slot, group, key, blueprint);
}

/// Gathers the scale bytes of a row, which the first lane of each group contributes, and stores them.
#[cube]
fn store_scales(
    scales: &Array<u32>,
    cache: &mut [HalfWord],
    slot: Slot,
    #[comptime] group: usize,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let count = comptime!(lanes.per_unit());
    // Scale bytes of a run of the row, and of the row.
    let run_bytes = comptime!(LANES / group);
    let bytes = comptime!(if matches!(key.format, CacheFormat::Fp8DsMla { .. }) {
        7
    } else {
        2 * run_bytes
    });
    let keep = comptime!(matches!(
        key.format,
        CacheFormat::Fp8DsMla { pad_scale_byte: PadScaleByte::Keep, .. }
    ));

    let mut contributed = Array::<u32>::new(count);
    #[unroll]
    for word in 0..comptime!(key.format.scale_bytes() / 8) {
        let mut packed = HalfWord::empty();
        #[unroll]
        for part in 0..2usize {
            let first_byte = comptime!((word * 2 + part) * 4);
            let run = comptime!(first_byte / run_bytes);
            #[unroll(count == 1)]
            for lane in 0..count {
                let index = lanes::first(lanes) + lane;
                let byte = index / group + comptime!(run * run_bytes);
                let mine = byte >= first_byte
                    && byte
                        < comptime!(if first_byte + 4 < bytes { first_byte + 4 } else { bytes });
                let shift = (8 * (byte % 4)) as u32;
                contributed[lane] = select(mine, scales[lane * 2 + run] << shift, 0u32);
            }
            packed.insert(part, lanes::join(&contributed, lanes));
        }
        if lanes::first(lanes) == 0 {
            if keep {
                let kept = cache[slot.scales + word].extract(1usize) & 0xFF00_0000;
                packed.insert(1usize, packed.extract(1usize) | kept);
            }
            cache[slot.scales + word] = packed;
        }
    }
}
