//! The steps of a division that is correctly rounded: a reciprocal, refined by multiply-adds, between these.

/// Scales one of the two so that nothing in between overflows or is lost. The sources are the number to scale, the
/// denominator and the numerator.
///
/// # Errors
/// Numbers of which one would be scaled: what the manuals say of that is not what the hardware does, and nothing
/// here divides by such.
pub fn scale([number, denominator, numerator]: [f32; 3]) -> Result<f32, String> {
    let special = |x: f32| x == 0.0 || !x.is_finite();
    let quotient = numerator / denominator;
    let exponent = |x: f32| (x.to_bits() >> 23 & 0xFF) as i32;
    let extreme = |x: f32| !x.is_normal();
    let scaled = exponent(numerator) - exponent(denominator) >= 96
        || exponent(numerator) <= 23
        || [denominator, 1.0 / denominator, quotient].into_iter().any(extreme);
    if !special(numerator) && !special(denominator) && scaled {
        return Err(format!("{numerator:e} / {denominator:e} must be scaled"));
    }
    Ok(number)
}

/// The last correction of the quotient; [`scale`] has scaled nothing.
pub fn fmas([a, b, c]: [f32; 3]) -> f32 {
    a.mul_add(b, c)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// LLVM's sequence, with a reciprocal that is one unit off either way.
    fn divide(numerator: f32, denominator: f32, off: fn(f32) -> f32) -> Result<f32, String> {
        let d = scale([denominator, denominator, numerator])?;
        let n = scale([numerator, denominator, numerator])?;
        let r = off(1.0 / d);
        let r = (-d).mul_add(r, 1.0).mul_add(r, r);
        let q = n * r;
        let q = (-d).mul_add(q, n).mul_add(r, q);
        let rest = (-d).mul_add(q, n);
        Ok(fixup([fmas([rest, r, q]), denominator, numerator]))
    }

    #[test]
    fn quotients_are_correctly_rounded_or_refused() {
        let values = [1.0, -3.0, 7.5, 1e-20, 1e20, 0.1, 0.0, f32::INFINITY, 1e-40, 2f32.powi(127)];
        let mut refused = 0;
        for (n, d) in values.iter().flat_map(|n| values.iter().map(move |d| (*n, *d))) {
            for off in [|x| x, f32::next_up, f32::next_down] as [fn(f32) -> f32; 3] {
                match divide(n, d, off) {
                    Ok(q) => assert!(
                        q == n / d || (q.is_nan() && (n / d).is_nan()),
                        "{n:e} / {d:e} = {q:e}"
                    ),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!((1..150).contains(&refused), "{refused} of 300 refused");
    }
}
