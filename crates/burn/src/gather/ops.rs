//! The gather as Burn's backends see it: tensors of a device, unchecked.

use crate::tensors::{blocks, device, dtype, empty, expected, packed};
use burn::{
    backend::{
        Backend, backend_extension,
        fusion::custom::TensorSpec,
        tensor::{FloatTensor, IntTensor},
    },
    tensor::{DType, Shape},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue_kernel::{
    Error,
    gather::{Buffers, launch},
};
use mla_prologue_operator::{HEAD_DIM, gather::Problem};

/// The operator for a backend. [`Gather`](crate::Gather) checks shapes and types before it calls it.
#[backend_extension(Cube, Fusion)]
pub trait GatherOps: Backend {
    /// Rows of the cache as `[rows, 512]` values. Without a block table, `block_table` is any tensor.
    #[fusion(meta = |_cache, _indices, _table, problem| {
        TensorSpec::new(Shape::new([problem.spec().rows, HEAD_DIM]), out_dtype(problem))
    })]
    fn gather(
        kv_cache: IntTensor<Self>,
        indices: IntTensor<Self>,
        block_table: IntTensor<Self>,
        problem: Problem,
    ) -> FloatTensor<Self>;
}

fn out_dtype(problem: &Problem) -> DType {
    let spec = problem.spec();
    if spec.rounded { dtype(spec.dtype) } else { DType::F32 }
}

impl GatherOps for CubeBackend {
    fn gather(
        kv_cache: CubeTensor,
        indices: CubeTensor,
        block_table: CubeTensor,
        problem: Problem,
    ) -> CubeTensor {
        let device = device(&kv_cache);
        let spec = problem.spec();
        let out = empty(&kv_cache, Shape::new([spec.rows, HEAD_DIM]), out_dtype(&problem));
        let (kv_cache, block_stride) = blocks(kv_cache, spec.cache);
        let block_table = spec.block_table.map(|_| packed(block_table));
        let problem = expected(problem.with_stride(block_stride).map_err(Error::from));
        let buffers = Buffers {
            kv_cache: Some(kv_cache.handle),
            indices: Some(packed(indices)),
            block_table,
            out: Some(out.handle.clone()),
        };
        expected(launch(&device, &problem, &buffers));
        out
    }
}
