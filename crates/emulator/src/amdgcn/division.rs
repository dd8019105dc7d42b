//! The three steps of a division that is correctly rounded, as AMD's manuals give them.

/// Scales one of the two so that nothing in between overflows or is lost, and says whether
/// [`fmas`] must scale back. The sources are the number to scale, the denominator and the numerator.
pub fn scale([number, denominator, numerator]: [f32; 3]) -> (f32, bool) {
    let up = number * 2f32.powi(64);
    let is_denominator = number.to_bits() == denominator.to_bits();
    let is_numerator = number.to_bits() == numerator.to_bits();
    let inverse = 1.0 / f64::from(denominator);
    let tiny_inverse = inverse != 0.0 && inverse.abs() < f64::MIN_POSITIVE;
    let tiny_quotient = (numerator / denominator).is_subnormal();
    if numerator == 0.0 || denominator == 0.0 {
        (f32::NAN, false)
    } else if exponent(numerator) - exponent(denominator) >= 96 {
        (if is_denominator { up } else { number }, true)
    } else if denominator.is_subnormal() {
        (up, false)
    } else if tiny_inverse && tiny_quotient {
        (if is_denominator { up } else { number }, true)
    } else if tiny_inverse {
        (number * 2f32.powi(-64), false)
    } else if tiny_quotient {
        (if is_numerator { up } else { number }, true)
    } else if exponent(numerator) <= 23 {
        (up, false)
    } else {
        (number, false)
    }
}

/// The last correction of the quotient, scaled where [`scale`] said so.
pub fn fmas([a, b, c]: [f32; 3], scaled: bool) -> f32 {
    let quotient = a.mul_add(b, c);
    if scaled { quotient * 2f32.powi(32) } else { quotient }
}

/// The quotient, or what it is where a source is zero, infinite or no number.
pub fn fixup([quotient, denominator, numerator]: [f32; 3]) -> f32 {
    let sign = (denominator.to_bits() ^ numerator.to_bits()) & 0x8000_0000;
    let signed = |value: f32| f32::from_bits(value.abs().to_bits() | sign);
    if numerator.is_nan() {
        numerator
    } else if denominator.is_nan() {
        denominator
    } else if denominator == 0.0 && numerator == 0.0
        || denominator.is_infinite() && numerator.is_infinite()
    {
        f32::NAN
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f32::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else {
        signed(quotient)
    }
}

/// The biased exponent.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xFF) as i32
}
