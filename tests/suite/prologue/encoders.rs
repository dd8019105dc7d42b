//! FP8 encoders, over every 16-bit pattern.

use crate::support::{exact_executors, float16s, i64s, identity_table, shared, spec};
use float8::F8E4M3;
use mla_prologue::{
    operator::{
        CacheFormat, CacheLayout, Float16, Fp8, HEAD_DIM, NOPE_DIM,
        prologue::{Call, Key, RotaryTable, Tensors},
    },
    reference::numbers::from_float16,
};
use mla_prologue_cases::Executor;
use rstest::rstest;

/// What each of the 65,536 patterns of a 16-bit type is stored as, in a cache of FP8 rows.
fn stored(dtype: Float16, fp8: Fp8, scale: f32, executor: &Executor) -> Vec<u8> {
    // RoPE would mix neighbours: the values that it leaves alone are used.
    let tokens = (1usize << 16).div_ceil(NOPE_DIM);
    let cache = CacheLayout::new(CacheFormat::RowsFp8 { fp8 }, 1, tokens);
    let problem = spec(tokens)
        .dtype(dtype)
        .table(RotaryTable::new(1))
        .query(None)
        .key(Key::new(tokens, cache).scale(Some(scale)))
        .validate()
        .expect("valid");
    let row = |token: usize| {
        let pattern = move |i: usize| {
            if i < NOPE_DIM { (token * NOPE_DIM + i).min(0xFFFF) as u16 } else { 0 }
        };
        (0..HEAD_DIM).map(pattern)
    };
    let tensors = Tensors {
        kv: float16s((0..tokens).flat_map(row)),
        positions: i64s(vec![0; tokens]),
        slot_mapping: i64s(0..tokens as i64),
        cos_sin_cache: identity_table(1),
        kv_cache: vec![0x55; problem.sizes().kv_cache],
        ..Tensors::default()
    };
    let mut call = Call::new(problem, tensors).expect("tensors that fit");
    executor.run(&mut call).expect("the executor runs");
    let cache = &call.tensors().kv_cache;
    let values = cache.chunks_exact(HEAD_DIM).flat_map(|row| &row[..NOPE_DIM]);
    values.take(1 << 16).copied().collect()
}

fn executors() -> Vec<Executor> {
    exact_executors().into_iter().chain([Executor::Reference]).collect()
}

#[rstest]
fn every_pattern_is_encoded_as_the_published_codec_does(
    #[values(Float16::Bf16, Float16::F16)] dtype: Float16,
    #[values(1.0, 0.037, 448.0, 3e-5)] scale: f32,
) {
    let _guard = shared();
    for executor in executors() {
        for (bits, byte) in stored(dtype, Fp8::E4m3fn, scale, &executor).into_iter().enumerate() {
            let x = from_float16(bits as u16, dtype);
            let want = F8E4M3::from_f32((x * (1.0 / scale)).clamp(-448.0, 448.0)).to_bits();
            let want = if x.is_finite() { want } else { 0x7F };
            assert_eq!(
                byte,
                want,
                "{dtype} {bits:#06x} ({x:e}) / {scale} on {}",
                executor.describe()
            );
        }
    }
}

/// The table was made with `ml_dtypes`, see `tests/data/fnuz.py`.
#[rstest]
fn every_pattern_is_encoded_as_fnuz(#[values(Float16::Bf16, Float16::F16)] dtype: Float16) {
    let _guard = shared();
    let table = include_bytes!("../../data/fnuz.bin");
    let (bf16, f16) = table.split_at(1 << 16);
    let table = if dtype == Float16::Bf16 { bf16 } else { f16 };
    for executor in executors() {
        let got = stored(dtype, Fp8::E4m3fnuz, 1.0, &executor);
        for (bits, (got, want)) in got.iter().zip(table).enumerate() {
            assert_eq!(got, want, "{dtype} {bits:#06x} on {}", executor.describe());
        }
    }
}

/// A power of two moves only the exponent, until values underflow or saturate.
#[rstest]
fn fnuz_at_other_scales_is_the_table_shifted(#[values(0.25, 16.0)] scale: f32) {
    let _guard = shared();
    let table = &include_bytes!("../../data/fnuz.bin")[..1 << 16];
    let shift = scale.log2() as i32;
    for executor in executors() {
        let got = stored(Float16::Bf16, Fp8::E4m3fnuz, scale, &executor);
        for bits in 0..=0xFFFFu16 {
            let exponent = i32::from(bits >> 7 & 0xFF);
            let shifted = exponent - shift;
            if exponent == 0 || exponent == 255 || !(1..255).contains(&shifted) {
                continue;
            }
            let same = bits & !(0xFF << 7) | (shifted as u16) << 7;
            assert_eq!(
                got[usize::from(bits)],
                table[usize::from(same)],
                "{bits:#06x} on {}",
                executor.describe()
            );
        }
    }
}
