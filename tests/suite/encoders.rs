//! FP8 encoders, over every 16-bit pattern.

use crate::support::{exact_targets, halves, i64s, identity_table, shared, spec};
use float8::F8E4M3;
use mla_prologue::{
    Call, Target,
    operator::{CacheFormat, CacheLayout, Fp8, HEAD_DIM, Half, Key, NOPE_DIM, RotaryTable, Spec},
    reference::numbers::from_half,
};
use rstest::rstest;

/// What each of the 65,536 patterns of a 16-bit type is stored as, in a cache of FP8 rows.
fn stored(half: Half, fp8: Fp8, scale: f32, target: &Target) -> Vec<u8> {
    // RoPE would mix neighbours: the values that it leaves alone are used.
    let tokens = (1usize << 16).div_ceil(NOPE_DIM);
    let format = CacheFormat::RowsFp8 { fp8 };
    let cache = CacheLayout { format, block_size: 1, block_stride: HEAD_DIM, num_blocks: tokens };
    let key = Key { scale: Some(scale), ..Key::new(tokens, cache) };
    let table = RotaryTable { rows: 1, ..spec(1).table };
    let problem = Spec { half, table, query: None, key: Some(key), ..spec(tokens) }
        .validate()
        .expect("sensible");
    let row = |token: usize| {
        let pattern = move |i: usize| {
            if i < NOPE_DIM { (token * NOPE_DIM + i).min(0xFFFF) as u16 } else { 0 }
        };
        (0..HEAD_DIM).map(pattern)
    };
    let call = Call {
        problem,
        q: Vec::new(),
        kv: halves((0..tokens).flat_map(row)),
        kv_norm_weight: Vec::new(),
        positions: i64s(vec![0; tokens]),
        slot_mapping: i64s(0..tokens as i64),
        cos_sin_cache: identity_table(1),
        kv_cache: vec![0x55; problem.cache_bytes()],
    };
    let cache = call.run(target).expect("the target runs").kv_cache;
    let values = cache.chunks_exact(HEAD_DIM).flat_map(|row| &row[..NOPE_DIM]);
    values.take(1 << 16).copied().collect()
}

fn targets() -> Vec<Target> {
    exact_targets().into_iter().chain([Target::Reference]).collect()
}

#[rstest]
fn every_pattern_is_encoded_as_the_published_codec_does(
    #[values(Half::Bf16, Half::F16)] half: Half,
    #[values(1.0, 0.037, 448.0, 3e-5)] scale: f32,
) {
    let _guard = shared();
    for target in targets() {
        for (bits, byte) in stored(half, Fp8::E4m3fn, scale, &target).into_iter().enumerate() {
            let x = from_half(bits as u16, half);
            let want = F8E4M3::from_f32((x * (1.0 / scale)).clamp(-448.0, 448.0)).to_bits();
            let want = if x.is_finite() { want } else { 0x7F };
            assert_eq!(byte, want, "{half} {bits:#06x} ({x:e}) / {scale} on {}", target.describe());
        }
    }
}

/// The table was made with `ml_dtypes`, see `tests/data/fnuz.py`.
#[rstest]
fn every_pattern_is_encoded_as_fnuz(#[values(Half::Bf16, Half::F16)] half: Half) {
    let _guard = shared();
    let table = include_bytes!("../data/fnuz.bin");
    let (bf16, f16) = table.split_at(1 << 16);
    let table = if half == Half::Bf16 { bf16 } else { f16 };
    for target in targets() {
        let got = stored(half, Fp8::E4m3fnuz, 1.0, &target);
        for (bits, (got, want)) in got.iter().zip(table).enumerate() {
            assert_eq!(got, want, "{half} {bits:#06x} on {}", target.describe());
        }
    }
}

/// A power of two moves only the exponent, until values underflow or saturate.
#[rstest]
fn fnuz_at_other_scales_is_the_table_shifted(#[values(0.25, 16.0)] scale: f32) {
    let _guard = shared();
    let table = &include_bytes!("../data/fnuz.bin")[..1 << 16];
    let shift = scale.log2() as i32;
    for target in targets() {
        let got = stored(Half::Bf16, Fp8::E4m3fnuz, scale, &target);
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
                target.describe()
            );
        }
    }
}
