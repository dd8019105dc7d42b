//! Quantization to FP8, through the crate `float8`.

use float8::F8E4M3;
use mla_prologue_operator::{Fp8, QUANT_FLOOR};
use rayon::prelude::*;

/// The UE8M0 scale of a block that holds a NaN or an infinity.
const NAN_SCALE: u8 = 255;

/// One block: its UE8M0 scale, a byte that is 127 plus the exponent of the scale, and the bytes of its values.
/// Values times the scale's inverse are at most [`Fp8::max`] and use at least half of that.
pub fn block(x: &[f32], fp8: Fp8) -> (u8, Vec<u8>) {
    if x.iter().any(|x| !x.is_finite()) {
        return (NAN_SCALE, vec![fp8.nan(); x.len()]);
    }
    let absmax = x.iter().fold(QUANT_FLOOR, |absmax, x| absmax.max(x.abs()));
    let exponent = scale_exponent(absmax, fp8);
    let inverse = f32::from_bits((127 - exponent).cast_unsigned() << 23);
    (
        u8::try_from(127 + exponent).unwrap_or(NAN_SCALE),
        x.iter().map(|x| encode(x * inverse, fp8)).collect(),
    )
}

/// ceil(log2(absmax / max)), from the bits of `absmax`: max is 1.75 times a power of two, so the
/// mantissa alone tells whether `absmax` is above it.
pub fn scale_exponent(absmax: f32, fp8: Fp8) -> i32 {
    let bits = absmax.to_bits();
    let exponent = (bits >> 23).cast_signed() - 127;
    let above = bits & 0x7F_FFFF > 0x60_0000;
    exponent - fp8.max_exponent().cast_signed() + i32::from(above)
}

/// Values with one scale for the whole tensor. What is not finite becomes NaN.
pub fn with_scale(x: &[f32], scale: f32, fp8: Fp8) -> Vec<u8> {
    let inverse = 1.0 / scale;
    x.par_iter()
        .map(|&x| if x.is_finite() { encode(x * inverse, fp8) } else { fp8.nan() })
        .collect()
}

/// The nearest FP8 value, ties to even; beyond the largest, the largest. `x` is not NaN.
pub fn encode(x: f32, fp8: Fp8) -> u8 {
    let x = x.clamp(-fp8.max(), fp8.max());
    match fp8 {
        Fp8::E4m3fn => F8E4M3::from_f32(x).to_bits(),
        // The same pattern stands for half the value, and what would be -0 is NaN.
        Fp8::E4m3fnuz => match F8E4M3::from_f32(2.0 * x).to_bits() {
            0x80 => 0,
            bits => bits,
        },
    }
}

/// The value of an FP8 byte.
pub fn decode(bits: u8, fp8: Fp8) -> f32 {
    match fp8 {
        Fp8::E4m3fn => F8E4M3::from_bits(bits).to_f32(),
        Fp8::E4m3fnuz if bits == fp8.nan() => f32::NAN,
        // 0x7F and 0xFF are numbers here, and NaN in the codec.
        Fp8::E4m3fnuz if bits & 0x7F == 0x7F => {
            f32::copysign(240.0, if bits == 0x7F { 1.0 } else { -1.0 })
        }
        Fp8::E4m3fnuz => F8E4M3::from_bits(bits).to_f32() / 2.0,
    }
}

/// The value of a UE8M0 scale: a power of two, or NaN.
pub fn decode_scale(byte: u8) -> f32 {
    if byte == NAN_SCALE { f32::NAN } else { f64::powi(2.0, i32::from(byte) - 127) as f32 }
}
