//! Reading the cache back: one row of work for each row of the result.

use crate::{
    Device, Result, Strategy,
    blueprint::{Conversion, Lanes},
    cache::{self, Slot},
    lanes,
    launch::{check_buffer, grid},
    quant,
    words::{self, HalfWord, NO_INDEX, Word},
};
use cubecl::{prelude::*, server::Handle};
use mla_prologue_operator::{CacheFormat, Gather, Half, Index, Invalid, NOPE_DIM};

/// The buffers of one gather on a device, laid out as [`Gather`] says.
#[derive(Clone, Debug)]
pub struct GatherBuffers {
    /// `[num_blocks, block_stride]`.
    pub kv_cache: Handle,
    /// `[rows]`.
    pub indices: Handle,
    /// `[sequences, blocks]`, with a block table.
    pub block_table: Option<Handle>,
    /// `[rows, 512]`, written whole.
    pub out: Handle,
}

impl Device {
    /// Uploads the tensors, gathers, and reads the result back. `block_table` is empty where there is
    /// none.
    ///
    /// # Errors
    /// A [`Gather`] that makes no sense, a tensor that is not of its size, or a device that fails.
    pub fn gather(
        &self,
        gather: &Gather,
        kv_cache: &[u8],
        indices: &[u8],
        block_table: &[u8],
    ) -> Result<Vec<u8>> {
        gather.validate()?;
        for (name, tensor, bytes) in [
            ("kv_cache", kv_cache, gather.cache.bytes()),
            ("the indices", indices, gather.index_bytes()),
            ("block_table", block_table, gather.table_bytes()),
        ] {
            if tensor.len() != bytes {
                let name = format_args!("the size of {name}");
                let must = format_args!("{bytes} bytes");
                return Err(Invalid::new(name, format_args!("{} bytes", tensor.len()), must).into());
            }
        }
        if gather.rows == 0 {
            return Ok(Vec::new());
        }
        let buffers = GatherBuffers {
            kv_cache: self.upload(kv_cache),
            indices: self.upload(indices),
            block_table: gather.block_table.map(|_| self.upload(block_table)),
            out: self.client().empty(gather.out_bytes()),
        };
        launch_gather(self, gather, &buffers)?;
        self.read(&buffers.out, gather.out_bytes())
    }
}

/// Queues a gather on the device. Indices are read there and not checked: a row without a token is
/// zero, and nothing outside the buffers is touched. Nothing is allocated, so the call can be captured
/// in a graph.
///
/// # Errors
/// A [`Gather`] that makes no sense, or a buffer that is missing, too small, of another device, or not
/// aligned to 16 bytes.
pub fn launch_gather(device: &Device, gather: &Gather, buffers: &GatherBuffers) -> Result<()> {
    gather.validate()?;
    let table = buffers.block_table.as_ref();
    check_buffer(device, "kv_cache", Some(&buffers.kv_cache), gather.cache.bytes())?;
    check_buffer(device, "the indices", Some(&buffers.indices), gather.index_bytes())?;
    check_buffer(device, "block_table", table, gather.table_bytes())?;
    check_buffer(device, "out", Some(&buffers.out), gather.out_bytes())?;
    if gather.rows == 0 {
        return Ok(());
    }
    let blueprint = GatherBlueprint::new(gather, &device.strategy());
    let (count, dim) = grid(device.client(), gather.rows, blueprint.lanes, blueprint.rows_per_cube);
    let slice = |buffer: &Handle, bytes: usize, unit: usize| {
        // SAFETY: the buffer was found to be at least this large.
        unsafe { BufferArg::from_raw_parts(buffer.clone(), bytes / unit) }
    };
    let words = [gather.cache.bytes() / 8, gather.out_bytes() / 16, gather.index_bytes() / 4];
    let address = AddressType::from_len(words.into_iter().max().unwrap_or(0));
    // SAFETY: the kernel stays within its buffers whatever the indices are, and their sizes were checked.
    unsafe {
        gather_rows::launch_unchecked(
            device.client(),
            count,
            dim,
            address,
            slice(&buffers.kv_cache, gather.cache.bytes(), 8),
            slice(&buffers.indices, gather.index_bytes(), 4),
            slice(table.unwrap_or(&buffers.indices), gather.table_bytes(), 4),
            slice(&buffers.out, gather.out_bytes(), 16),
            GatherScalarsLaunch::new(
                gather.rows as u32,
                gather.rows_per_sequence() as u32,
                gather.block_table.map_or(0, |table| table.blocks as u32),
                gather.cache.num_blocks as u32,
                gather.cache.block_size as u32,
                (gather.cache.block_stride / 8) as u32,
                gather.scale.unwrap_or(1.0),
            ),
            blueprint,
        );
    }
    Ok(())
}

/// Everything that the generated code depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatherBlueprint {
    lanes: Lanes,
    conversion: Conversion,
    rows_per_cube: u32,
    half: Half,
    rounded: bool,
    format: CacheFormat,
    indices: Index,
    block_table: Option<Index>,
}

impl GatherBlueprint {
    fn new(gather: &Gather, strategy: &Strategy) -> Self {
        Self {
            lanes: strategy.lanes,
            conversion: strategy.conversion(gather.half),
            rows_per_cube: strategy.rows_per_cube(gather.rows),
            half: gather.half,
            rounded: gather.rounded,
            format: gather.cache.format,
            indices: gather.indices,
            block_table: gather.block_table.map(|table| table.index),
        }
    }
}

/// The numbers of one launch. The distance between blocks is in words of 8 bytes.
#[derive(CubeType, CubeLaunch)]
pub struct GatherScalars {
    pub rows: u32,
    pub rows_per_sequence: u32,
    pub table_blocks: u32,
    pub num_blocks: u32,
    pub block_size: u32,
    pub block_stride: u32,
    pub scale: f32,
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gather_rows(
    kv_cache: &[HalfWord],
    indices: &[u32],
    block_table: &[u32],
    out: &mut [Word],
    scalars: &GatherScalars,
    #[comptime] blueprint: GatherBlueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    let row = lanes::row(lanes);
    if row < scalars.rows as usize {
        let mut x = Array::<f32>::new(comptime!(8 * runs));
        let (block, token) = find(indices, block_table, row, scalars, blueprint);
        if block < scalars.num_blocks {
            let slot = cache::locate(
                block,
                token,
                scalars.block_size,
                scalars.block_stride,
                comptime!(blueprint.format),
            );
            #[unroll(runs == 2)]
            for run in 0..runs {
                load(kv_cache, &slot, run, &mut x, scalars.scale, blueprint);
            }
        } else {
            #[unroll(runs == 2)]
            for run in 0..runs {
                #[unroll]
                for i in 0..8usize {
                    x[run * 8 + i] = 0.0;
                }
            }
        }
        #[unroll(runs == 2)]
        for run in 0..runs {
            store(&x, run, out, row, blueprint);
        }
    }
}

/// The block and the token in it of a row; no block where there is no token.
#[cube]
fn find(
    indices: &[u32],
    block_table: &[u32],
    row: usize,
    scalars: &GatherScalars,
    #[comptime] blueprint: GatherBlueprint,
) -> (u32, u32) {
    let index = words::index(indices, row, comptime!(blueprint.indices));
    let (mut block, token) = (index / scalars.block_size, index % scalars.block_size);
    if index == NO_INDEX {
        block = NO_INDEX;
    }
    if comptime!(blueprint.block_table.is_some()) {
        if block < scalars.table_blocks {
            let sequence = row / scalars.rows_per_sequence as usize;
            let entry = sequence * scalars.table_blocks as usize + block as usize;
            block = words::index(
                block_table,
                entry,
                comptime!(blueprint.block_table.unwrap_or_default()),
            );
        } else {
            block = NO_INDEX.runtime();
        }
    }
    (block, token)
}

/// Loads the 8 values of a run.
#[cube]
fn load(
    kv_cache: &[HalfWord],
    slot: &Slot,
    run: usize,
    x: &mut Array<f32>,
    scale: f32,
    #[comptime] blueprint: GatherBlueprint,
) {
    let word = lanes::word(run, comptime!(blueprint.lanes));
    match comptime!(blueprint.format) {
        CacheFormat::Fp8DsMla { fp8, .. } => {
            let nope_words = comptime!(NOPE_DIM / 8);
            if word < nope_words {
                let scale = cache::scale(kv_cache, slot, word / 8);
                quant::decode(kv_cache[slot.data + word], scale, x, run * 8, fp8);
            } else {
                let at = slot.data + nope_words + 2 * (word - nope_words);
                load_half(kv_cache, at, x, run * 8, blueprint);
            }
        }
        CacheFormat::Mxfp8 { fp8 } => {
            let scale = cache::scale(kv_cache, slot, word / 4);
            quant::decode(kv_cache[slot.data + word], scale, x, run * 8, fp8);
        }
        CacheFormat::Rows16Bit => load_half(kv_cache, slot.data + 2 * word, x, run * 8, blueprint),
        CacheFormat::RowsFp8 { fp8 } => {
            quant::decode(kv_cache[slot.data + word], scale, x, run * 8, fp8)
        }
    }
}

/// Loads 8 values of 16 bits.
#[cube]
fn load_half(
    kv_cache: &[HalfWord],
    at: usize,
    x: &mut Array<f32>,
    to: usize,
    #[comptime] blueprint: GatherBlueprint,
) {
    let mut word = Word::empty();
    #[unroll]
    for i in 0..2usize {
        let half = kv_cache[at + i];
        word.insert(2 * i, half.extract(0usize));
        word.insert(2 * i + 1, half.extract(1usize));
    }
    words::decode(word, x, to, comptime!(blueprint.half), comptime!(blueprint.conversion));
}

/// Stores the 8 values of a run.
#[cube]
fn store(
    x: &Array<f32>,
    run: usize,
    out: &mut [Word],
    row: usize,
    #[comptime] blueprint: GatherBlueprint,
) {
    let word = row * 64 + lanes::word(run, comptime!(blueprint.lanes));
    if comptime!(blueprint.rounded) {
        out[word] =
            words::encode(x, run * 8, comptime!(blueprint.half), comptime!(blueprint.conversion));
    } else {
        words::store_f32(x, run * 8, out, 2 * word);
    }
}
