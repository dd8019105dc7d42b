//! The base operator as one would write it without fusing: six kernels, each a pass over memory. It shows
//! what fusing is worth, and has the bits of the definition with [`Rounding::Half`], since values pass between
//! kernels in 16 bits.

use crate::{
    Buffers, Device, Result,
    blueprint::{Blueprint, Pads},
    cache,
    kernel::{load_row, store_row},
    lanes,
    launch::grid,
    norm, rope,
    words::{self, HalfWord, Word},
};
use cubecl::{prelude::*, server::Handle};
use mla_prologue_operator::{CacheFormat, Invalid, Key, Problem, Query, Rounding};

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
        let supported = problem.query.zip(problem.key).is_some_and(|(query, key)| {
            let base = Query::new(query.heads, query.padded_heads);
            query == Query { rounding: Rounding::Half, ..base }
                && key == Key { slot_type: key.slot_type, ..Key::new(key.slots, key.cache) }
                && matches!(key.cache.format, CacheFormat::Fp8DsMla { .. })
        });
        if !supported {
            let must = "the base operator with q_rounding 16bit";
            return Err(Invalid::new("the problem", "another", must).into());
        }
        let room = |bytes: usize| device.client().empty(bytes.max(16));
        let sizes = problem.sizes();
        let quantized = room(problem.tokens * TOKEN_WORDS * 8);
        Ok(Self { normed: room(sizes.q), q: room(sizes.q), kv: room(sizes.kv), quantized })
    }

    /// Queues the six kernels.
    ///
    /// # Errors
    /// A missing buffer.
    pub fn launch(&self, device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
        let absent = |name| Invalid::new(name, "absent", "given");
        let q = buffers.q.as_ref().ok_or_else(|| absent("q"))?;
        let kv = buffers.kv.as_ref().ok_or_else(|| absent("kv"))?;
        let slots = buffers.slot_mapping.as_ref().ok_or_else(|| absent("slot_mapping"))?;
        let q_out = buffers.q_out.as_ref().ok_or_else(|| absent("q_out"))?;
        let kv_cache = buffers.kv_cache.as_ref().ok_or_else(|| absent("kv_cache"))?;
        let (query, key) = problem.query.zip(problem.key).ok_or_else(|| absent("work"))?;
        let (tokens, heads, padded) = (problem.tokens, query.heads, query.padded_heads);
        let blueprint = device.blueprint(problem, Pads::Written);
        let client = device.client();
        let size = |rows| grid(client, rows, blueprint.lanes, blueprint.rows_per_cube);
        let slice = |buffer: &Handle| {
            let bytes = buffer.size_in_used() as usize;
            // SAFETY: it is the whole buffer.
            unsafe { BufferArg::from_raw_parts(buffer.clone(), bytes / 16) }
        };
        let (positions, table) = (&buffers.positions, &buffers.cos_sin_cache);
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
                problem.eps,
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
                count(key.slots),
                count(key.cache.block_size),
                count(key.cache.block_stride / 8),
                count(key.cache.slots()),
                blueprint,
            );
        }
        Ok(())
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn norm_rows(q: &[Word], out: &mut [Word], rows: u32, eps: f32, #[comptime] blueprint: Blueprint) {
    let row = lanes::row(comptime!(blueprint.lanes));
    if row < rows as usize {
        let mut x = Array::<f32>::new(comptime!(8 * blueprint.lanes.runs()));
        load_row(q, row * 64, &mut x, blueprint);
        norm::rms_norm(&mut x, eps, comptime!(blueprint.lanes));
        store_row(&x, out, row * 64, blueprint);
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
    let row = lanes::row(comptime!(blueprint.lanes));
    if row < rows as usize {
        let mut x = Array::<f32>::new(comptime!(8 * blueprint.lanes.runs()));
        load_row(from, row * 64, &mut x, blueprint);
        let position =
            words::index(positions, row / heads as usize, comptime!(blueprint.positions));
        rope::rotate(&mut x, table, position as usize, blueprint);
        store_row(&x, to, row * 64, blueprint);
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
                word = q[(token * heads as usize + head) * 64 + lanes::word(run, lanes)];
            }
            q_out[row * 64 + lanes::word(run, lanes)] = word;
        }
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn quantize_rows(kv: &[Word], out: &mut [HalfWord], rows: u32, #[comptime] blueprint: Blueprint) {
    let row = lanes::row(comptime!(blueprint.lanes));
    let key = comptime!(blueprint.key.unwrap_or_default());
    if row < rows as usize {
        let mut x = Array::<f32>::new(comptime!(8 * blueprint.lanes.runs()));
        load_row(kv, row * 64, &mut x, blueprint);
        // As into a cache of blocks of one token.
        let slot = cache::locate(
            row as u32,
            0u32,
            1u32,
            comptime!(TOKEN_WORDS as u32).runtime(),
            comptime!(key.format),
        );
        cache::insert(&mut x, out, slot, 1.0f32, key, blueprint);
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn insert_rows(
    quantized: &[HalfWord],
    slot_mapping: &[u32],
    kv_cache: &mut [HalfWord],
    rows: u32,
    block_size: u32,
    block_stride: u32,
    cache_slots: u32,
    #[comptime] blueprint: Blueprint,
) {
    let lanes = comptime!(blueprint.lanes);
    let key = comptime!(blueprint.key.unwrap_or_default());
    let row = lanes::row(lanes);
    if row < rows as usize {
        let slot = words::index(slot_mapping, row, comptime!(key.slots));
        if slot < cache_slots {
            let to = cache::locate(
                slot / block_size,
                slot % block_size,
                block_size,
                block_stride,
                comptime!(key.format),
            );
            let units = comptime!(32 / lanes.per_unit());
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
