//! Reading the cache back: the kernel against the reference, bit for bit.

#[cfg(feature = "burn")]
mod burn;

use crate::{
    prologue::faults::ordinary,
    support::{exact_devices, i64s, shared, spec},
};
use mla_prologue::{
    kernel::{self, Device},
    operator::{
        CacheFormat, CacheLayout, Float16, Fp8, Index, PadScaleByte,
        gather::{BlockTable, Call, Problem, Spec, Tensors},
        prologue::Key,
    },
    reference,
};
use mla_prologue_cases::Executor;
use rstest::rstest;

const FORMATS: [CacheFormat; 7] = [
    CacheFormat::Fp8DsMla { fp8: Fp8::E4m3fn, pad_scale_byte: PadScaleByte::Zero },
    CacheFormat::Fp8DsMla { fp8: Fp8::E4m3fnuz, pad_scale_byte: PadScaleByte::Keep },
    CacheFormat::Mxfp8 { fp8: Fp8::E4m3fn },
    CacheFormat::Mxfp8 { fp8: Fp8::E4m3fnuz },
    CacheFormat::Rows16Bit,
    CacheFormat::RowsFp8 { fp8: Fp8::E4m3fn },
    CacheFormat::RowsFp8 { fp8: Fp8::E4m3fnuz },
];

/// A cache of random bytes, which are every scale, NaN and subnormal.
fn cache(format: CacheFormat, block_size: usize, seed: u64) -> (CacheLayout, Vec<u8>) {
    let dense = CacheLayout::new(format, block_size, 9);
    let layout = dense.with_stride(dense.block_stride + 5 * format.stride_unit());
    let mut bytes = vec![0; layout.bytes()];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    (layout, bytes)
}

fn gather(cache: CacheLayout, rows: usize, dtype: Float16, rounded: bool) -> Spec {
    let scale = matches!(cache.format, CacheFormat::RowsFp8 { .. }).then_some(0.37);
    Spec::new(cache, rows).dtype(dtype).rounded(rounded).scale(scale)
}

/// A call whose output is poisoned.
fn call(spec: Spec, kv_cache: &[u8], indices: &[u8], block_table: &[u8]) -> Call {
    let problem = spec.validate().expect("valid");
    let tensors = Tensors {
        kv_cache: kv_cache.to_vec(),
        indices: indices.to_vec(),
        block_table: block_table.to_vec(),
        out: vec![0xAA; problem.sizes().out],
    };
    Call::new(problem, tensors).expect("tensors that fit")
}

/// What the reference gathers.
pub fn reference_rows(spec: Spec, kv_cache: &[u8], indices: &[u8], block_table: &[u8]) -> Vec<u8> {
    let mut call = call(spec, kv_cache, indices, block_table);
    reference::gather::run(&mut call);
    call.into_tensors().out
}

/// Which NaN a NaN is, is not specified.
pub fn same(want: &[u8], got: &[u8], problem: &Problem) -> Option<usize> {
    let spec = problem.spec();
    let bytes = if spec.rounded { 2 } else { 4 };
    let infinity = match (spec.rounded, spec.dtype) {
        (false, _) => 0x7F80_0000,
        (true, Float16::Bf16) => 0x7F80,
        (true, Float16::F16) => 0x7C00,
    };
    let value = |chunk: &[u8]| {
        let mut wide = [0; 4];
        wide[..bytes].copy_from_slice(chunk);
        let bits = u32::from_le_bytes(wide);
        let magnitude = bits & (0xFFFF_FFFF >> (33 - 8 * bytes));
        if magnitude > infinity { u32::MAX } else { bits }
    };
    let pairs = want.chunks_exact(bytes).zip(got.chunks_exact(bytes));
    let first = pairs.into_iter().position(|(want, got)| value(want) != value(got));
    if want.len() == got.len() { first } else { Some(want.len().min(got.len())) }
}

fn check(device: &Device, spec: Spec, bytes: &[u8], indices: &[u8], table: &[u8]) {
    let want = reference_rows(spec, bytes, indices, table);
    let mut got = call(spec, bytes, indices, table);
    kernel::gather::run(device, &mut got).expect("the device runs");
    let differs = same(&want, &got.tensors().out, got.problem());
    assert_eq!(differs, None, "{spec:?} on {}", device.name());
}

/// Calls of every cache format, type and kind of index.
pub fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for (seed, format) in FORMATS.into_iter().enumerate() {
        for (dtype, rounded) in [(Float16::Bf16, true), (Float16::F16, false), (Float16::F16, true)]
        {
            let (layout, bytes) = cache(format, 4, seed as u64);
            let indices = i64s(-2..layout.capacity() as i64 + 3);
            let spec = gather(layout, indices.len() / 8, dtype, rounded);
            calls.push(call(spec, &bytes, &indices, &[]));
        }
        let (layout, bytes) = cache(format, 16, seed as u64);
        let tokens: Vec<u8> = (-3i32..36).flat_map(i32::to_le_bytes).collect();
        let table = i64s([3, -1, 8, 0, 5, 9]);
        let block_table = BlockTable { sequences: 3, blocks: 2, index_type: Index::I64 };
        let spec = gather(layout, 39, Float16::Bf16, false);
        let spec = spec.index_type(Index::I32).block_table(block_table);
        calls.push(call(spec, &bytes, &tokens, &table));
    }
    calls
}

#[rstest]
fn slots(
    #[values(Float16::Bf16, Float16::F16)] dtype: Float16,
    #[values(false, true)] rounded: bool,
    #[values(1, 16)] block_size: usize,
) {
    let _guard = shared();
    for device in exact_devices() {
        for (seed, format) in FORMATS.into_iter().enumerate() {
            let (layout, bytes) = cache(format, block_size, seed as u64);
            let all = -2..layout.capacity() as i64 + 3;
            let far = [i64::MAX, i64::MIN, 1 << 32, u32::MAX.into(), i32::MAX.into()];
            let indices = i64s(all.chain(far));
            let gather = gather(layout, indices.len() / 8, dtype, rounded);
            check(&device, gather, &bytes, &indices, &[]);
        }
    }
}

#[rstest]
fn tokens_of_sequences(
    #[values(Index::I64, Index::I32)] index: Index,
    #[values(1, 3)] sequences: usize,
    #[values(false, true)] rounded: bool,
) {
    let _guard = shared();
    let typed = |values: Vec<i64>| match index {
        Index::I64 => i64s(values),
        Index::I32 => values.into_iter().flat_map(|value| (value as i32).to_le_bytes()).collect(),
    };
    for device in exact_devices() {
        let (layout, bytes) = cache(FORMATS[0], 4, 7);
        let blocks = vec![3, -1, 8, 0, 9, 5, 1, i32::MAX.into(), 2, 7, 4, 6];
        let blocks = blocks[..4 * sequences].to_vec();
        let tokens: Vec<i64> = (0..sequences).flat_map(|_| -3..18).collect();
        let block_table = BlockTable { sequences, blocks: 4, index_type: index };
        let gather = gather(layout, tokens.len(), Float16::Bf16, rounded)
            .index_type(index)
            .block_table(block_table);
        check(&device, gather, &bytes, &typed(tokens), &typed(blocks));
    }
}

#[test]
fn nothing_is_read_of_no_rows() {
    let _guard = shared();
    let (layout, bytes) = cache(FORMATS[0], 4, 1);
    for device in exact_devices() {
        let mut call = call(Spec::new(layout, 0), &bytes, &[], &[]);
        kernel::gather::run(&device, &mut call).expect("no rows are valid");
        assert!(call.tensors().out.is_empty());
    }
}

#[rstest]
#[case::rows(base().rows(1 << 31), "the length of the indices")]
#[case::no_sequences(base().block_table(table(0)), "the row count of block_table")]
#[case::sequences(base().block_table(table(3)), "the row count of block_table")]
#[case::scale(base().scale(Some(1.0)), "kv_scale")]
fn invalid_specs_are_refused(#[case] spec: Spec, #[case] argument: &str) {
    assert_eq!(spec.validate().expect_err("invalid").argument, argument);
}

fn base() -> Spec {
    Spec::new(cache(FORMATS[0], 4, 1).0, 4)
}

fn table(sequences: usize) -> BlockTable {
    BlockTable { sequences, blocks: 1, index_type: Index::I32 }
}

/// What a call inserts comes back, and the block strides are honoured.
#[test]
fn what_was_inserted_is_read() {
    let _guard = shared();
    for device in exact_devices() {
        let (layout, _) = cache(FORMATS[4], 4, 3);
        let inserted = ordinary(spec(8).key(Key::new(8, layout)), 5);
        let output = Executor::Device(device.clone()).result(&inserted).expect("the device runs");
        let spec = gather(layout, 8, Float16::Bf16, true);
        let mut rows = call(spec, &output.kv_cache, &inserted.tensors().slot_mapping, &[]);
        kernel::gather::run(&device, &mut rows).expect("the device runs");
        for (row, slot) in rows.tensors().out.chunks_exact(1024).zip(inserted.slots()) {
            assert!(row == &output.kv_cache[layout.data(slot as usize)], "slot {slot}");
        }
    }
}
