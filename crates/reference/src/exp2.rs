//! Powers of two, in arithmetic of our own: library functions differ in the last bit from device to device.

/// The coefficients of 2^f for |f| <= 1/2, the highest first.
pub const COEFFICIENTS: [u32; 7] =
    [0x3920_FDCD, 0x3AAF_9F2A, 0x3C1D_96A7, 0x3D63_5774, 0x3E75_FDEE, 0x3F31_7218, 0x3F80_0000];
/// log2(e).
pub const LOG2_E: f32 = f32::from_bits(0x3FB8_AA3B);
/// Below this, 2^t is taken as zero.
pub const LEAST: f32 = -125.0;
/// Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even.
pub const TO_INTEGER: f32 = 12_582_912.0;

/// 2^t for t up to 127, within one unit in the last place: exactly 1 for 0, +0 below [`LEAST`], NaN for NaN.
pub fn exp2(t: f32) -> f32 {
    if t.is_nan() {
        return t;
    }
    if t < LEAST {
        return 0.0;
    }
    let n = (t + TO_INTEGER) - TO_INTEGER;
    let f = t - n;
    let [highest, rest @ ..] = COEFFICIENTS.map(f32::from_bits);
    let mantissa = rest.iter().fold(highest, |sum, &coefficient| sum.mul_add(f, coefficient));
    let exponent = (n as i32) << 23;
    f32::from_bits(mantissa.to_bits().wrapping_add_signed(exponent))
}

/// e^x, through [`exp2`].
pub fn exp(x: f32) -> f32 {
    exp2(x * LOG2_E)
}
