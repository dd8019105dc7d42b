//! Buffers in, kernel out.

use super::{
    Blueprint,
    kernel::{self, Scalars, buffer_arguments, buffer_compilation, word_bytes},
};
use crate::{
    Device, Error, Kernel, Result, Runtime, Strategy,
    buffers::{address_type, check_buffer, cubes},
    definition::{Dispatch, properties, settings},
};
use cubecl::{
    prelude::{AddressType, CubeDim, CubeKernel, KernelDefinition},
    server::Handle,
};
use mla_prologue_operator::{
    LANE_RUN,
    attend::{Call, Entries, Problem, Tensors},
};
use std::sync::Arc;

/// The buffers of one call on a device. What the problem does not use is `None`. `out`, `max` and `sum` are the caller's own,
/// and written whole.
pub type Buffers = Tensors<Option<Handle>>;

/// Uploads the tensors, attends, and reads the results back.
///
/// `out`, `max` and `sum` are uploaded too, so what the kernel failed to write would come back as it was.
///
/// # Errors
/// A device that fails.
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

/// Queues attention on the device. Slots, lengths, positions and block tables are read there and **not checked**: an entry
/// that is not in its cache is skipped, and a token whose position is no row of the rotary table is not rotated. No memory
/// outside the buffers is accessed whatever they hold. Nothing is allocated, so the call can be captured in a graph.
///
/// # Errors
/// A buffer that is missing, too small, of another device, or not aligned to 16 bytes; a Vulkan device ([`check_device`]).
pub fn launch(device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
    check_device(device)?;
    let sizes = problem.sizes();
    for (name, (buffer, bytes)) in buffers.as_ref().zip(sizes).named() {
        check_buffer(device, name, buffer.as_ref(), bytes)?;
    }
    // With a token there are queries.
    let Some(unused) = buffers.q.as_ref().filter(|_| problem.spec().tokens > 0) else {
        return Ok(());
    };
    let client = device.client();
    let blueprint = Blueprint::new(problem, &device.strategy());
    let count = cubes(client, cube_count(problem, &blueprint));
    // SAFETY: every buffer was found to be at least as large as its size, and the kernel stays within its buffers whatever the
    // indices are.
    unsafe {
        kernel::attend::launch_unchecked(
            client,
            count,
            CubeDim::new_1d(blueprint.team.units),
            address(sizes),
            blueprint.team.width,
            buffer_arguments(buffers.clone(), sizes, unused),
            scalars(problem).launch(),
            blueprint,
        );
    }
    Ok(())
}

/// Can attention run on a device?
///
/// # Errors
/// A Vulkan device: the SPIR-V that CubeCL 0.11 generates for the memory of a cube is invalid (an access chain into a variable that is no
/// array), and a driver may crash on it.
pub fn check_device(device: &Device) -> Result<()> {
    if device.runtime() != Runtime::Vulkan {
        return Ok(());
    }
    let reason = "attention does not run on Vulkan: CubeCL generates invalid SPIR-V for it";
    Err(Error::unavailable(device.name(), reason))
}

/// Cubes of a launch.
fn cube_count(problem: &Problem, blueprint: &Blueprint) -> usize {
    let spec = problem.spec();
    let tiles = spec.tokens * spec.heads.div_ceil(blueprint.team.heads);
    if blueprint.team.shared { tiles } else { tiles.div_ceil(blueprint.team.units as usize) }
}

/// The width of indices into the buffers.
fn address(sizes: Tensors<usize>) -> AddressType {
    address_type(sizes.zip(word_bytes()).named().map(|(_, pair)| pair))
}

/// The numbers of a launch.
fn scalars(problem: &Problem) -> Scalars {
    let spec = problem.spec();
    let extra = spec.extra.map_or(spec.cache, |extra| extra.cache);
    let table = match &spec.entries {
        Entries::Slots(_) => None,
        Entries::Window(window) => Some(window.table),
    };
    let sequences = table.map_or(1, |table| table.sequences);
    Scalars {
        tokens: spec.tokens as u32,
        heads: spec.heads as u32,
        out_heads: spec.padded_heads as u32,
        q_token_stride: (spec.stride() / LANE_RUN) as u32,
        scale: spec.scale,
        kv_scale: spec.kv_scale.unwrap_or(1.0),
        count: spec.count() as u32,
        num_blocks: spec.cache.num_blocks as u32,
        block_size: spec.cache.block_size as u32,
        block_stride: (spec.cache.block_stride / 8) as u32,
        extra_count: spec.extra_count() as u32,
        extra_num_blocks: extra.num_blocks as u32,
        extra_block_size: extra.block_size as u32,
        extra_block_stride: (extra.block_stride / 8) as u32,
        sequences: sequences as u32,
        table_blocks: table.map_or(0, |table| table.blocks) as u32,
        sequence_tokens: (spec.tokens / sequences).max(1) as u32,
        table_rows: spec.rotary.map_or(0, |rotary| rotary.rows) as u32,
    }
}

impl Kernel for Problem {
    fn blueprint(&self, strategy: &Strategy) -> String {
        format!("{:?}", Blueprint::new(self, strategy))
    }

    fn define(&self, strategy: &Strategy, plane_size: u32) -> KernelDefinition {
        let blueprint = Blueprint::new(self, strategy);
        kernel::attend::Attend::new(
            settings(CubeDim::new_1d(blueprint.team.units), address(self.sizes())),
            properties(plane_size),
            Arc::default(),
            buffer_compilation(),
            Scalars::compilation(),
            blueprint.team.width,
            blueprint,
        )
        .define()
    }

    fn dispatch(&self, strategy: &Strategy) -> Dispatch {
        let blueprint = Blueprint::new(self, strategy);
        let lengths = self.sizes().zip(word_bytes()).named();
        Dispatch::new(
            cube_count(self, &blueprint) as u32,
            CubeDim::new_1d(blueprint.team.units),
            address(self.sizes()),
            |to| scalars(self).push(to),
            lengths.map(|(_, (bytes, word))| bytes / word),
        )
    }
}
