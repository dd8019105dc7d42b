//! The operator on Burn's tensors, with and without Fusion, against the definition.

use crate::{
    faults::ordinary,
    support::{alone, cache, exact_devices, i64s, shared, spec},
};
use burn::{
    backend::ops::{FloatTensorOps, IntTensorOps},
    tensor::{DType, Device as BurnDevice, Int, Tensor, TensorData, capture, kind::Basic},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue::{
    Call, Output, Target, catalogue,
    kernel::Device,
    model::{PaddedQueries, Prologue, PrologueOps, Reader, Tokens, round, widen},
    operator::{CacheFormat, Gather, HEAD_DIM, Half, Index, Key, Query, RotaryType, Spec, Strides},
    reference,
    verify::{Rule, compare},
};
use rstest::rstest;
use std::cell::RefCell;

fn half_type(half: Half) -> DType {
    match half {
        Half::Bf16 => DType::BF16,
        Half::F16 => DType::F16,
    }
}

fn index_type(index: Index) -> DType {
    match index {
        Index::I64 => DType::I64,
        Index::I32 => DType::I32,
    }
}

fn table_type(number: RotaryType) -> DType {
    match number {
        RotaryType::F32 => DType::F32,
        RotaryType::Bf16 => DType::BF16,
        RotaryType::F16 => DType::F16,
    }
}

fn data<const D: usize>(bytes: &[u8], shape: [usize; D], dtype: DType) -> TensorData {
    TensorData::from_bytes_vec(bytes.to_vec(), shape, dtype)
}

fn float<const D: usize>(data: TensorData, device: &BurnDevice) -> Tensor<D> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

fn int<const D: usize>(data: TensorData, device: &BurnDevice) -> Tensor<D, Int> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

/// Rows of 512 values at a stride, as a tensor that holds what lies between them too.
fn rows(bytes: &[u8], rows: usize, stride: usize, half: Half) -> TensorData {
    let mut padded = bytes.to_vec();
    padded.resize(2 * rows * stride, 0);
    data(&padded, [rows, stride], half_type(half))
}

/// The tensors of a call on a Burn device.
struct Tensors {
    prologue: Prologue,
    q: Option<Tensor<3>>,
    kv: Tensor<2>,
    tokens: Tokens,
    kv_cache: Tensor<2, Int>,
}

impl Tensors {
    fn new(call: &Call, device: &BurnDevice) -> Self {
        let problem = &call.problem;
        let key = problem.key.expect("calls without keys are left out");
        let query = problem.query;
        let half = problem.half;
        let count = problem.tokens;
        let prologue = Prologue {
            half,
            eps: problem.eps,
            table_layout: problem.table.layout,
            query: query.unwrap_or(Query::new(1, 1)),
            key,
            kv_norm_weight: key
                .norm
                .map(|_| float(data(&call.kv_norm_weight, [HEAD_DIM], half_type(half)), device)),
            ..Prologue::new(1, 1, key.cache)
        };
        let q = query.map(|query| {
            let Strides { token, head } = query.strides.unwrap_or(Strides::dense(query.heads));
            let tokens = float::<2>(rows(&call.q, count, token, half), device);
            let heads: Tensor<3> =
                tokens.slice([0..count, 0..query.heads * head]).reshape([count, query.heads, head]);
            heads.slice([0..count, 0..query.heads, 0..HEAD_DIM])
        });
        let stride = key.row_stride.unwrap_or(HEAD_DIM);
        let kv = float::<2>(rows(&call.kv, count, stride, half), device);
        let table = table_type(problem.table.number);
        let cache = [key.cache.num_blocks, key.cache.block_stride];
        Self {
            prologue,
            q,
            kv: kv.slice([0..count, 0..HEAD_DIM]),
            tokens: Tokens {
                positions: int(
                    data(&call.positions, [count], index_type(problem.positions)),
                    device,
                ),
                slot_mapping: int(
                    data(&call.slot_mapping, [key.slots], index_type(key.slot_type)),
                    device,
                ),
                cos_sin_cache: float(
                    data(&call.cos_sin_cache, [problem.table.rows, 64], table),
                    device,
                ),
            },
            kv_cache: int(data(&call.kv_cache, cache, DType::U8), device),
        }
    }

    fn run(&mut self) -> Output {
        let (prologue, kv) = (&self.prologue, self.kv.clone());
        let q_out = match self.q.clone() {
            Some(q) => {
                let q_out = prologue.run(q, kv, &self.tokens, &mut self.kv_cache);
                bytes(q_out.expect("the tensors are right"))
            }
            None => {
                let inserted = prologue.insert(kv, &self.tokens, &mut self.kv_cache);
                inserted.expect("the tensors are right");
                Vec::new()
            }
        };
        Output { q_out, kv_cache: bytes(self.kv_cache.clone()) }
    }
}

fn bytes<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Vec<u8> {
    tensor.into_data().as_bytes().to_vec()
}

fn burn_devices() -> Vec<(Device, BurnDevice)> {
    let devices = exact_devices().into_iter();
    let both = |device: Device| {
        let burn = BurnDevice::new(device.cubecl().clone());
        (device, burn)
    };
    devices.map(both).collect()
}

/// The op through Burn's dispatch, which has Fusion.
fn fused(call: &Call, device: &BurnDevice) -> Output {
    Tensors::new(call, device).run()
}

/// The op on the backend itself, which has not.
fn unfused(call: &Call, device: &Device) -> Output {
    let problem = call.problem;
    let key = problem.key.expect("calls without keys are left out");
    let device = device.cubecl();
    let float = |data| CubeBackend::float_from_data(data, device);
    let int = |data| CubeBackend::int_from_data(data, device);
    let half = half_type(problem.half);
    let spec = Spec {
        query: problem.query.map(|query| Query { strides: None, ..query }),
        key: Some(Key { row_stride: None, ..key }),
        ..*problem
    };
    let problem = spec.validate().expect("sensible");
    let kv =
        float(rows(&call.kv, problem.tokens, key.row_stride.unwrap_or(HEAD_DIM), problem.half));
    let kv = CubeBackend::float_slice(kv, &[(0..problem.tokens).into(), (0..HEAD_DIM).into()]);
    let table = table_type(problem.table.number);
    let table = float(data(&call.cos_sin_cache, [problem.table.rows, 64], table));
    let weight = match key.norm {
        Some(_) => float(data(&call.kv_norm_weight, [HEAD_DIM], half)),
        None => table.clone(),
    };
    let positions = int(data(&call.positions, [problem.tokens], index_type(problem.positions)));
    let slots = int(data(&call.slot_mapping, [key.slots], index_type(key.slot_type)));
    let shape = [key.cache.num_blocks, key.cache.block_stride];
    let cache = int(data(&call.kv_cache, shape, DType::U8));
    let Some(query) = problem.query else {
        let cache = CubeBackend::insert_keys(kv, weight, positions, slots, table, cache, problem);
        return Output { q_out: Vec::new(), kv_cache: read(cache) };
    };
    let strides = call.problem.query.and_then(|query| query.strides);
    let Strides { token, head } = strides.unwrap_or(Strides::dense(query.heads));
    // A view of a flat buffer, with the strides of the call.
    let flat = rows(&call.q, problem.tokens, token, problem.half);
    let mut q = float(data(flat.as_bytes(), [problem.tokens * token], half));
    q.meta = Box::new(cubecl::zspace::metadata::Metadata::new(
        [problem.tokens, query.heads, HEAD_DIM],
        [token, head, 1],
    ));
    let empty = TensorData::from_bytes_vec(
        vec![0xAA; problem.q_out_bytes()],
        [problem.tokens, query.padded_heads, HEAD_DIM],
        half,
    );
    let (q_out, cache) = CubeBackend::prologue(
        q,
        kv,
        weight,
        positions,
        slots,
        table,
        cache,
        float(empty),
        false,
        problem,
    );
    Output { q_out: read(q_out), kv_cache: read(cache) }
}

fn assert_exact(call: &Call, got: &Output, what: &str) {
    let want = call.run(&Target::Reference).expect("the reference runs");
    let found = compare(call, &want, got, Rule::Exact);
    assert!(found.holds(), "{what}: {:?}", found.first);
}

/// Every pair of modes, and shapes of the matrix; Fusion and not.
#[test]
fn equals_the_definition() {
    let _guard = shared();
    let matrix = catalogue::matrix();
    let cases = catalogue::modes().into_iter().chain(matrix.into_iter().step_by(9));
    let mut left_out = [0, 0];
    for case in cases {
        let call = case.call().expect("a sensible case");
        if call.problem.key.is_none() {
            left_out[0] += 1;
            continue;
        }
        if call.problem.query.is_some_and(|query| query.scale.is_some()) {
            left_out[1] += 1;
            continue;
        }
        for (device, burn_device) in burn_devices() {
            let name = format!("{case} on {}", device.name());
            assert_exact(&call, &fused(&call, &burn_device), &format!("{name}, Fusion"));
            assert_exact(&call, &unfused(&call, &device), &format!("{name}, no Fusion"));
        }
    }
    println!("{} calls without keys left out: the operator has keys", left_out[0]);
    println!("{} calls with queries in FP8 left out: Burn has no such type", left_out[1]);
}

#[test]
fn no_tokens() {
    let _guard = shared();
    let call = ordinary(spec(0), 1);
    for (device, burn_device) in burn_devices() {
        assert_exact(&call, &fused(&call, &burn_device), "Fusion");
        assert_exact(&call, &unfused(&call, &device), "no Fusion");
    }
}

/// A clone of the cache keeps its contents; without one, no other cache is made.
#[test]
fn a_shared_cache_is_copied() {
    let _guard = shared();
    let call = ordinary(spec(9), 2);
    for (device, burn_device) in burn_devices() {
        let mut tensors = Tensors::new(&call, &burn_device);
        let kept = tensors.kv_cache.clone();
        assert_exact(&call, &tensors.run(), device.name());
        assert!(bytes(kept) == call.kv_cache, "the clone changed on {}", device.name());
    }
}

/// Also where the allocator put more between the blocks than the layout says.
#[rstest]
fn a_cache_of_ones_own_is_updated_in_place(#[values(0, 24)] apart: usize) {
    let _guard = shared();
    let call = ordinary(spec(9), 2);
    let want = call.run(&Target::Reference).expect("the reference runs").kv_cache;
    for (device, _) in burn_devices() {
        let cubecl = device.cubecl();
        let int = |data| CubeBackend::int_from_data(data, cubecl);
        let float = |data| CubeBackend::float_from_data(data, cubecl);
        let table = float(data(&call.cos_sin_cache, [call.problem.table.rows, 64], DType::F32));
        let insert = |cache| {
            CubeBackend::insert_keys(
                float(data(&call.kv, [9, HEAD_DIM], DType::BF16)),
                table.clone(),
                int(data(&call.positions, [9], DType::I64)),
                int(data(&call.slot_mapping, [9], DType::I64)),
                table.clone(),
                cache,
                Spec { query: None, ..*call.problem }.validate().expect("sensible"),
            )
        };
        let layout = call.problem.key.expect("it has keys").cache;
        let (blocks, block) = (layout.num_blocks, layout.block_stride);
        let pitch = block + apart;
        let mut flat = vec![0xAA; blocks * pitch];
        for (to, from) in flat.chunks_exact_mut(pitch).zip(call.kv_cache.chunks_exact(block)) {
            to[..block].copy_from_slice(from);
        }
        let mut cache = int(data(&flat, [flat.len()], DType::U8));
        cache.meta = Box::new(cubecl::zspace::metadata::Metadata::new([blocks, block], [pitch, 1]));
        let memory = |cache: &CubeTensor| std::ptr::from_ref(cache.handle.memory.descriptor());
        let before = memory(&cache);
        let cache = insert(cache);
        assert_eq!(before, memory(&cache), "copied on {}", device.name());
        let clone = cache.clone();
        let cache = insert(cache);
        assert_ne!(memory(&clone), memory(&cache), "not copied on {}", device.name());
        assert!(read(cache) == want && read(clone) == want, "on {}", device.name());
    }
}

fn read(tensor: CubeTensor) -> Vec<u8> {
    burn_cubecl::ops::into_data_sync(tensor).as_bytes().to_vec()
}

/// An output that is used again: its added heads are not written again, and a clone of it stays as it is.
#[test]
fn an_output_is_used_again() {
    let _guard = shared();
    for (device, burn_device) in burn_devices() {
        let mut q_out = PaddedQueries::new(9, 8, Half::Bf16, &burn_device);
        let mut kept: Option<(Tensor<3>, Vec<u8>)> = None;
        for (seed, heads) in [3, 3, 5, 2, 2].into_iter().enumerate() {
            let spec = Spec { query: Some(Query::new(heads, 8)), ..spec(9) };
            let call = ordinary(spec, seed as u64);
            let Tensors { prologue, q, kv, tokens, mut kv_cache } =
                Tensors::new(&call, &burn_device);
            let q = q.expect("the call has queries");
            let run = prologue.run_into(q, kv, &tokens, &mut kv_cache, &mut q_out);
            run.expect("the tensors are right");
            let got = Output { q_out: bytes(q_out.tensor().clone()), kv_cache: bytes(kv_cache) };
            assert_exact(&call, &got, &format!("call {seed} on {}", device.name()));
            if let Some((kept, before)) = kept.take() {
                assert!(bytes(kept) == before, "the clone changed on {}", device.name());
            }
            kept = (seed == 2).then(|| (q_out.tensor().clone(), got.q_out));
        }
    }
}

/// What tensor-parallel ranks compute of their heads is what one computes of all.
#[test]
fn ranks_have_the_rows_of_the_whole() {
    let _guard = shared();
    let call = ordinary(Spec { query: Some(Query::new(4, 4)), ..spec(9) }, 12);
    for (device, burn_device) in burn_devices() {
        let whole = fused(&call, &burn_device);
        for rank in 0..2 {
            let mut tensors = Tensors::new(&call, &burn_device);
            let q = tensors.q.take().expect("the call has queries");
            tensors.q = Some(q.slice([0..9, 2 * rank..2 * rank + 2, 0..HEAD_DIM]));
            tensors.prologue.query = Query::new(2, 8);
            let share = tensors.run();
            assert!(share.kv_cache == whole.kv_cache, "rank {rank} on {}", device.name());
            let rows = share.q_out.chunks_exact(8 * 1024).zip(whole.q_out.chunks_exact(4 * 1024));
            for (share, whole) in rows {
                assert!(share[..2048] == whole[2048 * rank..][..2048], "rank {rank}");
            }
        }
    }
}

#[test]
fn f32_is_rounded_first() {
    let _guard = shared();
    for half in [Half::Bf16, Half::F16] {
        let call = ordinary(Spec { half, ..spec(5) }, 3);
        for (device, burn_device) in burn_devices() {
            let mut tensors = Tensors::new(&call, &burn_device);
            tensors.q = tensors.q.map(|q| widen(q).expect("16 bits"));
            tensors.kv = widen(tensors.kv).expect("16 bits");
            assert_exact(&call, &tensors.run(), device.name());
        }
    }
}

/// Queries that lie head by head, as a matrix product of all heads leaves them, and rows that are not dense.
#[test]
fn views_are_read() {
    let _guard = shared();
    let call = ordinary(spec(7), 4);
    for (device, burn_device) in burn_devices() {
        let mut tensors = Tensors::new(&call, &burn_device);
        let q = tensors.q.take().expect("the call has queries");
        let by_head = round(widen(q.clone()).expect("16 bits").swap_dims(0, 1) + 0.0, Half::Bf16);
        tensors.q = Some(by_head.expect("f32").swap_dims(0, 1));
        assert_exact(&call, &tensors.run(), &format!("swapped, {}", device.name()));
        let mut tensors = Tensors::new(&call, &burn_device);
        let by_value = round(widen(q).expect("16 bits").swap_dims(1, 2) + 0.0, Half::Bf16);
        tensors.q = Some(by_value.expect("f32").swap_dims(1, 2));
        assert_exact(&call, &tensors.run(), &format!("transposed, {}", device.name()));
    }
}

#[test]
fn unchecked_is_the_same_and_survives_bad_indices() {
    let _guard = shared();
    let call = ordinary(spec(9), 5);
    for (device, burn_device) in burn_devices() {
        let mut tensors = Tensors::new(&call, &burn_device);
        tensors.prologue = tensors.prologue.unchecked();
        assert_exact(&call, &tensors.run(), device.name());
        let mut tensors = Tensors::new(&call, &burn_device);
        tensors.prologue = tensors.prologue.unchecked();
        tensors.tokens.slot_mapping = int(data(&i64s([1 << 40; 9]), [9], DType::I64), &burn_device);
        assert!(tensors.run().kv_cache == call.kv_cache, "inserted on {}", device.name());
    }
}

#[test]
fn warmed_up() {
    let _guard = shared();
    let call = ordinary(spec(9), 6);
    for (device, burn_device) in burn_devices() {
        let mut tensors = Tensors::new(&call, &burn_device);
        let warm = tensors.prologue.warm_up(&tensors.tokens, &mut tensors.kv_cache);
        warm.expect("the tensors are right");
        assert!(bytes(tensors.kv_cache.clone()) == call.kv_cache, "inserted on {}", device.name());
        assert_exact(&call, &tensors.run(), device.name());
    }
}

type Spoil = fn(&mut Tensors, &BurnDevice);

/// What is wrong with the tensors, and what the error begins with.
const WRONG: &[(Spoil, &str)] = &[
    (|t, _| t.prologue.query.heads = 2, "the shape of q"),
    (|t, _| t.prologue.query.padded_heads = 2, "padded_heads"),
    (|t, _| t.prologue.query.padded_heads = usize::MAX, "padded_heads"),
    (|t, _| t.prologue.query.padded_heads = 1 << 30, "q_out"),
    (|t, _| t.prologue.eps = f32::NAN, "eps"),
    (|t, d| t.kv = Tensor::zeros([9, 511], (d, DType::BF16)), "the shape of kv"),
    (|t, d| t.kv = Tensor::zeros([8, 512], (d, DType::BF16)), "the shape of q"),
    (|t, d| t.kv = Tensor::zeros([9, 512], (d, DType::F16)), "the type of kv"),
    (|t, d| t.q = Some(Tensor::zeros([9, 3, 512], (d, DType::F64))), "the type of q"),
    (|t, d| t.tokens.positions = Tensor::zeros([8], (d, DType::I64)), "the shape of positions"),
    (|t, d| t.tokens.positions = Tensor::zeros([9], (d, DType::U8)), "the type of positions"),
    (|t, d| t.tokens.positions = Tensor::full([9], 32, (d, DType::I64)), "positions[0]"),
    (
        |t, d| t.tokens.slot_mapping = Tensor::zeros([10], (d, DType::I64)),
        "the length of slot_mapping",
    ),
    (|t, d| t.tokens.slot_mapping = Tensor::full([9], 4096, (d, DType::I32)), "slot_mapping[0]"),
    (|t, d| t.tokens.slot_mapping = Tensor::zeros([9], (d, DType::I64)), "slot_mapping[1]"),
    (|t, d| t.tokens.cos_sin_cache = Tensor::zeros([32, 63], d), "the shape of cos_sin_cache"),
    (|t, d| t.kv_cache = Tensor::zeros([1, 8], (d, DType::U8)), "the shape of kv_cache"),
    (|t, d| t.kv_cache = Tensor::zeros(t.kv_cache.dims(), (d, DType::I32)), "the type of kv_cache"),
    (|t, _| t.prologue.key.norm = Some(mla_prologue::operator::Rounding::None), "kv_norm_weight"),
    (|t, _| t.prologue.query.scale = Some(1.0), "q_scale"),
];

#[test]
fn wrong_tensors_are_refused() {
    let _guard = shared();
    let call = ordinary(spec(9), 7);
    for (device, burn_device) in burn_devices() {
        for (spoil, argument) in WRONG {
            let mut tensors = Tensors::new(&call, &burn_device);
            spoil(&mut tensors, &burn_device);
            let before = bytes(tensors.kv_cache.clone());
            let q = tensors.q.clone().expect("the call has queries");
            let error = tensors
                .prologue
                .run(q, tensors.kv.clone(), &tensors.tokens, &mut tensors.kv_cache)
                .expect_err(argument);
            assert!(error.to_string().starts_with(argument), "{error} on {}", device.name());
            assert!(bytes(tensors.kv_cache) == before, "written on {}", device.name());
        }
    }
}

#[test]
fn tensors_of_another_device_are_refused() {
    let _guard = shared();
    let devices: Vec<BurnDevice> = Device::list()
        .iter()
        .filter_map(|listing| mla_prologue::model::device(&listing.name).ok())
        .collect();
    let [first, second, ..] = devices.as_slice() else {
        println!("left out: there is one device here");
        return;
    };
    let call = ordinary(spec(9), 7);
    let mut tensors = Tensors::new(&call, first);
    let q = tensors.q.take().expect("the call has queries");
    let kv = float(data(&call.kv, [9, HEAD_DIM], DType::BF16), second);
    let run = tensors.prologue.run(q, kv, &tensors.tokens, &mut tensors.kv_cache);
    let error = run.expect_err("two devices").to_string();
    assert!(error.starts_with("the device of kv is"), "{error}");
}

#[test]
fn queries_in_fp8_are_refused() {
    let _guard = shared();
    let (_, device) = burn_devices().remove(0);
    let format = CacheFormat::RowsFp8 { fp8: Default::default() };
    let layout = mla_prologue::operator::CacheLayout { format, block_stride: 2048, ..cache(4, 4) };
    let key = Key { scale: Some(1.0), ..Key::new(9, layout) };
    let query = Some(Query { scale: Some(1.0), ..Query::new(3, 8) });
    let call = ordinary(Spec { query, key: Some(key), ..spec(9) }, 8);
    let mut tensors = Tensors::new(&call, &device);
    let q = tensors.q.take().expect("the call has queries");
    let error = tensors.prologue.run(q, tensors.kv, &tensors.tokens, &mut tensors.kv_cache);
    assert!(error.expect_err("no such type").to_string().starts_with("q_scale"));
}

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

/// A step in a captured graph, replayed with other contents: the output's added heads, the cache's other slots
/// and what the reader finds are those of then.
#[test]
fn a_captured_step_is_replayed() {
    let _guard = alone();
    for (device, burn_device) in burn_devices() {
        let call = ordinary(spec(4), 10);
        let state = RefCell::new(Tensors::new(&call, &burn_device));
        let mut q_out = PaddedQueries::new(4, 8, Half::Bf16, &burn_device);
        let mut graph = capture(&burn_device, || {
            let Tensors { prologue, q, kv, tokens, kv_cache } = &mut *state.borrow_mut();
            let (prologue, q) = (prologue.clone().unchecked(), q.clone().expect("it has queries"));
            let run = prologue.run_into(q, kv.clone(), tokens, kv_cache, &mut q_out);
            run.expect("the tensors are right");
            let rows = Reader::new(prologue.key.cache)
                .slots(kv_cache.clone(), tokens.slot_mapping.clone())
                .expect("the tensors are right");
            (q_out.tensor().clone(), rows)
        });
        println!("{}: a graph of the hardware: {}", device.name(), graph.is_hardware());
        let mut cache = bytes(state.borrow().kv_cache.clone());
        for seed in 11..14 {
            let mut next = ordinary(spec(4), seed);
            next.kv_cache = cache;
            refresh(&mut state.borrow_mut(), &Tensors::new(&next, &burn_device));
            // SAFETY: the tensors live, and nobody else uses them.
            let (q_out, rows) = unsafe { graph.replay() };
            let (q_out, rows) = (bytes(q_out.clone()), bytes(rows.clone()));
            cache = bytes(state.borrow().kv_cache.clone());
            let got = Output { q_out, kv_cache: cache.clone() };
            assert_exact(&next, &got, &format!("replay {seed} on {}", device.name()));
            let gather = Gather::new(next.problem.key.expect("it has keys").cache, 4);
            let want = reference::gather(&gather, &cache, &next.slot_mapping, &[]);
            assert!(rows == want.expect("sensible"), "replay {seed} on {}", device.name());
        }
    }
}

/// Writes the contents of other tensors into the buffers of these.
fn refresh(into: &mut Tensors, from: &Tensors) {
    fn write<const D: usize, K: Basic>(into: &mut Tensor<D, K>, from: &Tensor<D, K>) {
        let all = from.dims().map(|size| 0..size);
        into.inplace(|tensor| tensor.slice_assign(all, from.clone()));
    }
    if let (Some(into), Some(from)) = (&mut into.q, &from.q) {
        write(into, from);
    }
    write(&mut into.kv, &from.kv);
    write(&mut into.tokens.positions, &from.tokens.positions);
    write(&mut into.tokens.slot_mapping, &from.tokens.slot_mapping);
    write(&mut into.tokens.cos_sin_cache, &from.tokens.cos_sin_cache);
}
