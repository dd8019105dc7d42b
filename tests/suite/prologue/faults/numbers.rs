//! FP8 values and scales.

use super::{one_key, ordinary};
use crate::support::{cache, exact_executors, run_exact, shared, spec};
use mla_prologue::{
    operator::{CacheFormat, CacheLayout, Float16, Fp8, prologue::Key},
    reference::{
        cache::read,
        numbers::{from_float16, to_float16},
    },
};
use rstest::rstest;

/// Blocks whose scale is 1: the values stay as they are. Every pattern is in the module `encoders`.
#[test]
fn fault_09_fp8_values_from_256_up_are_exact_and_ties_go_to_even() {
    let _guard = shared();
    let table = [
        (256.0, 0x78),
        (288.0, 0x79),
        (416.0, 0x7D),
        (448.0, 0x7E), // exact
        (272.0, 0x78),
        (304.0, 0x7A),
        (432.0, 0x7E), // ties
        (0.001953125, 0x01),
        (0.0009765625, 0x00),
        (0.0029296875, 0x02),
        (-0.0, 0x80), // subnormal
    ];
    let values: Vec<u16> =
        table.iter().map(|(x, _)| to_float16(*x, Float16::Bf16)).chain([0; 53]).collect();
    let call = one_key(&values, Float16::Bf16, Key::new(1, cache(1, 1)));
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "from 256 up").kv_cache;
        for (i, (x, byte)) in table.iter().enumerate() {
            assert_eq!(got[i], *byte, "{x} on {}", executor.describe());
        }
        assert_eq!(got[576], 127, "the scale is 1");
    }
}

#[rstest]
fn fault_10_scales_next_to_448_times_a_power_of_two(
    #[values(Float16::Bf16, Float16::F16)] dtype: Float16,
) {
    let _guard = shared();
    let exponents = if dtype == Float16::Bf16 { -21..=119 } else { -21..=7 };
    for executor in exact_executors() {
        for k in exponents.clone() {
            let limit = to_float16(448.0 * 2f32.powi(k), dtype);
            for bits in [limit - 1, limit, limit + 1] {
                let call = one_key(&[bits], dtype, Key::new(1, cache(1, 1)));
                let got = run_exact(&call, &executor, "next to a limit").kv_cache;
                let above = i32::from(bits > limit);
                assert_eq!(
                    i32::from(got[576]),
                    127 + k + above,
                    "{bits:#06x} on {}",
                    executor.describe()
                );
            }
        }
    }
}

#[test]
fn fault_11_the_stored_scale_is_the_one_used() {
    let _guard = shared();
    let call = ordinary(spec(16), 11);
    let layout = call.problem().spec().key.expect("a key").cache;
    let kv = &call.tensors().kv;
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "scales").kv_cache;
        for (token, slot) in call.slots().enumerate() {
            let values = read(&layout, Float16::Bf16, None, &got, slot as usize);
            for (i, value) in values.into_iter().take(448).enumerate() {
                let at = (token * 512 + i) * 2;
                let x = from_float16(u16::from_le_bytes([kv[at], kv[at + 1]]), Float16::Bf16);
                let scale = f64::from(got[layout.scales(slot as usize)][i / 64]) - 127.0;
                // Half a step of E4M3 at this value: 2^-4 of its power of two, at least 2^-10.
                let step = (f64::from(x.abs()).log2() - scale).floor().max(-6.0) - 4.0;
                let error = f64::from(value - x).abs();
                assert!(error <= (step + scale).exp2(), "{x} reads back as {value}");
            }
        }
    }
}

#[test]
fn fault_12_fnuz_has_no_negative_zero() {
    let _guard = shared();
    let values: Vec<u16> =
        [-1e-6f32, -0.0, 0.0, 1.0].map(|x| to_float16(x, Float16::Bf16)).to_vec();
    for (fp8, underflow) in [(Fp8::E4m3fn, 0x80), (Fp8::E4m3fnuz, 0x00)] {
        let layout = CacheLayout::new(CacheFormat::RowsFp8 { fp8 }, 1, 1);
        let key = Key::new(1, layout).scale(Some(1.0));
        let blocks = Key::new(1, CacheLayout::new(CacheFormat::Mxfp8 { fp8 }, 1, 1));
        for executor in exact_executors() {
            for key in [key, blocks] {
                let got = run_exact(&one_key(&values, Float16::Bf16, key), &executor, "underflow")
                    .kv_cache;
                assert_eq!(got[..3], [underflow, underflow, 0], "{fp8} on {}", executor.describe());
            }
        }
    }
}

#[rstest]
#[case::nan(0x7FC0)]
#[case::infinity(0x7F80)]
#[case::negative_infinity(0xFF80)]
fn fault_18_a_nan_makes_its_block_nan_and_no_other(#[case] bits: u16) {
    let _guard = shared();
    let one = to_float16(1.0, Float16::Bf16);
    let mut values = vec![one; 512];
    values[3 * 64 + 5] = bits;
    let call = one_key(&values, Float16::Bf16, Key::new(1, cache(1, 1)));
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "a NaN").kv_cache;
        for block in 0..7 {
            let (scale, bytes) = (got[576 + block], &got[block * 64..(block + 1) * 64]);
            if block == 3 {
                assert_eq!(scale, 255);
                assert!(bytes.iter().all(|&byte| byte == 0x7F));
            } else {
                assert!(scale != 255 && bytes.iter().all(|&byte| byte != 0x7F), "block {block}");
            }
        }
    }
}

#[test]
fn fault_19_a_block_of_zeros_has_the_smallest_scale() {
    let _guard = shared();
    let call = one_key(&[0], Float16::Bf16, Key::new(1, cache(1, 1)));
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "zeros").kv_cache;
        assert_eq!(got[576..584], [105, 105, 105, 105, 105, 105, 105, 0]);
        assert!(got[..576].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn fault_20_the_fp8_format_is_part_of_the_cache() {
    let _guard = shared();
    let of = |fp8| CacheLayout::new(CacheFormat::Mxfp8 { fp8 }, 1, 1);
    assert_ne!(of(Fp8::E4m3fn), of(Fp8::E4m3fnuz));
    // Each reads back with its own format, on one device, in turn.
    let numbers: Vec<u16> = (1..32).map(|i| to_float16(i as f32, Float16::Bf16)).collect();
    for executor in exact_executors() {
        for fp8 in [Fp8::E4m3fn, Fp8::E4m3fnuz, Fp8::E4m3fn] {
            let call = one_key(&numbers[..1], Float16::Bf16, Key::new(1, of(fp8)));
            let got = run_exact(&call, &executor, "formats").kv_cache;
            let values = read(&of(fp8), Float16::Bf16, None, &got, 0);
            assert!(values.iter().all(|&x| x == 1.0), "{fp8} on {}", executor.describe());
        }
    }
}
