//! Quantization to FP8 in integer arithmetic, and back.
//!
//! FNUZ needs no encoder of its own: a pattern stands for half of what it stands for in OCP E4M3, so
//! its bytes are those of the doubled value. The differences are the NaN and the missing -0.

use super::words::{CacheWord, INFINITY, magnitude};
use cubecl::prelude::*;
use mla_prologue_operator::{Fp8, QUANT_FLOOR};

/// The UE8M0 scale of a block with a NaN or an infinity.
const NAN_SCALE: u32 = 255;

/// The UE8M0 scale of a block whose absmax has these bits: the byte 127 + ceil(log2(absmax / max)).
/// The largest value of the format is 1.75 times a power of two, so the mantissa tells whether the
/// absmax is above it.
#[cube]
pub fn ue8m0(absmax: u32, #[comptime] fp8: Fp8) -> u32 {
    let absmax = max(absmax, comptime!(QUANT_FLOOR.to_bits()));
    let above = select((absmax & 0x007F_FFFF) > 0x0060_0000, 1u32, 0u32);
    let byte = (absmax >> 23) - comptime!(fp8.max_exponent()) + above;
    select(absmax >= INFINITY, NAN_SCALE, byte)
}

/// Packs `x[at..at + 8]` times the inverse of their block's scale as FP8. Of a block with a NaN or an infinity
/// every value becomes NaN.
#[cube]
pub fn encode_block(x: &Array<f32>, at: usize, ue8m0: u32, #[comptime] fp8: Fp8) -> CacheWord {
    let inverse = f32::reinterpret((254 - ue8m0) << 23);
    let nan = comptime!(fp8.nan() as u32 * 0x0101_0101);
    let mut word = CacheWord::empty();
    #[unroll]
    for i in 0..2usize {
        let four = encode_four(x, at + 4 * i, inverse, fp8, false);
        word.insert(i, select(ue8m0 == NAN_SCALE, nan, four));
    }
    word
}

/// Packs `x[at..at + 8]` times `inverse` as FP8. Each NaN or infinity becomes NaN.
#[cube]
pub fn encode_each(x: &Array<f32>, at: usize, inverse: f32, #[comptime] fp8: Fp8) -> CacheWord {
    let mut word = CacheWord::empty();
    #[unroll]
    for i in 0..2usize {
        word.insert(i, encode_four(x, at + 4 * i, inverse, fp8, true));
    }
    word
}

/// Packs four values times `inverse`; with `non_finite`, each of them may be NaN or infinite.
#[cube]
fn encode_four(
    x: &Array<f32>,
    at: usize,
    inverse: f32,
    #[comptime] fp8: Fp8,
    #[comptime] non_finite: bool,
) -> u32 {
    let mut four = 0u32.runtime();
    #[unroll]
    for i in 0..4usize {
        let v = x[at + i];
        let mut byte = encode(v * inverse, fp8);
        if comptime!(non_finite) {
            byte = select(magnitude(v) >= INFINITY, comptime!(fp8.nan() as u32), byte);
        }
        four |= byte << comptime!(8 * i as u32);
    }
    four
}

/// The FP8 byte nearest to `v`, ties to even; beyond the largest, that of the largest.
#[cube]
fn encode(v: f32, #[comptime] fp8: Fp8) -> u32 {
    match fp8 {
        Fp8::E4m3fn => encode_magnitude(v) | sign(v),
        Fp8::E4m3fnuz => {
            let byte = encode_magnitude(2.0 * v);
            select(byte == 0, 0u32, byte | sign(v))
        }
    }
}

/// The OCP E4M3 byte nearest to |v|.
#[cube]
fn encode_magnitude(v: f32) -> u32 {
    let bits = min(magnitude(v), comptime!(448f32.to_bits()));
    let normal = ((bits + 0x0007_FFFF + (bits >> 20 & 1)) >> 20) - comptime!((127u32 - 7) << 3);
    // Below the smallest normal 2^-6 the steps are 2^-9, as between 2^14 and 2^15: the addition rounds.
    let subnormal =
        u32::reinterpret(f32::reinterpret(bits) + 16384f32) - comptime!(16384f32.to_bits());
    select(bits < comptime!((1f32 / 64.0).to_bits()), subnormal, normal)
}

#[cube]
fn sign(v: f32) -> u32 {
    u32::reinterpret(v) >> 24 & 0x80
}

/// The value of a UE8M0 scale: 2^(byte - 127), or NaN.
#[cube]
pub fn decode_scale(byte: u32) -> f32 {
    // 2^-127 is subnormal.
    let bits = select(byte == 0, 0x0040_0000u32, byte << 23);
    f32::reinterpret(select(byte == NAN_SCALE, comptime!(f32::NAN.to_bits()), bits))
}

/// Unpacks 8 FP8 values and multiplies them by their scale.
#[cube]
pub fn decode(word: CacheWord, scale: f32, x: &mut Array<f32>, at: usize, #[comptime] fp8: Fp8) {
    #[unroll]
    for i in 0..8usize {
        let byte = word.extract(i / 4) >> comptime!(8 * (i % 4) as u32) & 0xFF;
        x[at + i] = decode_byte(byte, fp8) * scale;
    }
}

/// The value of an FP8 byte. FNUZ patterns stand for half of what they stand for in OCP E4M3.
#[cube]
fn decode_byte(byte: u32, #[comptime] fp8: Fp8) -> f32 {
    let bias = comptime!(match fp8 {
        Fp8::E4m3fn => 7u32,
        Fp8::E4m3fnuz => 8u32,
    });
    let magnitude = byte & 0x7F;
    let normal = (magnitude << 20) + comptime!((127 - bias) << 23);
    // Below the smallest normal the mantissa counts steps of 2^(-bias - 2).
    let step = comptime!(f32::from_bits((127 - bias - 2) << 23));
    let subnormal = u32::reinterpret(f32::cast_from(magnitude) * step);
    let finite = select(magnitude < 8, subnormal, normal) | (byte & 0x80) << 24;
    let is_nan = match fp8 {
        Fp8::E4m3fn => magnitude == 0x7F,
        Fp8::E4m3fnuz => byte == 0x80,
    };
    f32::reinterpret(select(is_nan, comptime!(f32::NAN.to_bits()), finite))
}
