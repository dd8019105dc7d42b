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
use mla_prologue_operator::{CacheFormat, LANE_RUN, LANES, NOPE_DIM, PadScaleByte, QuantFrom};

/// Where a slot of the cache is.
#[derive(CubeType, Clone, Copy)]
pub struct Slot {
    /// Where the data of the slot begins, in words of 8 bytes.
    pub data: usize,
    /// Where its scales begin.
    pub scales: usize,
}

/// Finds a slot: a token of a block.
#[cube]
pub fn locate(
    block: u32,
    token: u32,
    block_size: u32,
    block_stride: u32,
    #[comptime] format: CacheFormat,
) -> Slot {
    let start = block as usize * block_stride as usize;
    let token = token as usize;
    let data_words = comptime!(format.data_bytes() / 8);
    let scale_words = comptime!(format.scale_bytes() / 8);
    Slot {
        data: start + token * data_words,
        scales: start + block_size as usize * data_words + token * scale_words,
    }
}

/// The scale of a slot's quantization block.
#[cube]
pub fn scale(cache: &[HalfWord], slot: &Slot, block: usize) -> f32 {
    let word = cache[slot.scales + block / 8];
    let bytes = select(block % 8 < 4, word.extract(0usize), word.extract(1usize));
    quant::decode_scale(bytes >> ((8 * (block % 4)) as u32) & 0xFF)
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
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    match comptime!(key.format) {
        CacheFormat::Fp8DsMla { .. } | CacheFormat::Mxfp8 { .. } => {
            insert_blocks(x, cache, slot, key, blueprint)
        }
        CacheFormat::Rows16Bit =>
        {
            #[unroll(runs == 2)]
            for run in 0..runs {
                store_half(&*x, run * 8, cache, slot.data + 2 * lanes::word(run, lanes), blueprint);
            }
        }
        CacheFormat::RowsFp8 { fp8 } =>
        {
            #[unroll(runs == 2)]
            for run in 0..runs {
                cache[slot.data + lanes::word(run, lanes)] =
                    quant::encode_each(&*x, run * 8, scale_inverse, fp8);
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

/// Words of 8 values that `fp8_ds_mla` quantizes; the others, after RoPE, are stored in 16 bits.
const NOPE_WORDS: usize = NOPE_DIM / LANE_RUN;

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
    let runs = comptime!(lanes.runs());
    let fp8 = comptime!(key.format.fp8().unwrap_or_default());
    // Neighbouring lanes that share a scale byte.
    let group = comptime!(key.format.quant_block().unwrap_or(64) / LANE_RUN);
    let rope_in_half = comptime!(matches!(key.format, CacheFormat::Fp8DsMla { .. }));

    let mut scales = Array::<u32>::new(runs);
    #[unroll(runs == 2)]
    for run in 0..runs {
        // Where the RoPE values are stored in 16 bits, to round them here already changes nothing.
        if comptime!(key.quant_from == QuantFrom::Half) {
            words::round(x, run * 8, comptime!(blueprint.half), comptime!(blueprint.conversion));
        }
        let mut largest = 0u32.runtime();
        #[unroll]
        for i in 0..8usize {
            largest = max(largest, words::magnitude(x[run * 8 + i]));
        }
        scales[run] = largest;
    }
    lanes::max_in_groups(&mut scales, group, lanes);

    #[unroll(runs == 2)]
    for run in 0..runs {
        scales[run] = quant::scale_byte(scales[run], fp8);
        let word = lanes::word(run, lanes);
        if comptime!(!rope_in_half) || run % 2 == 0 || word < NOPE_WORDS {
            cache[slot.data + word] = quant::encode_block(&*x, run * 8, scales[run], fp8);
        } else {
            let at = slot.data + NOPE_WORDS + 2 * (word - NOPE_WORDS);
            store_half(&*x, run * 8, cache, at, blueprint);
        }
    }
    store_scales(&scales, cache, slot, group, key, blueprint);
}

/// Gathers the scale bytes of a row, of which each group of lanes has two, and stores them.
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
    // Scale bytes of half a row, and of the row.
    let half_bytes = comptime!(LANES / group);
    let bytes = comptime!(match key.format {
        CacheFormat::Fp8DsMla { .. } => NOPE_DIM / 64,
        _ => 2 * half_bytes,
    });
    let keep = comptime!(matches!(
        key.format,
        CacheFormat::Fp8DsMla { pad_scale_byte: PadScaleByte::Keep, .. }
    ));

    let mut mine = Array::<u32>::new(count);
    #[unroll]
    for word in 0..comptime!(key.format.scale_bytes() / 8) {
        let mut packed = HalfWord::empty();
        #[unroll]
        for part in 0..2usize {
            // Four bytes, all of one half of the row.
            let first = comptime!((word * 2 + part) * 4);
            let end = comptime!(if first + 4 < bytes { first + 4 } else { bytes });
            let half = comptime!(first / half_bytes);
            #[unroll(count == 1)]
            for lane in 0..count {
                let byte = (lanes::first(lanes) + lane) / group + comptime!(half * half_bytes);
                let shifted = scales[lane * 2 + half] << ((8 * (byte % 4)) as u32);
                mine[lane] = select(byte >= first && byte < end, shifted, 0u32);
            }
            packed.insert(part, lanes::join(&mine, lanes));
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
