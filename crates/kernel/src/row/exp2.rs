//! Powers of two, in arithmetic of our own: the devices' functions differ in the last bit.

use super::words::{INFINITY, magnitude};
use cubecl::prelude::*;

/// The coefficients of 2^f for |f| <= 1/2, the highest first.
const COEFFICIENTS: [u32; 7] =
    [0x3920_FDCD, 0x3AAF_9F2A, 0x3C1D_96A7, 0x3D63_5774, 0x3E75_FDEE, 0x3F31_7218, 0x3F80_0000];
/// log2(e).
const LOG2_E: f32 = f32::from_bits(0x3FB8_AA3B);
/// Below this, 2^t is taken as zero.
const LEAST: f32 = -125.0;
/// Adding and subtracting 1.5 * 2^23 rounds to an integer, which is then in the lowest bits of the sum.
const TO_INTEGER: f32 = 12_582_912.0;

/// 2^t for t up to 127: exactly 1 for 0, +0 below -125, NaN for NaN.
#[cube]
pub fn exp2(t: f32) -> f32 {
    let shifted = t + TO_INTEGER;
    let f = t - (shifted - TO_INTEGER);
    let mut power = f32::reinterpret(comptime!(COEFFICIENTS[0]).runtime());
    #[unroll]
    for i in 0..6usize {
        power = fma(power, f, comptime!(f32::from_bits(COEFFICIENTS[i + 1])));
    }
    let power = f32::reinterpret(u32::reinterpret(power) + (u32::reinterpret(shifted) << 23));
    let power = select(t < LEAST, 0.0f32, power);
    select(magnitude(t) > INFINITY, t, power)
}

/// e^x for an x that is not above 0, through [`exp2`].
#[cube]
pub fn exp(x: f32) -> f32 {
    // GPU compilers would make this product and the addition that follows it one operation, which rounds once. The product
    // has no sign to lose.
    exp2(f32::reinterpret(u32::reinterpret(x * LOG2_E) | 0x8000_0000))
}

/// e^x of each value, none of which is above 0.
#[cube]
pub fn exp_each<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let mut powers = Vector::<f32, N>::empty();
    #[unroll]
    for i in 0..N::value() {
        powers.insert(i, exp(x.extract(i)));
    }
    powers
}
