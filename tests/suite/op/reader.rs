//! The way back from the cache, and conversions.

use super::support::*;
use crate::{
    faults::ordinary,
    support::{i64s, shared, spec},
};
use burn::tensor::Tensor;
use mla_prologue::{
    Target,
    model::{Reader, round, widen},
    operator::Half,
};
use rstest::rstest;

#[test]
fn the_reader_reads_what_was_inserted() {
    let _guard = shared();
    let call = ordinary(spec(9), 9);
    let layout = call.problem.key.expect("it has keys").cache;
    let want = |indices: &[u8], rows| {
        let gather = mla_prologue::operator::Gather::new(layout, rows);
        let inserted = call.run(&Target::Reference).expect("the reference runs").kv_cache;
        mla_prologue::reference::gather(&gather, &inserted, indices, &[]).expect("sensible")
    };
    for (device, burn_device) in burn_devices() {
        let mut tensors = Tensors::new(&call, &burn_device);
        tensors.run();
        let reader = Reader::new(layout);
        let slots = tensors.tokens.slot_mapping.clone();
        let rows = reader.slots(tensors.kv_cache.clone(), slots).expect("the tensors are right");
        assert!(bytes(rows) == want(&call.slot_mapping, 9), "slots on {}", device.name());
        let tokens = Tensor::from_ints([5, 0, -1], &burn_device);
        let table = Tensor::from_ints([[2, 1]], &burn_device);
        let rows = reader.tokens(tensors.kv_cache, tokens, table).expect("the tensors are right");
        // Token 5 is token 1 of the second block in the table, block 1; token 0 of the first, block 2.
        assert!(bytes(rows) == want(&i64s([5, 8, -1]), 3), "tokens on {}", device.name());
    }
}

/// All 16-bit patterns widen to what they are, and round back to themselves; NaN stays one.
#[rstest]
fn conversions(#[values(Half::Bf16, Half::F16)] half: Half) {
    let _guard = shared();
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let value = |bits: u16| match half {
        Half::Bf16 => half::bf16::from_bits(bits).to_f32(),
        Half::F16 => half::f16::from_bits(bits).to_f32(),
    };
    for (device, burn_device) in burn_devices() {
        let x = float::<1>(data(&patterns, [1 << 16], half_type(half)), &burn_device);
        let wide = widen(x).expect("16 bits");
        let got: Vec<f32> = wide.clone().into_data().try_to_vec().expect("f32");
        let back = bytes(round(wide, half).expect("f32"));
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
