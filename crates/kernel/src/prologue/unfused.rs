//! The base operator as one would write it without fusing: six kernels, each a pass over memory. It shows
//! what fusing is worth, and has the bits of the reference with [`Rounding::To16Bit`], since values pass between
//! kernels in 16 bits.

use super::{Blueprint, Buffers, KeyBlueprint, PaddingHeads, Scalars, launch::scalars};
use crate::{
    Device, Result,
    buffers::grid,
    row::{CacheWord, ROW_WORDS, Row, Word, cache, lanes, words},
};
use cubecl::{prelude::*, server::Handle};
use mla_prologue_operator::{
    CacheFormat, Invalid, LANES, Rounding,
    prologue::{Key, Problem, Query},
};

/// The buffers between the kernels.
#[derive(Clone, Debug)]
pub struct Unfused {
    /// `[tokens, heads, 512]` after norm.
    normed: Handle,
    /// `[tokens, heads, 512]` after RoPE.
    q: Handle,
    /// `[tokens, 512]` after RoPE.
    kv: Handle,
    /// `[tokens, 584]` bytes: quantized keys, not yet in the cache.
    quantized: Handle,
}

/// Words of 8 bytes of a token's data in the cache, after which one holds its scales.
const DATA_WORDS: usize = 72;
const TOKEN_WORDS: usize = DATA_WORDS + 1;

impl Unfused {
    /// Room for the problem's intermediate values.
    ///
    /// # Errors
    /// A problem that is not the base operator with rounded queries.
    pub fn new(device: &Device, problem: &Problem) -> Result<Self> {
        let spec = problem.spec();
        let supported = spec.query.zip(spec.key).is_some_and(|(query, key)| {
            let base = Query::new(query.heads, query.padded_heads);
            query == base.rounding(Rounding::To16Bit)
                && key == Key::new(key.slot_count, key.cache).slot_type(key.slot_type)
                && matches!(key.cache.format, CacheFormat::Fp8DsMla { .. })
        });
        if !supported {
            let must = "the base operator with q_rounding 16bit";
            return Err(Invalid::new("the problem", "another", must).into());
        }
        let room = |bytes: usize| device.client().empty(bytes.max(16));
        let sizes = problem.sizes();
        let quantized = room(spec.tokens * TOKEN_WORDS * 8);
        Ok(Self { normed: room(sizes.q), q: room(sizes.q), kv: room(sizes.kv), quantized })
    }

    /// Queues the six kernels.
    ///
    /// # Errors
    /// A missing buffer.
    pub fn launch(&self, device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
        let missing = |name| Invalid::missing(name, "given");
        let q = buffers.q.as_ref().ok_or_else(|| missing("q"))?;
        let kv = buffers.kv.as_ref().ok_or_else(|| missing("kv"))?;
        let slots = buffers.slot_mapping.as_ref().ok_or_else(|| missing("slot_mapping"))?;
        let q_out = buffers.q_out.as_ref().ok_or_else(|| missing("q_out"))?;
        let kv_cache = buffers.kv_cache.as_ref().ok_or_else(|| missing("kv_cache"))?;
        let spec = problem.spec();
        let query = spec.query.ok_or_else(|| missing("q"))?;
        let (tokens, heads, padded) = (spec.tokens, query.heads, query.padded_heads);
        let blueprint = Blueprint::new(problem, &device.strategy(), PaddingHeads::Written);
        let key_blueprint = blueprint.key.ok_or_else(|| missing("kv"))?;
        let client = device.client();
        let size = |rows| grid(client, rows, blueprint.lanes, blueprint.rows_per_cube);
        let slice = |buffer: &Handle| {
            let bytes = buffer.size_in_used() as usize;
            // SAFETY: it is the whole buffer.
            unsafe { BufferArg::from_raw_parts(buffer.clone(), bytes / 16) }
        };
        let positions = buffers.positions.as_ref().ok_or_else(|| missing("positions"))?;
        let table = buffers.cos_sin_cache.as_ref().ok_or_else(|| missing("cos_sin_cache"))?;
        let count = |count: usize| count as u32;
        let large = AddressType::U64;
        // SAFETY: the kernels stay within the rows that there are, and the sizes are those of the problem.
        unsafe {
            let (cubes, dim) = size(tokens * heads);
            let rows = count(tokens * heads);
            norm_rows::launch_unchecked(
                client,
                cubes.clone(),
                dim,
                large,
                slice(q),
                slice(&self.normed),
                rows,
                spec.eps,
                blueprint,
            );
            rope_rows::launch_unchecked(
                client,
                cubes,
                dim,
                large,
                slice(&self.normed),
                slice(&self.q),
                slice(positions),
                slice(table),
                rows,
                count(heads),
                blueprint,
            );
            let (cubes, dim) = size(tokens * padded);
            pad_rows::launch_unchecked(
                client,
                cubes,
                dim,
                large,
                slice(&self.q),
                slice(q_out),
                count(tokens * padded),
                count(heads),
                count(padded),
                blueprint,
            );
            let (cubes, dim) = size(tokens);
            rope_rows::launch_unchecked(
                client,
                cubes.clone(),
                dim,
                large,
                slice(kv),
                slice(&self.kv),
                slice(positions),
                slice(table),
                count(tokens),
                1,
                blueprint,
            );
            quantize_rows::launch_unchecked(
                client,
                cubes.clone(),
                dim,
                large,
                slice(&self.kv),
                slice(&self.quantized),
                count(tokens),
                key_blueprint,
                blueprint,
            );
            insert_rows::launch_unchecked(
                client,
                cubes,
                dim,
                large,
                slice(&self.quantized),
                slice(slots),
                slice(kv_cache),
                scalars(problem).launch(),
                key_blueprint,
                blueprint,
            );
        }
        Ok(())
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn norm_rows(q: &[Word], out: &mut [Word], rows: u32, eps: f32, #[comptime] blueprint: Blueprint) {
    let row = lanes::row(blueprint.lanes);
    if row < rows as usize {
        let mut x = Row::load(q, row * ROW_WORDS, blueprint.lanes, blueprint.codec);
        x.rms_norm(eps);
        x.store(out, row * ROW_WORDS);
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn rope_rows(
    from: &[Word],
    to: &mut [Word],
    positions: &[u32],
    table: &[Word],
    rows: u32,
    heads: u32,
    #[comptime] blueprint: Blueprint,
) {
    let row = lanes::row(blueprint.lanes);
    if row < rows as usize {
        let mut x = Row::load(from, row * ROW_WORDS, blueprint.lanes, blueprint.codec);
        let position = words::index(positions, row / heads as usize, blueprint.position_type);
        x.rotate(table, position as usize, blueprint.rotary);
        x.store(to, row * ROW_WORDS);
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn pad_rows(
    q: &[Word],
    q_out: &mut [Word],
    rows: u32,
    heads: u32,
    padded_heads: u32,
    #[comptime] blueprint: Blueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    let row = lanes::row(lanes);
    if row < rows as usize {
        let (token, head) = (row / padded_heads as usize, row % padded_heads as usize);
        #[unroll(runs == 2)]
        for run in 0..runs {
            let mut word = Word::new(0u32);
            if head < heads as usize {
                word = q[(token * heads as usize + head) * ROW_WORDS + lanes::word(run, lanes)];
            }
            q_out[row * ROW_WORDS + lanes::word(run, lanes)] = word;
        }
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn quantize_rows(
    kv: &[Word],
    out: &mut [CacheWord],
    rows: u32,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let row = lanes::row(blueprint.lanes);
    if row < rows as usize {
        let mut x = Row::load(kv, row * ROW_WORDS, blueprint.lanes, blueprint.codec);
        // As into a cache of blocks of one token.
        let slot = cache::locate(
            row as u32,
            0u32,
            1u32,
            comptime!(TOKEN_WORDS as u32).runtime(),
            key.format,
        );
        x.insert(out, &slot, 1.0f32, key.quant_from, key.format);
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn insert_rows(
    quantized: &[CacheWord],
    slot_mapping: &[u32],
    kv_cache: &mut [CacheWord],
    scalars: &Scalars,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let row = lanes::row(lanes);
    if row < scalars.slot_count as usize {
        let slot = words::index(slot_mapping, row, key.slot_type);
        if slot < scalars.cache_capacity {
            let to = cache::locate(
                slot / scalars.block_size,
                slot % scalars.block_size,
                scalars.block_size,
                scalars.block_stride,
                key.format,
            );
            let units = comptime!(LANES / lanes.per_unit());
            for i in 0..comptime!(DATA_WORDS.div_ceil(units)) {
                let word = i * units + lanes::first(lanes);
                if word < DATA_WORDS {
                    kv_cache[to.data + word] = quantized[row * TOKEN_WORDS + word];
                }
            }
            if lanes::first(lanes) == 0 {
                kv_cache[to.scales] = quantized[row * TOKEN_WORDS + DATA_WORDS];
            }
        }
    }
}
