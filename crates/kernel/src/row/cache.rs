//! The paged cache: insertion of a row, and reading it back.
//!
//! Within a block of the cache, the data of all its tokens come first, then the UE8M0 scales of all. The
//! cache is addressed in words of 8 bytes, which is how a token's data and scales are aligned.

use super::{CacheWord, Codec, Lanes, Row, RowExpand, Word, lanes, quant, words};
use cubecl::prelude::*;
use mla_prologue_operator::{CacheFormat, Fp8, LANE_RUN, LANES, NOPE_DIM, PadScaleByte, QuantFrom};

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

/// The scale of a quantization block, of a word of eight scales.
#[cube]
fn block_scale(scales: CacheWord, block: usize) -> f32 {
    let bytes = select(block % 8 < 4, scales.extract(0usize), scales.extract(1usize));
    quant::decode_scale(bytes >> ((8 * (block % 4)) as u32) & 0xFF)
}

/// Words of 8 values that `fp8_ds_mla` quantizes; the others, after RoPE, are stored in 16 bits.
const NOPE_WORDS: usize = NOPE_DIM / LANE_RUN;

#[cube]
impl Row {
    /// Stores the row in a slot of the cache. No other byte of the cache changes.
    pub fn insert(
        &mut self,
        cache: &mut [CacheWord],
        slot: &Slot,
        scale_inverse: f32,
        #[comptime] quant_from: QuantFrom,
        #[comptime] format: CacheFormat,
    ) {
        let lanes = comptime!(self.lanes);
        let runs = comptime!(lanes.runs());
        match comptime!(format) {
            CacheFormat::Fp8DsMla { fp8, .. } | CacheFormat::Mxfp8 { fp8 } => {
                // Where the RoPE values are stored in 16 bits, to round them here already changes nothing.
                if comptime!(quant_from == QuantFrom::Rounded) {
                    self.round();
                }
                insert_blocks(&*self, cache, slot, fp8, format)
            }
            CacheFormat::Rows16Bit =>
            {
                #[unroll(runs == 2)]
                for run in 0..runs {
                    let at = slot.data + 2 * lanes::word(run, lanes);
                    store_float16(&self.values, run * LANE_RUN, cache, at, self.codec);
                }
            }
            CacheFormat::RowsFp8 { fp8 } =>
            {
                #[unroll(runs == 2)]
                for run in 0..runs {
                    cache[slot.data + lanes::word(run, lanes)] =
                        quant::encode_each(&self.values, run * LANE_RUN, scale_inverse, fp8);
                }
            }
        }
    }

    /// Reads the row of a slot. `scale` is that of a cache of FP8 rows.
    pub fn read(
        &mut self,
        cache: &[CacheWord],
        slot: &Slot,
        scale: f32,
        #[comptime] format: CacheFormat,
    ) {
        let runs = comptime!(self.lanes.runs());
        let codec = comptime!(self.codec);
        let reading = Reading { scale, codec, format };
        #[unroll(runs == 2)]
        for run in 0..runs {
            let word = lanes::word(run, self.lanes);
            let fetched = fetch_word(cache, slot, word, format);
            decode_word(&fetched, word, &reading, &mut self.values, run * LANE_RUN);
        }
    }
}

/// How a cache's values are read.
#[derive(CubeType, Clone, Copy)]
pub struct Reading {
    /// The scale of a cache of FP8 rows.
    pub scale: f32,
    /// The type of 16-bit values.
    #[cube(comptime)]
    pub codec: Codec,
    /// How tokens are stored.
    #[cube(comptime)]
    pub format: CacheFormat,
}

/// What the 8 values of a word of a row are made of: the values in FP8 and the scales of the row, or values in 16 bits. To be loaded
/// before it is needed.
#[derive(CubeType, Clone, Copy)]
pub struct Fetched {
    first: CacheWord,
    second: CacheWord,
}

/// Loads a word of a slot's row.
#[cube]
pub fn fetch_word(
    cache: &[CacheWord],
    slot: &Slot,
    word: usize,
    #[comptime] format: CacheFormat,
) -> Fetched {
    let in_fp8 = slot.data + word;
    match comptime!(format) {
        CacheFormat::Fp8DsMla { .. } => {
            let quantized = word < NOPE_WORDS;
            let in_16_bits = slot.data + 2 * word - NOPE_WORDS;
            Fetched {
                first: cache[select(quantized, in_fp8, in_16_bits)],
                second: cache[select(quantized, slot.scales, in_16_bits + 1)],
            }
        }
        CacheFormat::Mxfp8 { .. } => {
            Fetched { first: cache[in_fp8], second: cache[slot.scales + word / 32] }
        }
        CacheFormat::Rows16Bit => {
            let at = slot.data + 2 * word;
            Fetched { first: cache[at], second: cache[at + 1] }
        }
        CacheFormat::RowsFp8 { .. } => {
            let first = cache[in_fp8];
            Fetched { first, second: first }
        }
    }
}

/// Makes the 8 values of a word of a row of what was loaded, into `x[at..at + 8]`.
#[cube]
pub fn decode_word(
    fetched: &Fetched,
    word: usize,
    reading: &Reading,
    x: &mut Array<f32>,
    at: usize,
) {
    let (first, second) = (fetched.first, fetched.second);
    let (scale, codec) = (reading.scale, comptime!(reading.codec));
    match comptime!(reading.format) {
        CacheFormat::Fp8DsMla { fp8, .. } => {
            if word < NOPE_WORDS {
                quant::decode(first, block_scale(second, word / 8), x, at, fp8);
            } else {
                decode_float16(first, second, x, at, codec);
            }
        }
        CacheFormat::Mxfp8 { fp8 } => {
            quant::decode(first, block_scale(second, word / 4), x, at, fp8);
        }
        CacheFormat::Rows16Bit => decode_float16(first, second, x, at, codec),
        CacheFormat::RowsFp8 { fp8 } => quant::decode(first, scale, x, at, fp8),
    }
}

/// Stores the 8 values of a run in 16 bits.
#[cube]
fn store_float16(
    x: &Array<f32>,
    from: usize,
    cache: &mut [CacheWord],
    at: usize,
    #[comptime] codec: Codec,
) {
    let word = words::encode(x, from, codec);
    #[unroll]
    for i in 0..2usize {
        let mut part = CacheWord::empty();
        part.insert(0usize, word.extract(2 * i));
        part.insert(1usize, word.extract(2 * i + 1));
        cache[at + i] = part;
    }
}

/// Stores a row in blocks of values that share a UE8M0 scale.
#[cube]
fn insert_blocks(
    row: &Row,
    cache: &mut [CacheWord],
    slot: &Slot,
    #[comptime] fp8: Fp8,
    #[comptime] format: CacheFormat,
) {
    let lanes = comptime!(row.lanes);
    let runs = comptime!(lanes.runs());
    // Neighbouring lanes that share a scale.
    let group = comptime!(format.quant_block().unwrap_or(LANE_RUN) / LANE_RUN);
    let rope_in_16_bits = comptime!(matches!(format, CacheFormat::Fp8DsMla { .. }));

    let mut scales = Array::<u32>::new(runs);
    #[unroll(runs == 2)]
    for run in 0..runs {
        let mut absmax = 0u32.runtime();
        #[unroll]
        for i in 0..LANE_RUN {
            absmax = max(absmax, words::magnitude(row.values[run * LANE_RUN + i]));
        }
        scales[run] = absmax;
    }
    lanes::max_in_groups(&mut scales, group, lanes);

    #[unroll(runs == 2)]
    for run in 0..runs {
        scales[run] = quant::ue8m0(scales[run], fp8);
        let word = lanes::word(run, lanes);
        if comptime!(!rope_in_16_bits) || run % 2 == 0 || word < NOPE_WORDS {
            cache[slot.data + word] =
                quant::encode_block(&row.values, run * LANE_RUN, scales[run], fp8);
        } else {
            let at = slot.data + NOPE_WORDS + 2 * (word - NOPE_WORDS);
            store_float16(&row.values, run * LANE_RUN, cache, at, row.codec);
        }
    }
    store_scales(&scales, cache, slot, group, lanes, format);
}

/// Gathers the UE8M0 scales of a row, of which each group of lanes has two, and stores them.
#[cube]
fn store_scales(
    scales: &Array<u32>,
    cache: &mut [CacheWord],
    slot: &Slot,
    #[comptime] group: usize,
    #[comptime] lanes: Lanes,
    #[comptime] format: CacheFormat,
) {
    let count = comptime!(lanes.per_unit());
    // Scales of half a row, and of the row.
    let half_bytes = comptime!(LANES / group);
    let bytes = comptime!(format.scaled_values() / (group * LANE_RUN));
    let keep = comptime!(matches!(
        format,
        CacheFormat::Fp8DsMla { pad_scale_byte: PadScaleByte::Keep, .. }
    ));

    let mut mine = Array::<u32>::new(count);
    #[unroll]
    for word in 0..comptime!(format.scale_bytes() / 8) {
        let mut packed = CacheWord::empty();
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

/// Makes the 8 values of two words in 16 bits.
#[cube]
fn decode_float16(
    first: CacheWord,
    second: CacheWord,
    x: &mut Array<f32>,
    to: usize,
    #[comptime] codec: Codec,
) {
    let mut word = Word::empty();
    #[unroll]
    for i in 0..2usize {
        word.insert(i, first.extract(i));
        word.insert(2 + i, second.extract(i));
    }
    words::decode(word, x, to, codec);
}
