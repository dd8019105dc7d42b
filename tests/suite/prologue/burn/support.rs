//! Calls on Burn's tensors, with and without Fusion.

use crate::support::exact_devices;
use burn::{
    backend::ops::{FloatTensorOps, IntTensorOps},
    tensor::{DType, Device as BurnDevice, Int, Tensor, TensorData, kind::Basic},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use cubecl::zspace::metadata::Metadata;
use mla_prologue::{
    burn::{KeyNorm, KeyTensors, KvCache, Prologue, PrologueOps, Tokens},
    kernel::Device,
    operator::{
        Float16, HEAD_DIM, Index, RotaryType,
        prologue::{Call, Query, Strides, Tensors},
    },
};

pub fn float16_type(dtype: Float16) -> DType {
    match dtype {
        Float16::Bf16 => DType::BF16,
        Float16::F16 => DType::F16,
    }
}

pub fn index_type(index: Index) -> DType {
    match index {
        Index::I64 => DType::I64,
        Index::I32 => DType::I32,
    }
}

pub fn table_type(dtype: RotaryType) -> DType {
    match dtype {
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
pub fn rows(bytes: &[u8], rows: usize, stride: usize, dtype: Float16) -> TensorData {
    let mut padded = bytes.to_vec();
    padded.resize(2 * rows * stride, 0);
    data(&padded, [rows, stride], float16_type(dtype))
}

/// A call on a Burn device.
pub struct BurnCall {
    pub prologue: Prologue,
    pub q: Option<Tensor<3>>,
    pub kv: Tensor<2>,
    pub tokens: Tokens,
    pub kv_cache: KvCache,
}

impl BurnCall {
    pub fn new(call: &Call, device: &BurnDevice) -> Self {
        let (spec, tensors) = (call.problem().spec(), call.tensors());
        let key = spec.key.expect("calls without keys are left out");
        let (dtype, count) = (spec.dtype, spec.tokens);
        let mut prologue = Prologue::new(1, 1);
        prologue.eps = spec.eps;
        prologue.table_order = spec.table.order;
        prologue.query = spec.query.unwrap_or(Query::new(1, 1));
        prologue.quant_from = key.quant_from;
        prologue.any_fp8 = true;
        prologue.key_norm = key.norm.map(|rounding| {
            let weight = data(&tensors.kv_norm_weight, [HEAD_DIM], float16_type(dtype));
            KeyNorm { weight: float(weight, device), rounding }
        });
        let q = spec.query.map(|query| {
            let Strides { token, head } = query.strides.unwrap_or(Strides::dense(query.heads));
            let tokens = float::<2>(rows(&tensors.q, count, token, dtype), device);
            let heads: Tensor<3> =
                tokens.slice([0..count, 0..query.heads * head]).reshape([count, query.heads, head]);
            heads.slice([0..count, 0..query.heads, 0..HEAD_DIM])
        });
        let stride = key.row_stride.unwrap_or(HEAD_DIM);
        let kv = float::<2>(rows(&tensors.kv, count, stride, dtype), device);
        let cache = [key.cache.num_blocks, key.cache.block_stride];
        let cache = int(data(&tensors.kv_cache, cache, DType::U8), device);
        let table =
            data(&tensors.cos_sin_cache, [spec.table.rows, 64], table_type(spec.table.dtype));
        Self {
            prologue,
            q,
            kv: kv.slice([0..count, 0..HEAD_DIM]),
            tokens: Tokens {
                positions: int(
                    data(&tensors.positions, [count], index_type(spec.position_type)),
                    device,
                ),
                slot_mapping: int(
                    data(&tensors.slot_mapping, [key.slot_count], index_type(key.slot_type)),
                    device,
                ),
                cos_sin_cache: float(table, device),
            },
            kv_cache: KvCache::from_tensor(cache, key.cache)
                .expect("a valid cache")
                .dtype(dtype)
                .scale(key.scale),
        }
    }

    pub fn run(&mut self) -> Tensors<Vec<u8>> {
        let (prologue, kv) = (&self.prologue, self.kv.clone());
        let q_out = match self.q.clone() {
            Some(q) => {
                let q_out = prologue.run(q, kv, &self.tokens, &mut self.kv_cache);
                bytes(q_out.expect("the tensors are valid"))
            }
            None => {
                let inserted = prologue.insert(kv, &self.tokens, &mut self.kv_cache);
                inserted.expect("the tensors are valid");
                Vec::new()
            }
        };
        written(q_out, bytes(self.kv_cache.tensor.clone()))
    }
}

/// What a call wrote.
pub fn written(q_out: Vec<u8>, kv_cache: Vec<u8>) -> Tensors<Vec<u8>> {
    Tensors { q_out, kv_cache, ..Tensors::default() }
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
pub fn fused(call: &Call, device: &BurnDevice) -> Tensors<Vec<u8>> {
    BurnCall::new(call, device).run()
}

/// The op on the backend itself, without Fusion.
pub fn unfused(call: &Call, device: &Device) -> Tensors<Vec<u8>> {
    let (spec, tensors) = (call.problem().spec(), call.tensors());
    let key = spec.key.expect("calls without keys are left out");
    let device = device.cubecl();
    let float = |data| CubeBackend::float_from_data(data, device);
    let int = |data| CubeBackend::int_from_data(data, device);
    let dtype = float16_type(spec.dtype);
    let strides = spec.query.and_then(|query| query.strides);
    let query = spec.query.map(|query| query.strides(None));
    let problem = spec.query(query).key(key.row_stride(None)).validate().expect("valid");
    let kv = rows(&tensors.kv, spec.tokens, key.row_stride.unwrap_or(HEAD_DIM), spec.dtype);
    let kv = CubeBackend::float_slice(float(kv), &[(0..spec.tokens).into(), (0..HEAD_DIM).into()]);
    let table = table_type(spec.table.dtype);
    let table = float(data(&tensors.cos_sin_cache, [spec.table.rows, 64], table));
    let keys = KeyTensors {
        kv,
        kv_norm_weight: match key.norm {
            Some(_) => float(data(&tensors.kv_norm_weight, [HEAD_DIM], dtype)),
            None => table.clone(),
        },
        positions: int(data(&tensors.positions, [spec.tokens], index_type(spec.position_type))),
        slot_mapping: int(data(&tensors.slot_mapping, [key.slot_count], index_type(key.slot_type))),
        cos_sin_cache: table,
    };
    let shape = [key.cache.num_blocks, key.cache.block_stride];
    let cache = int(data(&tensors.kv_cache, shape, DType::U8));
    let Some(query) = query else {
        return written(Vec::new(), read(CubeBackend::insert_keys(keys, cache, problem)));
    };
    let Strides { token, head } = strides.unwrap_or(Strides::dense(query.heads));
    // A view of a flat buffer, with the strides of the call.
    let flat = rows(&tensors.q, spec.tokens, token, spec.dtype);
    let mut q = float(data(flat.as_bytes(), [spec.tokens * token], dtype));
    let shape = [spec.tokens, query.heads, HEAD_DIM];
    q.meta = Box::new(Metadata::new(shape, [token, head, 1]));
    let shape = [spec.tokens, query.padded_heads, HEAD_DIM];
    let poison = data(&vec![0xAA; problem.sizes().q_out], shape, dtype);
    let (q_out, cache) = CubeBackend::prologue(q, keys, cache, float(poison), false, problem);
    written(read(q_out), read(cache))
}

pub fn read(tensor: CubeTensor) -> Vec<u8> {
    burn_cubecl::ops::into_data_sync(tensor).as_bytes().to_vec()
}
