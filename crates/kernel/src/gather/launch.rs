//! Buffers in, kernel out.

use super::{
    Blueprint,
    kernel::{self, Scalars, buffer_arguments, buffer_compilation, word_bytes},
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
use mla_prologue_operator::gather::{Call, Problem, Tensors};
use std::sync::Arc;

/// The buffers of one call on a device. What the problem does not use is `None`. `out` is the caller's own, and written whole.
pub type Buffers = Tensors<Option<Handle>>;

/// Uploads the tensors, gathers, and reads the result back.
///
/// # Errors
/// A device that fails.
pub fn run(device: &Device, call: &mut Call) -> Result<()> {
    let problem = *call.problem();
    let used = |(bytes, size): (&Vec<u8>, usize)| (size > 0).then(|| device.upload(bytes));
    let buffers = call.tensors().as_ref().zip(problem.sizes()).map(used);
    launch(device, &problem, &buffers)?;
    let (_, _, written) = call.split_mut();
    if let Some(out) = &buffers.out {
        written.out.copy_from_slice(&device.read(out, written.out.len())?);
    }
    Ok(())
}

/// Queues a gather on the device. Indices are read there and not checked: a row without a token is
/// zero, and no memory outside the buffers is accessed. Nothing is allocated, so the call can be captured in a graph.
///
/// # Errors
/// A buffer that is missing, too small, of another device, or not aligned to 16 bytes.
pub fn launch(device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
    let sizes = problem.sizes();
    for (name, (buffer, bytes)) in buffers.as_ref().zip(sizes).named() {
        check_buffer(device, name, buffer.as_ref(), bytes)?;
    }
    // With a row of the result there are indices.
    let rows = problem.spec().rows;
    let Some(unused) = buffers.indices.as_ref().filter(|_| rows > 0) else { return Ok(()) };
    let client = device.client();
    let blueprint = Blueprint::new(problem, &device.strategy());
    let (count, dim) = grid(client, rows, blueprint.lanes, blueprint.rows_per_cube);
    // SAFETY: every buffer was found to be at least as large as its size, and the kernel stays within its buffers whatever the
    // indices are.
    unsafe {
        kernel::gather::launch_unchecked(
            client,
            count,
            dim,
            address(sizes),
            buffer_arguments(buffers.clone(), sizes, unused),
            scalars(problem).launch(),
            blueprint,
        );
    }
    Ok(())
}

/// The width of indices into the buffers.
fn address(sizes: Tensors<usize>) -> AddressType {
    address_type(sizes.zip(word_bytes()).named().map(|(_, pair)| pair))
}

/// The numbers of a launch.
fn scalars(problem: &Problem) -> Scalars {
    let spec = problem.spec();
    Scalars {
        rows: spec.rows as u32,
        rows_per_sequence: problem.rows_per_sequence() as u32,
        table_blocks: spec.block_table.map_or(0, |table| table.blocks as u32),
        num_blocks: spec.cache.num_blocks as u32,
        block_size: spec.cache.block_size as u32,
        block_stride: (spec.cache.block_stride / 8) as u32,
        scale: spec.scale.unwrap_or(1.0),
    }
}

impl Kernel for Problem {
    fn blueprint(&self, strategy: &Strategy) -> String {
        format!("{:?}", Blueprint::new(self, strategy))
    }

    fn define(&self, strategy: &Strategy, plane_size: u32) -> KernelDefinition {
        let blueprint = Blueprint::new(self, strategy);
        let dim = cube_dim(blueprint.lanes, blueprint.rows_per_cube);
        kernel::gather::Gather::new(
            settings(dim, address(self.sizes())),
            properties(plane_size),
            Arc::default(),
            buffer_compilation(),
            Scalars::compilation(),
            blueprint,
        )
        .define()
    }

    fn dispatch(&self, strategy: &Strategy) -> Dispatch {
        let blueprint = Blueprint::new(self, strategy);
        let lengths = self.sizes().zip(word_bytes()).named();
        Dispatch::new(
            self.spec().rows.div_ceil(blueprint.rows_per_cube as usize) as u32,
            cube_dim(blueprint.lanes, blueprint.rows_per_cube),
            address(self.sizes()),
            |to| scalars(self).push(to),
            lengths.map(|(_, (bytes, word))| bytes / word),
        )
    }
}
