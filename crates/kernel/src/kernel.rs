//! The kernel: one row of work for each live head and key of each token, then one for each added head.

use crate::{
    blueprint::{Blueprint, Pads},
    cache, lanes, norm, pad, quant, rope,
    words::{self, HalfWord, Word},
};
use cubecl::{ScalarBuilder, prelude::*};
use mla_prologue_operator::Rounding;

/// The numbers of one launch. Distances between rows are in words of 16 bytes, those between blocks in
/// words of 8.
#[derive(CubeType, CubeLaunch)]
pub struct Scalars {
    pub tokens: u32,
    pub slots: u32,
    pub table_rows: u32,
    pub eps: f32,
    pub heads: u32,
    pub q_token_stride: u32,
    pub q_head_stride: u32,
    pub q_scale_inverse: f32,
    pub kv_row_stride: u32,
    pub kv_scale_inverse: f32,
    pub block_size: u32,
    pub block_stride: u32,
    pub cache_slots: u32,
}

impl Scalars {
    /// As arguments of a launch.
    pub fn launch(self) -> ScalarsLaunch {
        ScalarsLaunch::new(
            self.tokens,
            self.slots,
            self.table_rows,
            self.eps,
            self.heads,
            self.q_token_stride,
            self.q_head_stride,
            self.q_scale_inverse,
            self.kv_row_stride,
            self.kv_scale_inverse,
            self.block_size,
            self.block_stride,
            self.cache_slots,
        )
    }

    /// As a launch hands them to the generated code.
    pub fn push(self, to: &mut ScalarBuilder) {
        to.push(self.tokens);
        to.push(self.slots);
        to.push(self.table_rows);
        to.push(self.eps);
        to.push(self.heads);
        to.push(self.q_token_stride);
        to.push(self.q_head_stride);
        to.push(self.q_scale_inverse);
        to.push(self.kv_row_stride);
        to.push(self.kv_scale_inverse);
        to.push(self.block_size);
        to.push(self.block_stride);
        to.push(self.cache_slots);
    }
}

/// The fused prologue. Buffers are as in the definition, in words; those that a blueprint has no use for
/// are never touched. They may be larger than the call needs: counts are not taken from their lengths.
///
/// Whatever the indices are, the kernel stays within its buffers: a token whose position is no row of
/// the table is not rotated and not inserted; one whose slot is not in the cache is not inserted.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments, reason = "the operator has that many tensors")]
pub fn prologue<N: Size>(
    q: &[Word],
    kv: &[Word],
    kv_norm_weight: &[Word],
    positions: &[u32],
    slot_mapping: &[u32],
    cos_sin_cache: &[Word],
    q_out: &mut [Vector<u32, N>],
    kv_cache: &mut [HalfWord],
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let query = comptime!(blueprint.query.unwrap_or_default());
    let padded_heads = comptime!(query.padded_heads as usize);
    let tokens = scalars.tokens as usize;
    let heads = scalars.heads as usize;
    let pads = padded_heads - heads;
    let live_rows = heads + comptime!(blueprint.key.is_some() as usize);

    // The rows that are read come first, of all tokens, then those that are only written: memory is used
    // better by many of a kind.
    let row = lanes::row(comptime!(blueprint.lanes));
    if row < tokens * live_rows {
        let (token, head) = (row / live_rows, row % live_rows);
        if comptime!(blueprint.query.is_some()) && head < heads {
            query_row(q, positions, cos_sin_cache, q_out, scalars, token, head, blueprint);
        } else if comptime!(blueprint.key.is_some()) {
            key_row(
                kv,
                kv_norm_weight,
                positions,
                slot_mapping,
                cos_sin_cache,
                kv_cache,
                scalars,
                token,
                blueprint,
            );
        }
    } else if comptime!(blueprint.query.is_some() && query.pads == Pads::Written) {
        let pad = row - tokens * live_rows;
        if pad < tokens * pads {
            let at = pad / pads * padded_heads + heads + pad % pads;
            pad::zero_row(q_out, at, comptime!(blueprint.lanes));
        }
    }
}

/// A live head: norm, RoPE, conversion, store.
#[cube]
#[allow(clippy::too_many_arguments, reason = "the operator has that many tensors")]
fn query_row<N: Size>(
    q: &[Word],
    positions: &[u32],
    table: &[Word],
    q_out: &mut [Vector<u32, N>],
    scalars: &Scalars,
    token: usize,
    head: usize,
    #[comptime] blueprint: Blueprint,
) {
    let query = comptime!(blueprint.query.unwrap_or_default());
    let mut x = Array::<f32>::new(comptime!(8 * blueprint.lanes.runs()));
    let start = if comptime!(query.strided) {
        token * scalars.q_token_stride as usize + head * scalars.q_head_stride as usize
    } else {
        (token * scalars.heads as usize + head) * 64
    };
    load_row(q, start, &mut x, blueprint);
    if comptime!(query.norm) {
        norm::rms_norm(&mut x, scalars.eps, comptime!(blueprint.lanes));
        if comptime!(query.rounding == Rounding::Half) {
            round_row(&mut x, blueprint);
        }
    }
    if comptime!(query.rope) {
        let position = words::index(positions, token, comptime!(blueprint.positions));
        if position < scalars.table_rows {
            rope::rotate(&mut x, table, position as usize, blueprint);
        }
    }
    store_query(
        &x,
        q_out,
        (token * comptime!(query.padded_heads as usize) + head) * 64,
        scalars.q_scale_inverse,
        blueprint,
    );
}

/// The key of a token, if it has a slot: norm, RoPE, quantization, insertion.
#[cube]
#[allow(clippy::too_many_arguments, reason = "the operator has that many tensors")]
fn key_row(
    kv: &[Word],
    weight: &[Word],
    positions: &[u32],
    slot_mapping: &[u32],
    table: &[Word],
    kv_cache: &mut [HalfWord],
    scalars: &Scalars,
    token: usize,
    #[comptime] blueprint: Blueprint,
) {
    let key = comptime!(blueprint.key.unwrap_or_default());
    if token < scalars.slots as usize {
        let slot = words::index(slot_mapping, token, comptime!(key.slots));
        let position = words::index(positions, token, comptime!(blueprint.positions));
        if slot < scalars.cache_slots && position < scalars.table_rows {
            let mut x = Array::<f32>::new(comptime!(8 * blueprint.lanes.runs()));
            let start = if comptime!(key.strided) {
                token * scalars.kv_row_stride as usize
            } else {
                token * 64
            };
            load_row(kv, start, &mut x, blueprint);
            if comptime!(key.norm.is_some()) {
                norm::rms_norm(&mut x, scalars.eps, comptime!(blueprint.lanes));
                norm::weigh(
                    &mut x,
                    weight,
                    comptime!(blueprint.half),
                    comptime!(blueprint.conversion),
                    comptime!(blueprint.lanes),
                );
                if comptime!(key.norm == Some(Rounding::Half)) {
                    round_row(&mut x, blueprint);
                }
            }
            rope::rotate(&mut x, table, position as usize, blueprint);
            let slot = cache::locate(
                slot / scalars.block_size,
                slot % scalars.block_size,
                scalars.block_size,
                scalars.block_stride,
                comptime!(key.format),
            );
            cache::insert(&mut x, kv_cache, slot, scalars.kv_scale_inverse, key, blueprint);
        }
    }
}

/// Loads a row, or as much of it as the unit holds.
#[cube]
pub fn load_row(from: &[Word], start: usize, x: &mut Array<f32>, #[comptime] blueprint: Blueprint) {
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        let word = from[start + lanes::word(run, lanes)];
        words::decode(word, x, run * 8, comptime!(blueprint.half), comptime!(blueprint.conversion));
    }
}

/// Stores a row in 16 bits.
#[cube]
pub fn store_row(x: &Array<f32>, to: &mut [Word], start: usize, #[comptime] blueprint: Blueprint) {
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        to[start + lanes::word(run, lanes)] =
            words::encode(x, run * 8, comptime!(blueprint.half), comptime!(blueprint.conversion));
    }
}

/// Rounds a row to 16 bits and goes on in f32.
#[cube]
fn round_row(x: &mut Array<f32>, #[comptime] blueprint: Blueprint) {
    let runs = comptime!(blueprint.lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        words::round(x, run * 8, comptime!(blueprint.half), comptime!(blueprint.conversion));
    }
}

/// Stores a row of the output in 16 bits, or in FP8.
#[cube]
fn store_query<N: Size>(
    x: &Array<f32>,
    q_out: &mut [Vector<u32, N>],
    start: usize,
    scale_inverse: f32,
    #[comptime] blueprint: Blueprint,
) {
    let fp8 = comptime!(blueprint.query.unwrap_or_default().fp8);
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        let mut out = Vector::<u32, N>::empty();
        if comptime!(fp8.is_some()) {
            let word =
                quant::encode_each(x, run * 8, scale_inverse, comptime!(fp8.unwrap_or_default()));
            #[unroll]
            for i in 0..2usize {
                out.insert(i, word.extract(i));
            }
        } else {
            let word = words::encode(
                x,
                run * 8,
                comptime!(blueprint.half),
                comptime!(blueprint.conversion),
            );
            #[unroll]
            for i in 0..4usize {
                out.insert(i, word.extract(i));
            }
        }
        q_out[start + lanes::word(run, lanes)] = out;
    }
}
