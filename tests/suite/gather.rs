//! Reading the cache back: the kernel against the unfused reader, bit for bit.

use crate::support::{exact_devices, i64s, shared};
use mla_prologue::{
    kernel::Device,
    operator::{BlockTable, CacheFormat, CacheLayout, Fp8, Gather, Half, Index, Key, PadScaleByte},
    reference,
};
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
    let exact = CacheLayout::min_stride(format, block_size).expect("a small cache");
    let unit = format.stride_unit();
    let block_stride = exact.next_multiple_of(unit) + 5 * unit;
    let layout = CacheLayout { format, block_size, block_stride, num_blocks: 9 };
    let mut bytes = vec![0; layout.bytes()];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    (layout, bytes)
}

fn gather(cache: CacheLayout, rows: usize, half: Half, rounded: bool) -> Gather {
    let scale = matches!(cache.format, CacheFormat::RowsFp8 { .. }).then_some(0.37);
    Gather { half, rounded, scale, ..Gather::new(cache, rows) }
}

/// Which NaN a NaN is, is not specified.
fn same(want: &[u8], got: &[u8], gather: &Gather) -> Option<usize> {
    let bytes = if gather.rounded { 2 } else { 4 };
    let infinity = match (gather.rounded, gather.half) {
        (false, _) => 0x7F80_0000,
        (true, Half::Bf16) => 0x7F80,
        (true, Half::F16) => 0x7C00,
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

fn check(device: &Device, gather: &Gather, bytes: &[u8], indices: &[u8], table: &[u8]) {
    let want = reference::gather(gather, bytes, indices, table).expect("the reference runs");
    let got = device.gather(gather, bytes, indices, table).expect("the device runs");
    let differs = same(&want, &got, gather);
    assert_eq!(differs, None, "{gather:?} on {}", device.name());
}

#[rstest]
fn slots(
    #[values(Half::Bf16, Half::F16)] half: Half,
    #[values(false, true)] rounded: bool,
    #[values(1, 16)] block_size: usize,
) {
    let _guard = shared();
    for device in exact_devices() {
        for (seed, format) in FORMATS.into_iter().enumerate() {
            let (layout, bytes) = cache(format, block_size, seed as u64);
            let all = -2..layout.slots() as i64 + 3;
            let far = [i64::MAX, i64::MIN, 1 << 32, u32::MAX.into(), i32::MAX.into()];
            let indices = i64s(all.chain(far));
            let gather = gather(layout, indices.len() / 8, half, rounded);
            check(&device, &gather, &bytes, &indices, &[]);
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
        let block_table = Some(BlockTable { sequences, blocks: 4, index });
        let gather = Gather {
            indices: index,
            block_table,
            ..gather(layout, tokens.len(), Half::Bf16, rounded)
        };
        check(&device, &gather, &bytes, &typed(tokens), &typed(blocks));
    }
}

#[test]
fn nothing_is_read_of_no_rows() {
    let _guard = shared();
    let (layout, bytes) = cache(FORMATS[0], 4, 1);
    for device in exact_devices() {
        let got = device.gather(&Gather::new(layout, 0), &bytes, &[], &[]).expect("sensible");
        assert!(got.is_empty());
    }
}

#[rstest]
#[case::rows(Gather { rows: 1 << 31, ..base() }, "the length of the indices")]
#[case::no_sequences(Gather { block_table: table(0), ..base() }, "the row count of block_table")]
#[case::sequences(Gather { block_table: table(3), ..base() }, "the row count of block_table")]
#[case::scale(Gather { scale: Some(1.0), ..base() }, "kv_scale")]
fn what_makes_no_sense_is_refused(#[case] gather: Gather, #[case] argument: &str) {
    assert_eq!(gather.validate().expect_err("no sense").argument, argument);
}

fn base() -> Gather {
    Gather::new(cache(FORMATS[0], 4, 1).0, 4)
}

fn table(sequences: usize) -> Option<BlockTable> {
    Some(BlockTable { sequences, blocks: 1, index: Index::I32 })
}

/// What a call inserts comes back, and the block strides are honoured.
#[test]
fn what_was_inserted_is_read() {
    let _guard = shared();
    for device in exact_devices() {
        let spec = crate::support::spec(8);
        let (layout, _) = cache(FORMATS[4], 4, 3);
        let spec = mla_prologue::operator::Spec { key: Some(Key::new(8, layout)), ..spec };
        let call = crate::faults::ordinary(spec, 5);
        let target = mla_prologue::Target::Device(Device::open(device.name()).expect("it is open"));
        let output = call.run(&target).expect("the device runs");
        let gather = gather(layout, 8, Half::Bf16, true);
        let rows =
            device.gather(&gather, &output.kv_cache, &call.slot_mapping, &[]).expect("sensible");
        let inputs = call.inputs();
        let slots = inputs.slots(&call.problem);
        for (row, slot) in rows.chunks_exact(1024).zip(slots) {
            assert!(row == &output.kv_cache[layout.data(slot as usize)], "slot {slot}");
        }
    }
}
