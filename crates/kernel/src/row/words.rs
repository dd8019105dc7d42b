//! Memory in words, and the numbers in them.
//!
//! Rows are read and written in words of 16 bytes, which hold the 8 neighbouring 16-bit values of a
//! lane; the cache, whose tokens are aligned to 8 bytes only, in words of 8 bytes. Conversions are
//! the device's own or integer arithmetic; both round to nearest even and give the same bits.

use cubecl::prelude::*;
use half::{bf16, f16};
use mla_prologue_operator::{Float16, Index};

/// 16 bytes.
pub type Word = Vector<u32, Const<4>>;
/// 8 bytes: what a token of the cache is aligned to.
pub type CacheWord = Vector<u32, Const<2>>;

/// How 16-bit values are converted; both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// By the device's own conversions.
    Native,
    /// By integer arithmetic, where the device has none that can be relied on.
    Integer,
}

impl Conversion {
    /// Native conversions where they can be relied on.
    pub const fn native_where(native: bool) -> Self {
        if native { Self::Native } else { Self::Integer }
    }
}

/// A 16-bit type and how it is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codec {
    /// The type.
    pub dtype: Float16,
    /// How it is converted to f32 and back.
    pub conversion: Conversion,
}

/// The smallest bits of an f32 that is not finite.
pub const INFINITY: u32 = 0x7F80_0000;

/// What [`index`] gives for an index that is negative or too large.
pub const NO_INDEX: u32 = u32::MAX;

/// The bits of |x|: for numbers in the order of their values, and NaN above infinity.
#[cube]
pub fn magnitude(x: f32) -> u32 {
    u32::reinterpret(x) & 0x7FFF_FFFF
}

/// Unpacks the 8 values of a word into `x[at..at + 8]`.
#[cube]
pub fn decode(word: Word, x: &mut Array<f32>, at: usize, #[comptime] codec: Codec) {
    #[unroll]
    for i in 0..4usize {
        let (low, high) = decode_pair(word.extract(i), codec);
        x[at + 2 * i] = low;
        x[at + 2 * i + 1] = high;
    }
}

/// The two 16-bit values of a u32.
#[cube]
pub fn decode_pair(pair: u32, #[comptime] codec: Codec) -> (f32, f32) {
    match comptime!(codec.dtype) {
        Float16::Bf16 => (f32::reinterpret(pair << 16), f32::reinterpret(pair & 0xFFFF_0000)),
        Float16::F16 => match comptime!(codec.conversion) {
            Conversion::Native => {
                let values =
                    Vector::<f32, Const<2>>::cast_from(Vector::<f16, Const<2>>::reinterpret(pair));
                (values.extract(0usize), values.extract(1usize))
            }
            Conversion::Integer => (decode_f16(pair & 0xFFFF), decode_f16(pair >> 16)),
        },
    }
}

#[cube]
fn decode_f16(bits: u32) -> f32 {
    let magnitude = (bits & 0x7FFF) << 13;
    let normal = magnitude + comptime!((127u32 - 15) << 23);
    let special = magnitude + comptime!((255u32 - 31) << 23);
    // Below the smallest normal 2^-14 the mantissa counts steps of 2^-24: as do the last bits of 2^-1.
    let subnormal = u32::reinterpret(f32::reinterpret((bits & 0x7FFF) | 0x3F00_0000) - 0.5f32);
    let finite = select(magnitude < 0x0080_0000, subnormal, normal);
    let all = select(magnitude >= 0x0F80_0000, special, finite);
    f32::reinterpret(all | (bits & 0x8000) << 16)
}

/// Packs `x[at..at + 8]` into a word, each value rounded once.
#[cube]
pub fn encode(x: &Array<f32>, at: usize, #[comptime] codec: Codec) -> Word {
    let mut word = Word::empty();
    #[unroll]
    for i in 0..4usize {
        word.insert(i, encode_pair(x[at + 2 * i], x[at + 2 * i + 1], codec));
    }
    word
}

/// Two values as 16-bit ones in a u32.
#[cube]
pub fn encode_pair(low: f32, high: f32, #[comptime] codec: Codec) -> u32 {
    match comptime!(codec.conversion) {
        Conversion::Native => {
            let mut values = Vector::<f32, Const<2>>::empty();
            values.insert(0usize, low);
            values.insert(1usize, high);
            match comptime!(codec.dtype) {
                Float16::Bf16 => u32::reinterpret(Vector::<bf16, Const<2>>::cast_from(values)),
                Float16::F16 => u32::reinterpret(Vector::<f16, Const<2>>::cast_from(values)),
            }
        }
        Conversion::Integer => match comptime!(codec.dtype) {
            Float16::Bf16 => encode_bf16(low) | encode_bf16(high) << 16,
            Float16::F16 => encode_f16(low) | encode_f16(high) << 16,
        },
    }
}

#[cube]
fn encode_bf16(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x0040;
    select(magnitude(x) > INFINITY, nan, rounded)
}

#[cube]
fn encode_f16(x: f32) -> u32 {
    let bits = magnitude(x);
    let sign = u32::reinterpret(x) >> 16 & 0x8000;
    let normal = ((bits + 0x0FFF + (bits >> 13 & 1)) >> 13) - comptime!((127u32 - 15) << 10);
    // Below the smallest normal 2^-14 the steps are 2^-24, as between 2^-1 and 1: the addition rounds.
    let subnormal = u32::reinterpret(f32::reinterpret(bits) + 0.5f32) - 0x3F00_0000;
    let finite = select(bits < 0x3880_0000, subnormal, normal);
    let special = select(bits > INFINITY, 0x7E00u32, 0x7C00u32);
    sign | select(bits >= 0x4780_0000, special, finite)
}

/// Stores `x[at..at + 8]` as f32 in two words.
#[cube]
pub fn store_f32(x: &Array<f32>, at: usize, out: &mut [Word], to: usize) {
    #[unroll]
    for half in 0..2usize {
        let mut word = Word::empty();
        #[unroll]
        for i in 0..4usize {
            word.insert(i, u32::reinterpret(x[at + 4 * half + i]));
        }
        out[to + half] = word;
    }
}

/// Rounds `x[at..at + 8]` to 16 bits and goes on in f32.
#[cube]
pub fn round(x: &mut Array<f32>, at: usize, #[comptime] codec: Codec) {
    let word = encode(&*x, at, codec);
    decode(word, x, at, codec);
}

/// Element `i` of an array of indices, or [`NO_INDEX`] where it is negative or larger than that.
#[cube]
pub fn index(indices: &[u32], i: usize, #[comptime] index: Index) -> u32 {
    match index {
        Index::I64 => {
            let (low, high) = (indices[2 * i], indices[2 * i + 1]);
            select(high == 0, low, NO_INDEX)
        }
        Index::I32 => {
            let value = indices[i];
            select(value < 0x8000_0000, value, NO_INDEX)
        }
    }
}
