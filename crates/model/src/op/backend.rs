//! The operators as Burn's backends see them: tensors of a device, unchecked.
//!
//! One implementation for CubeCL's backend serves CUDA, ROCm, Vulkan and the CPU; the attribute makes
//! the lazy one for Fusion of it, and the one that picks the backend at run time.

use burn::backend::{
    Backend, TensorMetadata, backend_extension,
    fusion::custom::TensorSpec,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::{DType, Shape};
use burn_cubecl::{CubeBackend, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::server::Handle;
use mla_prologue_kernel::{
    Buffers, Device, Error, GatherBuffers, Pads, launch_copy, launch_gather, launch_round,
    launch_widen, launch_with_pads,
};
use mla_prologue_operator::{
    CacheLayout, Gather, HEAD_DIM, Half, Invalid, Problem, Query, Spec, Strides,
};

/// Burn's name of a 16-bit type.
pub(crate) const fn dtype(half: Half) -> DType {
    match half {
        Half::Bf16 => DType::BF16,
        Half::F16 => DType::F16,
    }
}

/// The 16-bit type of that name.
pub(crate) const fn half(dtype: DType) -> Option<Half> {
    match dtype {
        DType::BF16 => Some(Half::Bf16),
        DType::F16 => Some(Half::F16),
        _ => None,
    }
}

/// The operators for a backend. Callers vouch for shapes and types: [`Prologue`](crate::Prologue) and
/// [`Reader`](crate::Reader) check them.
#[backend_extension(Cube, Fusion)]
pub trait PrologueOps: Backend {
    /// Norm, RoPE and padding of the queries into `q_out`, insertion of the keys into `kv_cache`; returns
    /// both. Each is written in place where nobody else holds it. With `pads_known_zero` the added heads of
    /// `q_out` are zero already.
    #[fusion(meta = |_q, _kv, _weight, _positions, _slots, _table, cache, q_out, _zero, _problem| (q_out.clone(), cache.clone()))]
    #[allow(clippy::too_many_arguments, reason = "the operator has that many tensors")]
    fn prologue(
        q: FloatTensor<Self>,
        kv: FloatTensor<Self>,
        kv_norm_weight: FloatTensor<Self>,
        positions: IntTensor<Self>,
        slot_mapping: IntTensor<Self>,
        cos_sin_cache: FloatTensor<Self>,
        kv_cache: IntTensor<Self>,
        q_out: FloatTensor<Self>,
        pads_known_zero: bool,
        problem: Problem,
    ) -> (FloatTensor<Self>, IntTensor<Self>);

    /// Insertion of the keys alone.
    #[fusion(meta = |_kv, _weight, _positions, _slots, _table, cache, _problem| cache.clone())]
    fn insert_keys(
        kv: FloatTensor<Self>,
        kv_norm_weight: FloatTensor<Self>,
        positions: IntTensor<Self>,
        slot_mapping: IntTensor<Self>,
        cos_sin_cache: FloatTensor<Self>,
        kv_cache: IntTensor<Self>,
        problem: Problem,
    ) -> IntTensor<Self>;

    /// Rows of the cache as `[rows, 512]` values. Without a block table, `block_table` is not used.
    #[fusion(meta = |_cache, _indices, _table, gather| {
        TensorSpec::new(Shape::new([gather.rows, HEAD_DIM]), out_dtype(gather))
    })]
    fn gather_rows(
        kv_cache: IntTensor<Self>,
        indices: IntTensor<Self>,
        block_table: IntTensor<Self>,
        gather: Gather,
    ) -> FloatTensor<Self>;

    /// f32 values rounded to 16 bits, to nearest even.
    #[fusion(meta = |x, half| TensorSpec::new(x.shape.clone(), dtype(*half)))]
    fn round_to_half(x: FloatTensor<Self>, half: Half) -> FloatTensor<Self>;

    /// 16-bit values as f32, exactly.
    #[fusion(meta = |x, _half| TensorSpec::new(x.shape.clone(), DType::F32))]
    fn widen_from_half(x: FloatTensor<Self>, half: Half) -> FloatTensor<Self>;
}

fn out_dtype(gather: &Gather) -> DType {
    if gather.rounded { dtype(gather.half) } else { DType::F32 }
}

impl PrologueOps for CubeBackend {
    fn prologue(
        q: CubeTensor,
        kv: CubeTensor,
        kv_norm_weight: CubeTensor,
        positions: CubeTensor,
        slot_mapping: CubeTensor,
        cos_sin_cache: CubeTensor,
        kv_cache: CubeTensor,
        q_out: CubeTensor,
        pads_known_zero: bool,
        problem: Problem,
    ) -> (CubeTensor, CubeTensor) {
        let (q, strides) = rows(q);
        let query = problem.query.map(|query| Query { strides, ..query });
        let (q_out, pads) = match is_packed(&q_out) && q_out.can_mut() {
            true if pads_known_zero => (q_out, Pads::KnownZero),
            true => (q_out, Pads::Written),
            false => (empty(&q_out, q_out.shape(), q_out.dtype), Pads::Written),
        };
        let tensors = Buffers {
            q: Some(q.handle),
            kv: None,
            kv_norm_weight: Some(packed(kv_norm_weight)),
            positions: packed(positions),
            slot_mapping: Some(packed(slot_mapping)),
            cos_sin_cache: packed(cos_sin_cache),
            q_out: Some(q_out.handle.clone()),
            kv_cache: None,
        };
        let kv_cache = call(kv, kv_cache, tensors, Spec { query, ..*problem }, pads);
        (q_out, kv_cache)
    }

    fn insert_keys(
        kv: CubeTensor,
        kv_norm_weight: CubeTensor,
        positions: CubeTensor,
        slot_mapping: CubeTensor,
        cos_sin_cache: CubeTensor,
        kv_cache: CubeTensor,
        problem: Problem,
    ) -> CubeTensor {
        let tensors = Buffers {
            q: None,
            kv: None,
            kv_norm_weight: Some(packed(kv_norm_weight)),
            positions: packed(positions),
            slot_mapping: Some(packed(slot_mapping)),
            cos_sin_cache: packed(cos_sin_cache),
            q_out: None,
            kv_cache: None,
        };
        call(kv, kv_cache, tensors, *problem, Pads::Written)
    }

    fn gather_rows(
        kv_cache: CubeTensor,
        indices: CubeTensor,
        block_table: CubeTensor,
        gather: Gather,
    ) -> CubeTensor {
        let device = device(&kv_cache);
        let out = empty(&kv_cache, Shape::new([gather.rows, HEAD_DIM]), out_dtype(&gather));
        let (kv_cache, cache) = blocks(kv_cache, gather.cache);
        let gather = Gather { cache, ..gather };
        let buffers = GatherBuffers {
            kv_cache: kv_cache.handle,
            indices: packed(indices),
            block_table: Some(packed(block_table)),
            out: out.handle.clone(),
        };
        expected(launch_gather(&device, &gather, &buffers));
        out
    }

    fn round_to_half(x: CubeTensor, half: Half) -> CubeTensor {
        let out = empty(&x, x.shape(), dtype(half));
        let (device, values) = (device(&x), x.shape().num_elements());
        expected(launch_round(&device, values, half, &packed(x), &out.handle));
        out
    }

    fn widen_from_half(x: CubeTensor, half: Half) -> CubeTensor {
        let out = empty(&x, x.shape(), DType::F32);
        let (device, values) = (device(&x), x.shape().num_elements());
        expected(launch_widen(&device, values, half, &packed(x), &out.handle));
        out
    }
}

/// Launches the kernel with keys and a cache beside the other tensors; returns the cache.
fn call(
    kv: CubeTensor,
    kv_cache: CubeTensor,
    tensors: Buffers,
    spec: Spec,
    pads: Pads,
) -> CubeTensor {
    let device = device(&kv);
    let (kv, row_stride) = key_rows(kv);
    let key = spec.key.ok_or_else(|| Invalid::new("kv", "absent", "given"));
    let mut key = expected(key.map_err(Error::from));
    let (kv_cache, layout) = blocks(kv_cache, key.cache);
    (key.row_stride, key.cache) = (row_stride, layout);
    let problem = Spec { key: Some(key), ..spec }.validate();
    let problem = expected(problem.map_err(Error::from));
    let kv_cache = writable(&device, kv_cache, layout.bytes());
    let (kv, cache) = (Some(kv.handle), Some(kv_cache.handle.clone()));
    let buffers = Buffers { kv, kv_cache: cache, ..tensors };
    expected(launch_with_pads(&device, &problem, &buffers, pads));
    kv_cache
}

/// What the callers' checks rule out is a mistake of theirs.
fn expected<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("the tensors were not checked: {error}"))
}

fn device(tensor: &CubeTensor) -> Device {
    expected(Device::of(&tensor.device))
}

/// A new tensor on the device of another.
fn empty(like: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    let bytes = shape.num_elements() * dtype.size();
    let handle = like.client.empty(bytes.max(16));
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// Does the kernel find the elements one after the other, from a word on?
fn is_packed(tensor: &CubeTensor) -> bool {
    tensor.is_contiguous() && is_aligned(tensor)
}

fn is_aligned(tensor: &CubeTensor) -> bool {
    !tensor.meta.is_tiled() && tensor.handle.offset_start.unwrap_or(0).is_multiple_of(16)
}

/// The buffer of a tensor, of a packed copy where it is not packed.
fn packed(tensor: CubeTensor) -> Handle {
    pack(tensor).handle
}

fn pack(tensor: CubeTensor) -> CubeTensor {
    if is_packed(&tensor) {
        return tensor;
    }
    let tensor = into_contiguous(tensor);
    if is_aligned(&tensor) { tensor } else { tensor.copy() }
}

/// The cache `[num_blocks, bytes of a block]` and the distance of its blocks, which an allocator may have made
/// larger than a block. Blocks that are not dense are copied.
fn blocks(cache: CubeTensor, layout: CacheLayout) -> (CubeTensor, CacheLayout) {
    let strides = cache.meta.strides();
    let (block_stride, byte) = (strides[0], strides[1]);
    let apart = CacheLayout { block_stride, ..layout };
    let room = block_stride * layout.num_blocks <= cache.handle.size_in_used() as usize;
    let dense = byte == 1 && block_stride >= layout.block_stride && room;
    if dense && is_aligned(&cache) && apart.validate().is_ok() {
        return (cache, apart);
    }
    (pack(cache), layout)
}

/// The cache itself where nobody else holds it, else a copy.
fn writable(device: &Device, cache: CubeTensor, bytes: usize) -> CubeTensor {
    if cache.can_mut() {
        return cache;
    }
    let handle = cache.client.empty(bytes.max(16));
    expected(launch_copy(device, bytes, &cache.handle, &handle));
    CubeTensor::new(cache.client, handle, *cache.meta, cache.device, cache.dtype)
}

/// Queries `[tokens, heads, 512]`: where they are, and how far apart if not one after the other. Rows that
/// are not dense are copied.
fn rows(q: CubeTensor) -> (CubeTensor, Option<Strides>) {
    let strides = q.meta.strides();
    let (token, head, value) = (strides[0], strides[1], strides[2]);
    let words = [token, head].iter().all(|stride| stride.is_multiple_of(8));
    if value == 1 && words && is_aligned(&q) && !is_packed(&q) {
        return (q, Some(Strides { token, head }));
    }
    (pack(q), None)
}

/// Keys `[tokens, 512]`, likewise.
fn key_rows(kv: CubeTensor) -> (CubeTensor, Option<usize>) {
    let strides = kv.meta.strides();
    let (row, value) = (strides[0], strides[1]);
    if value == 1 && row.is_multiple_of(8) && is_aligned(&kv) && !is_packed(&kv) {
        return (kv, Some(row));
    }
    (pack(kv), None)
}
