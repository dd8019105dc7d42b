//! Conversions between f32 and 16 bits.

use super::support::*;
use crate::support::shared;
use mla_prologue::{
    burn::{round, widen},
    operator::Float16,
};
use rstest::rstest;

/// All 16-bit patterns widen to what they are, and round back to themselves; NaN stays one.
#[rstest]
fn conversions(#[values(Float16::Bf16, Float16::F16)] dtype: Float16) {
    let _guard = shared();
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let value = |bits: u16| match dtype {
        Float16::Bf16 => half::bf16::from_bits(bits).to_f32(),
        Float16::F16 => half::f16::from_bits(bits).to_f32(),
    };
    for (device, burn_device) in burn_devices() {
        let x = float::<1>(data(&patterns, [1 << 16], float16_type(dtype)), &burn_device);
        let wide = widen(x).expect("16 bits");
        let got: Vec<f32> = wide.clone().into_data().try_to_vec().expect("f32");
        let back = bytes(round(wide, dtype).expect("f32"));
        for bits in 0..=u16::MAX {
            let (want, got) = (value(bits), got[usize::from(bits)]);
            let same = want.to_bits() == got.to_bits() || (want.is_nan() && got.is_nan());
            assert!(same, "{bits:#06x} is {got} on {}", device.name());
            let at = 2 * usize::from(bits);
            let again = u16::from_le_bytes([back[at], back[at + 1]]);
            assert!(again == bits || (want.is_nan() && value(again).is_nan()), "{bits:#06x}");
        }
    }
}
