//! Attention as Burn's backends see it: tensors of a device, unchecked.

use crate::tensors::{blocks, device, dtype, empty, expected, packed, token_rows};
use burn::{
    backend::{
        Backend, ExtensionType, backend_extension,
        fusion::custom::TensorSpec,
        tensor::{FloatTensor, IntTensor},
    },
    tensor::{DType, Shape},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue_kernel::{
    Error,
    attend::{Buffers, launch},
};
use mla_prologue_operator::{
    HEAD_DIM,
    attend::{Entries, Problem},
};

/// What is attended to. In place of a tensor that the problem does not use there is any other.
#[derive(ExtensionType)]
#[extension_type(fusion)]
#[allow(missing_docs, reason = "described at the tensors of the operator")]
pub struct AttendTensors<B: Backend> {
    pub kv_cache: IntTensor<B>,
    pub slots: IntTensor<B>,
    pub lens: IntTensor<B>,
    pub block_table: IntTensor<B>,
    pub sequence_ids: IntTensor<B>,
    pub extra_kv_cache: IntTensor<B>,
    pub extra_slots: IntTensor<B>,
    pub extra_lens: IntTensor<B>,
    pub sinks: FloatTensor<B>,
    pub positions: IntTensor<B>,
    pub cos_sin_cache: FloatTensor<B>,
}

/// The operator for a backend. [`Attend`](crate::Attend) checks shapes and types before it calls it.
#[backend_extension(Cube, Fusion)]
pub trait AttendOps: Backend {
    /// The output `[tokens, padded_heads, 512]`.
    #[fusion(meta = |_q, _tensors, problem| TensorSpec::new(out_shape(problem), dtype(problem.spec().dtype)))]
    fn attend(
        q: FloatTensor<Self>,
        #[extension_type] tensors: AttendTensors<Self>,
        problem: Problem,
    ) -> FloatTensor<Self>;

    /// The same with the largest score and the sum of the weights of each head, `[tokens, heads]`.
    #[fusion(meta = |_q, _tensors, problem| (
        TensorSpec::new(out_shape(problem), dtype(problem.spec().dtype)),
        TensorSpec::new(stats_shape(problem), DType::F32),
        TensorSpec::new(stats_shape(problem), DType::F32),
    ))]
    fn attend_with_stats(
        q: FloatTensor<Self>,
        #[extension_type] tensors: AttendTensors<Self>,
        problem: Problem,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

fn out_shape(problem: &Problem) -> Shape {
    let spec = problem.spec();
    Shape::new([spec.tokens, spec.padded_heads, HEAD_DIM])
}

fn stats_shape(problem: &Problem) -> Shape {
    Shape::new([problem.spec().tokens, problem.spec().heads])
}

impl AttendOps for CubeBackend {
    fn attend(q: CubeTensor, tensors: AttendTensors<Self>, problem: Problem) -> CubeTensor {
        let out = empty(&q, out_shape(&problem), dtype(problem.spec().dtype));
        start(q, tensors, &out, None, problem);
        out
    }

    fn attend_with_stats(
        q: CubeTensor,
        tensors: AttendTensors<Self>,
        problem: Problem,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let out = empty(&q, out_shape(&problem), dtype(problem.spec().dtype));
        let stats = [(); 2].map(|()| empty(&q, stats_shape(&problem), DType::F32));
        start(q, tensors, &out, Some(&stats), problem);
        let [max, sum] = stats;
        (out, max, sum)
    }
}

/// Launches the kernel on the tensors as they lie.
fn start(
    q: CubeTensor,
    tensors: AttendTensors<CubeBackend>,
    out: &CubeTensor,
    stats: Option<&[CubeTensor; 2]>,
    problem: Problem,
) {
    let device = device(&q);
    let spec = *problem.spec();
    let (q, token_stride) = token_rows(q);
    let (kv_cache, block_stride) = blocks(tensors.kv_cache, spec.cache);
    let extra = spec.extra.map(|extra| blocks(tensors.extra_kv_cache, extra.cache));
    let extra_stride = extra.as_ref().map(|(_, stride)| *stride);
    let problem = problem.with_strides(token_stride, block_stride, extra_stride);
    let problem = expected(problem.map_err(Error::from));
    let (list, window) = match spec.entries {
        Entries::Slots(list) => (Some(list), None),
        Entries::Window(window) => (None, Some(window)),
    };
    let given = |is: bool, tensor: CubeTensor| is.then(|| packed(tensor));
    let buffers = Buffers {
        q: Some(q.handle),
        kv_cache: Some(kv_cache.handle),
        slots: given(list.is_some(), tensors.slots),
        lens: given(list.is_some_and(|list| list.lens.is_some()), tensors.lens),
        block_table: given(window.is_some(), tensors.block_table),
        sequence_ids: given(
            window.is_some_and(|window| window.sequence_ids.is_some()),
            tensors.sequence_ids,
        ),
        extra_kv_cache: extra.map(|(cache, _)| cache.handle),
        extra_slots: given(spec.extra.is_some(), tensors.extra_slots),
        extra_lens: given(
            spec.extra.is_some_and(|extra| extra.slots.lens.is_some()),
            tensors.extra_lens,
        ),
        sinks: given(spec.sinks, tensors.sinks),
        positions: given(spec.has_positions(), tensors.positions),
        cos_sin_cache: given(spec.rotary.is_some(), tensors.cos_sin_cache),
        out: Some(out.handle.clone()),
        max: stats.map(|[max, _]| max.handle.clone()),
        sum: stats.map(|[_, sum]| sum.handle.clone()),
    };
    expected(launch(&device, &problem, &buffers));
}
