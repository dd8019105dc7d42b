//! The fused prologue.
//!
//! **Grid.** A row of work for each live head and the key of each token, token by token; then one for each padding head:
//! rows that are only written come last, which uses memory better.
//! **Lanes.** A row is 32 units of a plane, which exchange sums and maxima by shuffles, or one unit in loops
//! ([`row::lanes`](crate::row::lanes)).
//! **Layout.** Tensors are as in [`Tensors`], in words of 16 bytes, 64 a row; the cache in words of 8 bytes.
//! **Specialization.** What [`Blueprint`] holds is known when the kernel is compiled, the [`Scalars`] are not.

use super::{Blueprint, KeyBlueprint, QueryBlueprint};
use crate::{
    arguments::{arguments, scalars},
    row::{CacheWord, ROW_WORDS, Row, Word, cache, lanes, quant, words},
};
use cubecl::prelude::*;
use mla_prologue_operator::{LANE_RUN, Rounding, prologue::Tensors};

arguments! {
    /// The tensors, in words. Those that a blueprint does not use are never accessed. They may be larger than the call
    /// needs: counts are not taken from their lengths.
    pub struct Arguments<N, out_words> of Tensors {
        q: Word = 16,
        kv: Word = 16,
        kv_norm_weight: Word = 16,
        positions: u32 = 4,
        slot_mapping: u32 = 4,
        cos_sin_cache: Word = 16,
        q_out: Vector<u32, N> = 4 * out_words,
        kv_cache: CacheWord = 8,
    }
}

scalars! {
    /// The numbers of one launch.
    pub struct Scalars {
        /// Tokens.
        tokens: u32,
        /// The length of `slot_mapping`.
        slot_count: u32,
        /// Rows of the rotary table.
        table_rows: u32,
        /// Added to the mean square.
        eps: f32,
        /// Live heads.
        heads: u32,
        /// Words from a token of `q` to the next.
        q_token_stride: u32,
        /// Words from a head of `q` to the next.
        q_head_stride: u32,
        /// What FP8 queries are multiplied by.
        q_scale_inverse: f32,
        /// Words from a row of `kv` to the next.
        kv_row_stride: u32,
        /// What rows of FP8 keys are multiplied by.
        kv_scale_inverse: f32,
        /// Tokens of a block of the cache.
        block_size: u32,
        /// Words from a block of the cache to the next.
        block_stride: u32,
        /// Slots of the cache.
        cache_capacity: u32,
    }
}

/// The fused prologue.
///
/// Whatever the indices are, the kernel stays within its buffers: a token whose position is no row of
/// the table is not rotated and not inserted; one whose slot is not in the cache is not inserted.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn prologue<N: Size>(
    tensors: &mut Arguments<N>,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let tokens = scalars.tokens as usize;
    let heads = scalars.heads as usize;
    let live_rows = heads + comptime!(blueprint.key.is_some() as usize);

    let row = lanes::row(blueprint.lanes);
    if row < tokens * live_rows {
        let (token, head) = (row / live_rows, row % live_rows);
        match comptime!((blueprint.query, blueprint.key)) {
            (Some(query), Some(key)) => {
                if head < heads {
                    query_row(tensors, scalars, token, head, query, blueprint);
                } else {
                    key_row(tensors, scalars, token, key, blueprint);
                }
            }
            (Some(query), None) => query_row(tensors, scalars, token, head, query, blueprint),
            (None, Some(key)) => key_row(tensors, scalars, token, key, blueprint),
            (None, None) => {}
        }
    } else {
        match comptime!(blueprint.written_heads()) {
            Some(padded_heads) => {
                let pads = padded_heads - heads;
                let pad = row - tokens * live_rows;
                if pad < tokens * pads {
                    let at = pad / pads * padded_heads + heads + pad % pads;
                    zero_row(&mut tensors.q_out, at, blueprint);
                }
            }
            None => {}
        }
    }
}

/// A live head: norm, RoPE, conversion, store.
#[cube]
fn query_row<N: Size>(
    tensors: &mut Arguments<N>,
    scalars: &Scalars,
    token: usize,
    head: usize,
    #[comptime] query: QueryBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    let start = if comptime!(query.strided) {
        token * scalars.q_token_stride as usize + head * scalars.q_head_stride as usize
    } else {
        (token * scalars.heads as usize + head) * ROW_WORDS
    };
    let mut row = Row::load(&tensors.q, start, blueprint.lanes, blueprint.codec);
    if comptime!(query.norm) {
        row.rms_norm(scalars.eps);
        if comptime!(query.rounding == Rounding::To16Bit) {
            row.round();
        }
    }
    if comptime!(query.rope) {
        let position = words::index(&tensors.positions, token, blueprint.position_type);
        if position < scalars.table_rows {
            row.rotate(&tensors.cos_sin_cache, position as usize, blueprint.rotary);
        }
    }
    let at = (token * comptime!(query.padded_heads as usize) + head) * ROW_WORDS;
    store_query(&row, &mut tensors.q_out, at, scalars.q_scale_inverse, query);
}

/// The key of a token, if it has a slot: norm, RoPE, quantization, insertion.
#[cube]
fn key_row<N: Size>(
    tensors: &mut Arguments<N>,
    scalars: &Scalars,
    token: usize,
    #[comptime] key: KeyBlueprint,
    #[comptime] blueprint: Blueprint,
) {
    if token < scalars.slot_count as usize {
        let slot = words::index(&tensors.slot_mapping, token, key.slot_type);
        let position = words::index(&tensors.positions, token, blueprint.position_type);
        if slot < scalars.cache_capacity && position < scalars.table_rows {
            let start = if comptime!(key.strided) {
                token * scalars.kv_row_stride as usize
            } else {
                token * ROW_WORDS
            };
            let mut row = Row::load(&tensors.kv, start, blueprint.lanes, blueprint.codec);
            match comptime!(key.norm) {
                Some(rounding) => {
                    row.rms_norm(scalars.eps);
                    row.scale(&tensors.kv_norm_weight);
                    if comptime!(rounding == Rounding::To16Bit) {
                        row.round();
                    }
                }
                None => {}
            }
            row.rotate(&tensors.cos_sin_cache, position as usize, blueprint.rotary);
            let slot = cache::locate(
                slot / scalars.block_size,
                slot % scalars.block_size,
                scalars.block_size,
                scalars.block_stride,
                key.format,
            );
            row.insert(
                &mut tensors.kv_cache,
                &slot,
                scalars.kv_scale_inverse,
                key.quant_from,
                key.format,
            );
        }
    }
}

/// Stores a row of the output in 16 bits, or in FP8.
#[cube]
fn store_query<N: Size>(
    row: &Row,
    q_out: &mut [Vector<u32, N>],
    start: usize,
    scale_inverse: f32,
    #[comptime] query: QueryBlueprint,
) {
    let lanes = comptime!(row.lanes);
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        let mut out = Vector::<u32, N>::empty();
        match comptime!(query.fp8) {
            Some(fp8) => {
                let word = quant::encode_each(&row.values, run * LANE_RUN, scale_inverse, fp8);
                #[unroll]
                for i in 0..2usize {
                    out.insert(i, word.extract(i));
                }
            }
            None => {
                let word = words::encode(&row.values, run * LANE_RUN, row.codec);
                #[unroll]
                for i in 0..4usize {
                    out.insert(i, word.extract(i));
                }
            }
        }
        q_out[start + lanes::word(run, lanes)] = out;
    }
}

/// Zeroes a row of the output: a padding head.
#[cube]
fn zero_row<N: Size>(q_out: &mut [Vector<u32, N>], row: usize, #[comptime] blueprint: Blueprint) {
    let lanes = comptime!(blueprint.lanes);
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        q_out[row * ROW_WORDS + lanes::word(run, lanes)] = Vector::new(0u32);
    }
}
