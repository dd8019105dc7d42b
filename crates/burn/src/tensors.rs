//! CubeCL's tensors as the kernels take them: dense rows, aligned to words.

use burn::tensor::{DType, Shape};
use burn_cubecl::{kernel::into_contiguous, tensor::CubeTensor};
use cubecl::server::Handle;
use mla_prologue_kernel::{Device, Error, convert};
use mla_prologue_operator::{CacheLayout, Float16, HEAD_DIM, prologue::Strides};

/// Burn's name of a 16-bit type.
pub const fn dtype(float16: Float16) -> DType {
    match float16 {
        Float16::Bf16 => DType::BF16,
        Float16::F16 => DType::F16,
    }
}

/// A failure that the checks of the public forms rule out.
pub fn expected<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("the tensors were not checked: {error}"))
}

pub fn device(tensor: &CubeTensor) -> Device {
    expected(Device::of(&tensor.device))
}

/// A new tensor on the device of another.
pub fn empty(like: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    let bytes = shape.num_elements() * dtype.size();
    let handle = like.client.empty(bytes.max(16));
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// Does the kernel find the elements one after the other, from a word on?
pub fn is_packed(tensor: &CubeTensor) -> bool {
    tensor.is_contiguous() && is_aligned(tensor)
}

fn is_aligned(tensor: &CubeTensor) -> bool {
    !tensor.meta.is_tiled() && tensor.handle.offset_start.unwrap_or(0).is_multiple_of(16)
}

/// The buffer of a tensor, of a packed copy where it is not packed.
pub fn packed(tensor: CubeTensor) -> Handle {
    pack(tensor).handle
}

fn pack(tensor: CubeTensor) -> CubeTensor {
    if is_packed(&tensor) {
        return tensor;
    }
    let tensor = into_contiguous(tensor);
    if is_aligned(&tensor) { tensor } else { tensor.copy() }
}

/// The cache `[num_blocks, bytes of a block]` and the stride of its blocks in bytes, which an allocator may have made
/// larger than a block. Blocks that are not dense are copied.
pub fn blocks(cache: CubeTensor, layout: CacheLayout) -> (CubeTensor, usize) {
    let strides = cache.meta.strides();
    let (block_stride, byte) = (strides[0], strides[1]);
    let apart = layout.with_stride(block_stride);
    let room = block_stride * layout.num_blocks <= cache.handle.size_in_used() as usize;
    let dense = byte == 1 && block_stride >= layout.block_stride && room;
    if dense && is_aligned(&cache) && apart.validate().is_ok() {
        return (cache, block_stride);
    }
    (pack(cache), layout.block_stride)
}

/// The cache itself where no clone of it is held, else a copy.
pub fn writable(device: &Device, cache: CubeTensor, bytes: usize) -> CubeTensor {
    if cache.can_mut() {
        return cache;
    }
    let handle = cache.client.empty(bytes.max(16));
    expected(convert::copy(device, bytes, &cache.handle, &handle));
    CubeTensor::new(cache.client, handle, *cache.meta, cache.device, cache.dtype)
}

/// Queries `[tokens, heads, 512]`: where they are, and how far apart if not one after the other. Rows that
/// are not dense are copied.
pub fn query_rows(q: CubeTensor) -> (CubeTensor, Option<Strides>) {
    let strides = q.meta.strides();
    let (token, head, value) = (strides[0], strides[1], strides[2]);
    let words = [token, head].iter().all(|stride| stride.is_multiple_of(8));
    if value == 1 && words && is_aligned(&q) && !is_packed(&q) {
        return (q, Some(Strides { token, head }));
    }
    (pack(q), None)
}

/// Queries whose heads lie one after the other: where they are, and from a token to the next, if more than its heads. Others are
/// copied.
pub fn token_rows(q: CubeTensor) -> (CubeTensor, Option<usize>) {
    let (token, head) = (q.meta.strides()[0], q.meta.strides()[1]);
    let heads = q.meta.shape()[1];
    match query_rows(q) {
        (q, Some(_)) if head == HEAD_DIM && token >= heads * HEAD_DIM => (q, Some(token)),
        (q, _) => (pack(q), None),
    }
}

/// Keys `[tokens, 512]`, likewise.
pub fn key_rows(kv: CubeTensor) -> (CubeTensor, Option<usize>) {
    let strides = kv.meta.strides();
    let (row, value) = (strides[0], strides[1]);
    if value == 1 && row.is_multiple_of(8) && is_aligned(&kv) && !is_packed(&kv) {
        return (kv, Some(row));
    }
    (pack(kv), None)
}
