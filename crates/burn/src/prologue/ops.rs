//! The prologue as Burn's backends see it: tensors of a device, unchecked.
//!
//! One implementation for CubeCL's backend serves CUDA, ROCm, Vulkan and the CPU; the attribute derives
//! the lazy one for Fusion from it, and the one that picks the backend at run time.

use crate::tensors::{
    blocks, device, empty, expected, is_packed, key_rows, packed, query_rows, writable,
};
use burn::backend::{
    Backend, ExtensionType, TensorMetadata, backend_extension,
    tensor::{FloatTensor, IntTensor},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue_kernel::{
    Error,
    prologue::{Buffers, PaddingHeads, launch_with_padding},
};
use mla_prologue_operator::prologue::{Problem, Strides};

/// The keys and where they go. Without a norm, `kv_norm_weight` is any tensor.
#[derive(ExtensionType)]
#[extension_type(fusion)]
#[allow(missing_docs, reason = "described at the tensors of the operator")]
pub struct KeyTensors<B: Backend> {
    pub kv: FloatTensor<B>,
    pub kv_norm_weight: FloatTensor<B>,
    pub positions: IntTensor<B>,
    pub slot_mapping: IntTensor<B>,
    pub cos_sin_cache: FloatTensor<B>,
}

/// The operator for a backend. [`Prologue`](crate::Prologue) checks shapes and types before it calls them.
#[backend_extension(Cube, Fusion)]
pub trait PrologueOps: Backend {
    /// Norm, RoPE and padding of the queries into `q_out`, insertion of the keys into `kv_cache`; returns
    /// both. Each is written in place where no other clone is held. With `padding_is_zero` the padding heads of
    /// `q_out` are zero already.
    #[fusion(meta = |_q, _keys, cache, q_out, _zero, _problem| (q_out.clone(), cache.clone()))]
    fn prologue(
        q: FloatTensor<Self>,
        #[extension_type] keys: KeyTensors<Self>,
        kv_cache: IntTensor<Self>,
        q_out: FloatTensor<Self>,
        padding_is_zero: bool,
        problem: Problem,
    ) -> (FloatTensor<Self>, IntTensor<Self>);

    /// Insertion of the keys alone.
    #[fusion(meta = |_keys, cache, _problem| cache.clone())]
    fn insert_keys(
        #[extension_type] keys: KeyTensors<Self>,
        kv_cache: IntTensor<Self>,
        problem: Problem,
    ) -> IntTensor<Self>;
}

impl PrologueOps for CubeBackend {
    fn prologue(
        q: CubeTensor,
        keys: KeyTensors<Self>,
        kv_cache: CubeTensor,
        q_out: CubeTensor,
        padding_is_zero: bool,
        problem: Problem,
    ) -> (CubeTensor, CubeTensor) {
        let (q, strides) = query_rows(q);
        let (q_out, padding) = match is_packed(&q_out) && q_out.can_mut() {
            true if padding_is_zero => (q_out, PaddingHeads::KnownZero),
            true => (q_out, PaddingHeads::Written),
            false => (empty(&q_out, q_out.shape(), q_out.dtype), PaddingHeads::Written),
        };
        let (q, out) = (Some(q.handle), Some(q_out.handle.clone()));
        let queries = Buffers { q, q_out: out, ..Buffers::default() };
        let kv_cache = launch(queries, strides, keys, kv_cache, padding, problem);
        (q_out, kv_cache)
    }

    fn insert_keys(keys: KeyTensors<Self>, kv_cache: CubeTensor, problem: Problem) -> CubeTensor {
        launch(Buffers::default(), None, keys, kv_cache, PaddingHeads::Written, problem)
    }
}

/// Launches the kernel with keys and a cache beside the queries; returns the cache.
fn launch(
    queries: Buffers,
    query_strides: Option<Strides>,
    keys: KeyTensors<CubeBackend>,
    kv_cache: CubeTensor,
    padding: PaddingHeads,
    problem: Problem,
) -> CubeTensor {
    let device = device(&keys.kv);
    let (kv, row_stride) = key_rows(keys.kv);
    let key = problem.spec().key;
    let Some(key) = key else { return kv_cache };
    let (kv_cache, block_stride) = blocks(kv_cache, key.cache);
    // The tensors lie as they do; everything else was validated.
    let problem = problem.with_strides(query_strides, row_stride, block_stride);
    let problem = expected(problem.map_err(Error::from));
    let kv_cache = writable(&device, kv_cache, problem.sizes().kv_cache);
    let buffers = Buffers {
        kv: Some(kv.handle),
        kv_norm_weight: key.norm.map(|_| packed(keys.kv_norm_weight)),
        positions: Some(packed(keys.positions)),
        slot_mapping: Some(packed(keys.slot_mapping)),
        cos_sin_cache: Some(packed(keys.cos_sin_cache)),
        kv_cache: Some(kv_cache.handle.clone()),
        ..queries
    };
    expected(launch_with_padding(&device, &problem, &buffers, padding));
    kv_cache
}
