//! What a launch costs by itself.

use super::{
    Buffers, Scalars,
    kernel::{Arguments, buffer_arguments},
    launch::scalars,
};
use crate::{Device, Result, buffers::check_buffer, row::CacheWord};
use cubecl::prelude::*;
use mla_prologue_operator::{Invalid, prologue::Problem};

/// Queues a kernel with the arguments of the fused one that does nothing, to measure what a launch costs by itself.
///
/// # Errors
/// A buffer that is missing, smaller than `problem` says, of another device, or not aligned to 16 bytes.
pub fn launch_empty(device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
    let sizes = problem.sizes();
    for (name, (buffer, bytes)) in buffers.as_ref().zip(sizes).named() {
        check_buffer(device, name, buffer.as_ref(), bytes)?;
    }
    let missing = || Invalid::missing("positions", "given");
    let unused = buffers.positions.as_ref().ok_or_else(missing)?;
    let dim = CubeDim::new_1d(device.strategy().rows_per_cube);
    // SAFETY: every buffer was found to be at least as large as its size, and none is accessed.
    unsafe {
        nothing::launch_unchecked(
            device.client(),
            CubeCount::Static(1, 1, 1),
            dim,
            4,
            buffer_arguments(buffers.clone(), sizes, 4, unused),
            scalars(problem).launch(),
        );
    }
    Ok(())
}

#[cube(launch_unchecked)]
fn nothing<N: Size>(tensors: &mut Arguments<N>, scalars: &Scalars) {
    // Never: it keeps the arguments from being left out.
    if scalars.tokens == u32::MAX {
        let reals =
            u32::reinterpret(scalars.eps + scalars.q_scale_inverse + scalars.kv_scale_inverse);
        let counts = scalars.slot_count + scalars.table_rows + scalars.heads + scalars.block_size;
        let strides = scalars.q_token_stride + scalars.q_head_stride + scalars.kv_row_stride;
        let indices = tensors.positions[0] + tensors.slot_mapping[0];
        let words =
            tensors.q[0] + tensors.kv[0] + tensors.kv_norm_weight[0] + tensors.cos_sin_cache[0];
        let sum =
            reals + counts + strides + scalars.block_stride + scalars.cache_capacity + indices;
        tensors.q_out[0] = Vector::new(sum);
        tensors.kv_cache[0] = CacheWord::new(words.extract(0usize));
    }
}
