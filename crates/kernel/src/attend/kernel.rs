//! Attention over the paged cache.
//!
//! **Work.** A tile of heads of a token, which attend to its entries chunk by chunk of 64. **Teams.** The units of a cube do
//! a tile together, in shared memory, with barriers; or each does one alone ([`Team`]). **Steps** of a chunk: the slots
//! ([`entries`]), the keys decoded once ([`load`]), the scores, the weights, the output ([`steps`]); last the sink, the division,
//! the rotation and the store ([`finish`]).
//! **Layout.** Tensors in words of 16 bytes, the caches and `out` in words of 8.

use super::{Blueprint, entries, finish, load, scratch::Scratch, steps};
use crate::{
    arguments::{arguments, scalars},
    row::{CacheWord, Word},
};
use cubecl::prelude::*;
use mla_prologue_operator::attend::{CHUNK, Tensors};

arguments! {
    /// The tensors, in words. Those that a blueprint does not use are never accessed.
    pub struct Arguments of Tensors {
        q: Word = 16,
        kv_cache: CacheWord = 8,
        slots: u32 = 4,
        lens: u32 = 4,
        block_table: u32 = 4,
        sequence_ids: u32 = 4,
        extra_kv_cache: CacheWord = 8,
        extra_slots: u32 = 4,
        extra_lens: u32 = 4,
        sinks: f32 = 4,
        positions: u32 = 4,
        cos_sin_cache: Word = 16,
        out: CacheWord = 8,
        max: f32 = 4,
        sum: f32 = 4,
    }
}

scalars! {
    /// The numbers of one launch.
    pub struct Scalars {
        /// Tokens.
        tokens: u32,
        /// Heads that attend.
        heads: u32,
        /// Heads of the output.
        out_heads: u32,
        /// Words from a token of `q` to the next.
        q_token_stride: u32,
        /// What scores are multiplied by.
        scale: f32,
        /// The scale of caches of FP8 rows.
        kv_scale: f32,
        /// Entries of the first list.
        count: u32,
        /// Blocks of the first cache.
        num_blocks: u32,
        /// Tokens of one of its blocks.
        block_size: u32,
        /// Words from one to the next.
        block_stride: u32,
        /// Entries of the second list.
        extra_count: u32,
        /// Blocks of the second cache.
        extra_num_blocks: u32,
        /// Tokens of one of its blocks.
        extra_block_size: u32,
        /// Words from one to the next.
        extra_block_stride: u32,
        /// Sequences of the block table.
        sequences: u32,
        /// Blocks of each.
        table_blocks: u32,
        /// Tokens of the call that each has.
        sequence_tokens: u32,
        /// Rows of the rotary table.
        table_rows: u32,
    }
}

/// A tile of heads of a token.
#[derive(CubeType, Clone, Copy)]
pub struct Tile {
    /// The token.
    pub token: usize,
    /// The first of the heads.
    pub first_head: u32,
}

/// Attends. Whatever slots, lengths, positions and block tables hold, the kernel stays within its buffers: an entry that is
/// not in its cache is skipped, and a token whose position is no row of the rotary table is not rotated.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn attend<N: Size>(
    tensors: &mut Arguments,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let tiles = scalars.heads.div_ceil(comptime!(team.heads as u32)) as usize;
    let work = if comptime!(team.shared) {
        CUBE_POS
    } else {
        CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize
    };
    if work < scalars.tokens as usize * tiles {
        let mut scratch = Scratch::<N>::new(team);
        let first_head = (work % tiles) as u32 * comptime!(team.heads as u32);
        let tile = Tile { token: work / tiles, first_head };
        attend_tile::<N>(tensors, scalars, &mut scratch, &tile, blueprint);
    }
}

/// One tile of heads of a token.
#[cube]
fn attend_tile<N: Size>(
    tensors: &mut Arguments,
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    tile: &Tile,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let chunk_size = comptime!(CHUNK as u32);
    let first_chunks = scalars.count.div_ceil(chunk_size);
    let chunks = first_chunks + scalars.extra_count.div_ceil(chunk_size);
    let mut output = steps::Output::<N>::new(team);
    if comptime!(team.slices() == 1) {
        load::queries(&tensors.q, scalars, scratch, tile, 0usize, blueprint);
    }
    for chunk in 0..chunks {
        let extra = chunk >= first_chunks;
        entries::find(&*tensors, scalars, scratch, tile.token, chunk, first_chunks, blueprint);
        scratch.sync();
        if entries::any(&*scratch) {
            for slice in 0..comptime!(team.slices()) {
                if comptime!(team.slices() > 1) {
                    load::queries(&tensors.q, scalars, scratch, tile, slice, blueprint);
                }
                load::keys(&*tensors, scalars, scratch, extra, slice, blueprint);
                scratch.sync();
                steps::scores(scratch, slice, scalars.scale);
                scratch.sync();
            }
            steps::weights(scratch, output.empty);
            #[unroll(team.shared)]
            for slice in 0..comptime!(team.slices()) {
                if comptime!(team.slices() > 1) {
                    load::keys(&*tensors, scalars, scratch, extra, slice, blueprint);
                    scratch.sync();
                }
                output.add(&*scratch, slice);
                scratch.sync();
            }
            output.empty = false;
        }
        scratch.sync();
    }
    finish::finish(tensors, scalars, scratch, &output, tile, blueprint);
}
