//! Buffers in, kernel out.

use super::{
    Blueprint, PaddingHeads, Scalars,
    blueprint::rows,
    kernel::{self, buffer_arguments, buffer_compilation, word_bytes},
};
use crate::{
    Device, Kernel, Result, Strategy,
    buffers::{address_type, check_buffer, cube_dim, grid},
    definition::{Dispatch, properties, settings},
};
use cubecl::{
    prelude::{AddressType, CubeKernel, KernelDefinition},
    server::Handle,
};
use mla_prologue_operator::{
    Access, HEAD_DIM, LANE_RUN,
    prologue::{Call, Problem, Strides, Tensors},
};
use std::sync::Arc;

/// The buffers of one call on a device. What the problem does not use is `None`.
///
/// `q_out` is the caller's own: its size is [`Problem::sizes`]`.q_out`, and every byte of it is written. `kv_cache` is updated
/// in place.
pub type Buffers = Tensors<Option<Handle>>;

/// Uploads the tensors, runs the kernel on them, and reads the results back.
///
/// `q_out` is uploaded too, so what the kernel failed to write would come back as it was.
///
/// # Errors
/// A device that fails.
///
/// ```
/// # use mla_prologue_operator::prologue::{Call, Query, RotaryTable, Spec, Tensors};
/// # let problem = Spec::new(1, RotaryTable::new(1)).query(Query::new(1, 2)).validate()?;
/// # let sizes = problem.sizes();
/// # let tensors = sizes.map(|bytes| vec![0; bytes]);
/// use mla_prologue_kernel::{Device, prologue};
/// let device = Device::open("cpu")?;
/// let mut call = Call::new(problem, tensors)?; // one head, padded to two
/// prologue::run(&device, &mut call)?;
/// assert_eq!(call.tensors().q_out[1024..], [0; 1024]); // the padding head
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn run(device: &Device, call: &mut Call) -> Result<()> {
    let problem = *call.problem();
    let used = |(bytes, size): (&Vec<u8>, usize)| (size > 0).then(|| device.upload(bytes));
    let buffers = call.tensors().as_ref().zip(problem.sizes()).map(used);
    launch(device, &problem, &buffers)?;
    let (_, _, written) = call.split_mut();
    for (_, (to, buffer)) in written.zip(buffers).named() {
        if let (Some(buffer), false) = (buffer, to.is_empty()) {
            to.copy_from_slice(&device.read(&buffer, to.len())?);
        }
    }
    Ok(())
}

/// Copies the tensors that a call reads to the device. Those that it writes are `None`.
pub fn upload(device: &Device, problem: &Problem, tensors: &Tensors<Vec<u8>>) -> Buffers {
    let tensors = tensors.as_ref().zip(problem.sizes()).zip(Tensors::ACCESS);
    tensors.map(|((bytes, size), access)| {
        (size > 0 && access == Access::Read).then(|| device.upload(bytes))
    })
}

/// Queues the kernel on the device. Positions and slots are read there, when it runs, and **not
/// checked**: a token whose position is no row of the rotary table is neither rotated nor inserted, one
/// whose slot is not in the cache is not inserted, and of two tokens with the same slot either may win,
/// byte by byte. No memory outside the buffers is accessed whatever they hold.
///
/// Nothing is allocated, so the call can be captured in a graph.
///
/// # Errors
/// A buffer that is missing, smaller than `problem` says, of another device, or not aligned to 16 bytes.
pub fn launch(device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
    launch_with_padding(device, problem, buffers, PaddingHeads::Written)
}

/// [`launch`], where the padding heads of `q_out` may be known to be zero: they are not accessed then.
/// [`Workspace`](super::Workspace) keeps track of that by itself.
///
/// # Errors
/// Those of [`launch`].
pub fn launch_with_padding(
    device: &Device,
    problem: &Problem,
    buffers: &Buffers,
    padding: PaddingHeads,
) -> Result<()> {
    let sizes = problem.sizes();
    for (name, (buffer, bytes)) in buffers.as_ref().zip(sizes).named() {
        check_buffer(device, name, buffer.as_ref(), bytes)?;
    }
    let rows = rows(problem, padding);
    // With a row of work there are positions.
    let Some(unused) = buffers.positions.as_ref().filter(|_| rows > 0) else { return Ok(()) };
    let client = device.client();
    let blueprint = Blueprint::new(problem, &device.strategy(), padding);
    let (count, dim) = grid(client, rows, blueprint.lanes, blueprint.rows_per_cube);
    let out_words = blueprint.out_words();
    // SAFETY: every buffer was found to be at least as large as its size. The kernel stays within its buffers whatever the
    // indices are, and the sizes were computed from the strides and counts of the problem.
    unsafe {
        kernel::prologue::launch_unchecked(
            client,
            count,
            dim,
            address(sizes, out_words),
            out_words,
            buffer_arguments(buffers.clone(), sizes, out_words, unused),
            scalars(problem).launch(),
            blueprint,
        );
    }
    Ok(())
}

/// The width of indices into the buffers.
fn address(sizes: Tensors<usize>, out_words: usize) -> AddressType {
    address_type(sizes.zip(word_bytes(out_words)).named().map(|(_, pair)| pair))
}

/// The numbers of a launch.
pub(super) fn scalars(problem: &Problem) -> Scalars {
    let spec = problem.spec();
    let inverse = |scale: Option<f32>| 1.0 / scale.unwrap_or(1.0);
    let words = |values: usize| (values / LANE_RUN) as u32;
    let (query, key) = (spec.query, spec.key);
    let strides = query.and_then(|query| query.strides).unwrap_or(Strides::dense(0));
    let cache = key.map(|key| key.cache);
    Scalars {
        tokens: spec.tokens as u32,
        slot_count: key.map_or(0, |key| key.slot_count as u32),
        table_rows: spec.table.rows as u32,
        eps: spec.eps,
        heads: query.map_or(0, |query| query.heads as u32),
        q_token_stride: words(strides.token),
        q_head_stride: words(strides.head),
        q_scale_inverse: inverse(query.and_then(|query| query.scale)),
        kv_row_stride: words(key.and_then(|key| key.row_stride).unwrap_or(HEAD_DIM)),
        kv_scale_inverse: inverse(key.and_then(|key| key.scale)),
        block_size: cache.map_or(1, |cache| cache.block_size as u32),
        block_stride: cache.map_or(0, |cache| (cache.block_stride / 8) as u32),
        cache_capacity: cache.map_or(0, |cache| cache.capacity() as u32),
    }
}

/// A prologue, and what it knows of its padding heads.
impl Kernel for (Problem, PaddingHeads) {
    fn blueprint(&self, strategy: &Strategy) -> String {
        format!("{:?}", Blueprint::new(&self.0, strategy, self.1))
    }

    fn define(&self, strategy: &Strategy, plane_size: u32) -> KernelDefinition {
        let blueprint = Blueprint::new(&self.0, strategy, self.1);
        let out_words = blueprint.out_words();
        let dim = cube_dim(blueprint.lanes, blueprint.rows_per_cube);
        kernel::prologue::Prologue::new(
            settings(dim, address(self.0.sizes(), out_words)),
            properties(plane_size),
            Arc::default(),
            buffer_compilation(),
            Scalars::compilation(),
            out_words,
            blueprint,
        )
        .define()
    }

    fn dispatch(&self, strategy: &Strategy) -> Dispatch {
        let blueprint = Blueprint::new(&self.0, strategy, self.1);
        let (sizes, out_words) = (self.0.sizes(), blueprint.out_words());
        let lengths = sizes.zip(word_bytes(out_words)).named();
        Dispatch::new(
            rows(&self.0, self.1).div_ceil(blueprint.rows_per_cube as usize) as u32,
            cube_dim(blueprint.lanes, blueprint.rows_per_cube),
            address(sizes, out_words),
            |to| scalars(&self.0).push(to),
            lengths.map(|(_, (bytes, word))| bytes / word),
        )
    }
}
