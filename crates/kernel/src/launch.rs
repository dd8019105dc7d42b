//! Buffers in, kernel out.

use crate::{
    Device, Result,
    blueprint::{Blueprint, Lanes, Pads, rows},
    kernel::{Scalars, prologue},
};
use cubecl::{
    client::Client,
    prelude::{AddressType, BufferArg, CubeCount, CubeDim},
    server::Handle,
};
use mla_prologue_operator::{HEAD_DIM, Inputs, Invalid, LANES, Outputs, Problem, Sizes, Strides};

/// The buffers of one call on a device. What the problem has no use for is `None`.
///
/// Their layouts are those of [`Inputs`] and [`Outputs`]. `q_out` is the caller's own: its size is
/// [`Problem::q_out_bytes`], and every byte of it is written.
/// `kv_cache` is updated in place.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// `[tokens, heads, 512]`.
    pub q: Option<Handle>,
    /// `[tokens, 512]`.
    pub kv: Option<Handle>,
    /// `[512]`.
    pub kv_norm_weight: Option<Handle>,
    /// `[tokens]`.
    pub positions: Handle,
    /// `[slots]`.
    pub slot_mapping: Option<Handle>,
    /// `[rows, 64]`.
    pub cos_sin_cache: Handle,
    /// `[tokens, padded_heads, 512]`.
    pub q_out: Option<Handle>,
    /// `[num_blocks, block_stride]`.
    pub kv_cache: Option<Handle>,
}

/// Uploads the tensors, runs the kernel on them, and reads the results back.
///
/// `outputs.q_out` is uploaded too, so what the kernel failed to write would come back as it was.
///
/// # Errors
/// Those of [`Inputs::check`] and [`Outputs::check`], before anything is written; and a device that fails.
pub fn run(device: &Device, problem: &Problem, inputs: &Inputs, outputs: Outputs) -> Result<()> {
    inputs.check(problem)?;
    outputs.check(problem)?;
    let mut buffers = Buffers::upload(device, problem, inputs);
    buffers.q_out = problem.query.map(|_| device.upload(outputs.q_out));
    buffers.kv_cache = problem.key.map(|_| device.upload(outputs.kv_cache));
    launch(device, problem, &buffers)?;
    for (handle, bytes) in [(buffers.q_out, outputs.q_out), (buffers.kv_cache, outputs.kv_cache)] {
        if let Some(handle) = handle {
            bytes.copy_from_slice(&device.read(&handle, bytes.len())?);
        }
    }
    Ok(())
}

impl Buffers {
    /// Copies the tensors that a call reads to the device. Those that it writes are `None`.
    pub fn upload(device: &Device, problem: &Problem, inputs: &Inputs) -> Self {
        let query = |bytes| problem.query.map(|_| device.upload(bytes));
        let key = |bytes| problem.key.map(|_| device.upload(bytes));
        let norm = problem.key.and_then(|key| key.norm);
        Self {
            q: query(inputs.q),
            kv: key(inputs.kv),
            kv_norm_weight: norm.map(|_| device.upload(inputs.kv_norm_weight)),
            positions: device.upload(inputs.positions),
            slot_mapping: key(inputs.slot_mapping),
            cos_sin_cache: device.upload(inputs.cos_sin_cache),
            q_out: None,
            kv_cache: None,
        }
    }
}

/// Queues the kernel on the device. Positions and slots are read there, when it runs, and **not
/// checked**: a token whose position is no row of the rotary table is neither rotated nor inserted, one
/// whose slot is not in the cache is not inserted, and of two tokens with the same slot either may win,
/// byte by byte. Nothing outside the buffers is touched whatever they hold.
///
/// Nothing is allocated, so the call can be captured in a graph.
///
/// # Errors
/// A buffer that is missing, smaller than `problem` says, of another device, or not aligned to 16 bytes.
pub fn launch(device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
    launch_with_pads(device, problem, buffers, Pads::Written)
}

/// [`launch`], where the added heads of `q_out` may be known to be zero: they are not touched then.
/// [`Workspace`](crate::Workspace) knows it by itself.
///
/// # Errors
/// Those of [`launch`].
pub fn launch_with_pads(
    device: &Device,
    problem: &Problem,
    buffers: &Buffers,
    pads: Pads,
) -> Result<()> {
    let sizes = problem.sizes();
    check(device, buffers, sizes)?;
    let rows = rows(problem, pads);
    if rows == 0 {
        return Ok(());
    }
    let client = device.client();
    let blueprint = device.blueprint(problem, pads);
    let (count, dim) = grid(client, rows, blueprint.lanes, blueprint.rows_per_cube);
    let out_words = blueprint.out_words();
    // What a call has no use for is never touched: any buffer will do.
    let handle = |buffer: &Option<Handle>| buffer.clone().unwrap_or(buffers.positions.clone());
    let slice = |buffer: Handle, bytes: usize, unit: usize| {
        // SAFETY: `check` found every buffer at least this large.
        unsafe { BufferArg::from_raw_parts(buffer, bytes / unit) }
    };
    // SAFETY: the kernel stays within its buffers whatever the indices are, and their lengths were
    // checked against the strides and counts of the problem.
    unsafe {
        prologue::launch_unchecked(
            client,
            count,
            dim,
            address_type(sizes),
            out_words,
            slice(handle(&buffers.q), sizes.q, 16),
            slice(handle(&buffers.kv), sizes.kv, 16),
            slice(handle(&buffers.kv_norm_weight), sizes.kv_norm_weight, 16),
            slice(buffers.positions.clone(), sizes.positions, 4),
            slice(handle(&buffers.slot_mapping), sizes.slot_mapping, 4),
            slice(buffers.cos_sin_cache.clone(), sizes.cos_sin_cache, 16),
            slice(handle(&buffers.q_out), sizes.q_out, 4 * out_words),
            slice(handle(&buffers.kv_cache), sizes.kv_cache, 8),
            scalars(problem).launch(),
            blueprint,
        );
    }
    Ok(())
}

impl Device {
    /// The specialization of the kernel that this device uses for a problem.
    pub fn blueprint(&self, problem: &Problem, pads: Pads) -> Blueprint {
        Blueprint::new(problem, &self.strategy(), pads)
    }
}

fn check(device: &Device, buffers: &Buffers, sizes: &Sizes) -> Result<()> {
    let handles = [
        buffers.q.as_ref(),
        buffers.kv.as_ref(),
        buffers.kv_norm_weight.as_ref(),
        Some(&buffers.positions),
        buffers.slot_mapping.as_ref(),
        Some(&buffers.cos_sin_cache),
        buffers.q_out.as_ref(),
        buffers.kv_cache.as_ref(),
    ];
    let named = sizes.named().into_iter().zip(handles);
    named
        .into_iter()
        .try_for_each(|((name, bytes), handle)| check_buffer(device, name, handle, bytes))
}

/// A buffer that is used, if only in part, must be there, of this device, aligned, and large enough.
pub(crate) fn check_buffer(
    device: &Device,
    name: &str,
    buffer: Option<&Handle>,
    bytes: usize,
) -> Result<()> {
    let size = buffer.map_or(0, |buffer| buffer.size_in_used() as usize);
    if size < bytes {
        let must = format!("at least {bytes} bytes");
        let name = format_args!("the size of {name}");
        return Err(Invalid::new(name, format_args!("{size} bytes"), must).into());
    }
    let Some(buffer) = buffer else { return Ok(()) };
    if buffer.service != device.client().service_id() {
        let must = format!("a buffer of {}", device.name());
        return Err(Invalid::new(name, "a buffer of another device", must).into());
    }
    let offset = buffer.offset_start.unwrap_or(0);
    if !offset.is_multiple_of(ALIGNMENT) {
        let must = format!("a multiple of {ALIGNMENT} bytes");
        return Err(Invalid::new(format_args!("the offset of {name}"), offset, must).into());
    }
    Ok(())
}

/// Buffers begin at a word.
const ALIGNMENT: u64 = 16;

/// Cubes for that many rows, spread over two dimensions where one does not hold them.
pub(crate) fn grid(
    client: &Client,
    rows: usize,
    lanes: Lanes,
    rows_per_cube: u32,
) -> (CubeCount, CubeDim) {
    let cubes = rows.div_ceil(rows_per_cube as usize) as u32;
    let x = cubes.min(client.properties().hardware.max_cube_count.0);
    (CubeCount::Static(x, cubes.div_ceil(x), 1), cube_dim(lanes, rows_per_cube))
}

/// The units of a cube.
pub(crate) fn cube_dim(lanes: Lanes, rows_per_cube: u32) -> CubeDim {
    match lanes {
        Lanes::Plane => CubeDim::new_2d(LANES as u32, rows_per_cube),
        Lanes::Unit => CubeDim::new_1d(rows_per_cube),
    }
}

/// The width of indices into the buffers: the finest are those of the cache, in words of 8 bytes, and of
/// the output.
pub(crate) fn address_type(sizes: &Sizes) -> AddressType {
    let words = [
        sizes.q / 16,
        sizes.kv / 16,
        sizes.cos_sin_cache / 16,
        sizes.q_out / 8,
        sizes.kv_cache / 8,
    ];
    AddressType::from_len(words.into_iter().max().unwrap_or(0))
}

/// The numbers of a launch.
pub(crate) fn scalars(problem: &Problem) -> Scalars {
    let inverse = |scale: Option<f32>| 1.0 / scale.unwrap_or(1.0);
    let words = |values: usize| (values * 2 / 16) as u32;
    let query = problem.query;
    let strides = query.and_then(|query| query.strides).unwrap_or(Strides::dense(0));
    let cache = problem.key.map(|key| key.cache);
    Scalars {
        tokens: problem.tokens as u32,
        slots: problem.key.map_or(0, |key| key.slots as u32),
        table_rows: problem.table.rows as u32,
        eps: problem.eps,
        heads: query.map_or(0, |query| query.heads as u32),
        q_token_stride: words(strides.token),
        q_head_stride: words(strides.head),
        q_scale_inverse: inverse(query.and_then(|query| query.scale)),
        kv_row_stride: words(problem.key.and_then(|key| key.row_stride).unwrap_or(HEAD_DIM)),
        kv_scale_inverse: inverse(problem.key.and_then(|key| key.scale)),
        block_size: cache.map_or(1, |cache| cache.block_size as u32),
        block_stride: cache.map_or(0, |cache| (cache.block_stride / 8) as u32),
        cache_slots: cache.map_or(0, |cache| cache.slots() as u32),
    }
}
