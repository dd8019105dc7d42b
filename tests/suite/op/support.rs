//! Calls on Burn's tensors, with and without Fusion.

use crate::support::exact_devices;
use burn::{
    backend::ops::{FloatTensorOps, IntTensorOps},
    tensor::{DType, Device as BurnDevice, Int, Tensor, TensorData, kind::Basic},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue::{
    Call, Output, Target,
    kernel::Device,
    model::{Prologue, PrologueOps, Tokens},
    operator::{HEAD_DIM, Half, Index, Key, Query, RotaryType, Spec, Strides},
    verify::{Rule, compare},
};

pub fn half_type(half: Half) -> DType {
    match half {
        Half::Bf16 => DType::BF16,
        Half::F16 => DType::F16,
    }
}

pub fn index_type(index: Index) -> DType {
    match index {
        Index::I64 => DType::I64,
        Index::I32 => DType::I32,
    }
}

pub fn table_type(number: RotaryType) -> DType {
    match number {
        RotaryType::F32 => DType::F32,
        RotaryType::Bf16 => DType::BF16,
        RotaryType::F16 => DType::F16,
    }
}

pub fn data<const D: usize>(bytes: &[u8], shape: [usize; D], dtype: DType) -> TensorData {
    TensorData::from_bytes_vec(bytes.to_vec(), shape, dtype)
}

pub fn float<const D: usize>(data: TensorData, device: &BurnDevice) -> Tensor<D> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

pub fn int<const D: usize>(data: TensorData, device: &BurnDevice) -> Tensor<D, Int> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

/// Rows of 512 values at a stride, as a tensor that holds what lies between them too.
pub fn rows(bytes: &[u8], rows: usize, stride: usize, half: Half) -> TensorData {
    let mut padded = bytes.to_vec();
    padded.resize(2 * rows * stride, 0);
    data(&padded, [rows, stride], half_type(half))
}

/// The tensors of a call on a Burn device.
pub struct Tensors {
    pub prologue: Prologue,
    pub q: Option<Tensor<3>>,
    pub kv: Tensor<2>,
    pub tokens: Tokens,
    pub kv_cache: Tensor<2, Int>,
}

impl Tensors {
    pub fn new(call: &Call, device: &BurnDevice) -> Self {
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
            any_fp8: true,
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

    pub fn run(&mut self) -> Output {
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

pub fn bytes<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Vec<u8> {
    tensor.into_data().as_bytes().to_vec()
}

pub fn burn_devices() -> Vec<(Device, BurnDevice)> {
    let devices = exact_devices().into_iter();
    let both = |device: Device| {
        let burn = BurnDevice::new(device.cubecl().clone());
        (device, burn)
    };
    devices.map(both).collect()
}

/// The op through Burn's dispatch, which has Fusion.
pub fn fused(call: &Call, device: &BurnDevice) -> Output {
    Tensors::new(call, device).run()
}

/// The op on the backend itself, which has not.
pub fn unfused(call: &Call, device: &Device) -> Output {
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

pub fn assert_exact(call: &Call, got: &Output, what: &str) {
    let want = call.run(&Target::Reference).expect("the reference runs");
    let found = compare(call, &want, got, Rule::Exact);
    assert!(found.holds(), "{what}: {:?}", found.first);
}

pub fn read(tensor: CubeTensor) -> Vec<u8> {
    burn_cubecl::ops::into_data_sync(tensor).as_bytes().to_vec()
}
