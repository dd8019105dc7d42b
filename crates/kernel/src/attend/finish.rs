//! The end of a tile: the sink, the division, the rotation that is undone, the store.

use super::{
    Blueprint,
    kernel::{Arguments, Scalars, Tile},
    scratch::{CHUNK_FACTOR, EARLIER, MAX, SUM, Scratch},
    steps::Output,
};
use crate::row::{
    CacheWord, Word,
    exp2::exp,
    rope::{self, Rotary},
    words::{self, INFINITY, magnitude},
};
use cubecl::prelude::*;
use mla_prologue_operator::{HEAD_DIM, NOPE_DIM};

/// Values of a word of the output.
const WORD_VALUES: usize = 4;

/// Finishes a tile: heads that no entry counts for are +0.
#[cube]
pub fn finish<N: Size>(
    tensors: &mut Arguments,
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    output: &Output<N>,
    tile: &Tile,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(scratch.team);
    let workers = comptime!(team.workers());
    let me = scratch.me();
    let vectors = comptime!(team.head_vectors());
    for step in 0..comptime!(vectors.div_ceil(workers)) {
        let vector = step * workers + me;
        if vector < vectors {
            finish_heads(tensors, scalars, scratch, tile, vector, output.empty, blueprint);
        }
    }
    scratch.sync();
    let items = comptime!(team.output_items());
    let steps = comptime!(items.div_ceil(workers));
    #[unroll(team.shared)]
    for slice in 0..comptime!(team.slices()) {
        #[unroll(team.shared)]
        for step in 0..steps {
            let item = step * workers + me;
            if item < items {
                let piece = Piece {
                    at: (slice * steps + step) * team.heads_per_item,
                    row: item / team.slice_vectors() * team.heads_per_item,
                    dimensions: slice * team.slice_vectors() + item % team.slice_vectors(),
                };
                store_piece(tensors, scalars, &*scratch, output, tile, &piece, blueprint);
            }
        }
    }
    // Padding heads, by the team of the first tile.
    if tile.first_head == 0 {
        let row_words = comptime!(HEAD_DIM / WORD_VALUES);
        let words = (scalars.out_heads - scalars.heads) as usize * row_words;
        let start = (tile.token * scalars.out_heads as usize + scalars.heads as usize) * row_words;
        for step in 0..words.div_ceil(workers) {
            let word = step * workers + me;
            if word < words {
                tensors.out[start + word] = Vector::new(0u32);
            }
        }
    }
}

/// The `max` and `sum` of a vector of heads, and their sinks, which are left in their factors.
#[cube]
fn finish_heads<N: Size>(
    tensors: &mut Arguments,
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    tile: &Tile,
    vector: usize,
    empty: bool,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(scratch.team);
    let vectors = comptime!(team.head_vectors());
    let mut most = Vector::new(f32::NEG_INFINITY);
    let mut sum = Vector::new(0.0f32);
    if !empty {
        most = scratch.heads[MAX * vectors + vector];
        sum = scratch.heads[SUM * vectors + vector];
    }
    let mut factor = Vector::new(1.0f32);
    let mut takes_all = Vector::new(0.0f32);
    let mut with_sink = sum;
    #[unroll]
    for lane in 0..comptime!(team.width) {
        let head = tile.first_head + (vector * team.width + lane) as u32;
        if head < scalars.heads {
            if comptime!(blueprint.stats) {
                let at = tile.token * scalars.heads as usize + head as usize;
                tensors.max[at] = most.extract(lane);
                tensors.sum[at] = sum.extract(lane);
            }
            if comptime!(blueprint.sinks) {
                let sink = tensors.sinks[head as usize];
                let all = max(most.extract(lane), sink);
                let earlier = exp(most.extract(lane) - all);
                factor.insert(lane, earlier);
                with_sink.insert(lane, fma(sum.extract(lane), earlier, exp(sink - all)));
                // A sink of +inf takes everything, but nothing of a head that is NaN.
                let nan = magnitude(sum.extract(lane)) > INFINITY;
                let all = u32::reinterpret(sink) == INFINITY && !nan;
                takes_all.insert(lane, select(all, 1.0f32, 0.0f32));
            }
        }
    }
    if comptime!(blueprint.sinks) {
        scratch.heads[EARLIER * vectors + vector] = factor;
        scratch.heads[CHUNK_FACTOR * vectors + vector] = takes_all;
        scratch.heads[SUM * vectors + vector] = with_sink;
    }
}

/// A piece of the output: `width` dimensions of a few heads.
#[derive(CubeType, Clone, Copy)]
struct Piece {
    /// Where it begins in the unit's values.
    at: usize,
    /// The first of the heads, in the tile.
    row: usize,
    /// Which vector of dimensions.
    dimensions: usize,
}

/// Stores a piece.
#[cube]
fn store_piece<N: Size>(
    tensors: &mut Arguments,
    scalars: &Scalars,
    scratch: &Scratch<N>,
    output: &Output<N>,
    tile: &Tile,
    piece: &Piece,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(scratch.team);
    let vectors = comptime!(team.head_vectors());
    #[unroll]
    for i in 0..comptime!(team.heads_per_item) {
        let head = tile.first_head + (piece.row + i) as u32;
        if head < scalars.heads {
            let vector = piece.row / team.width + comptime!(i / team.width);
            let lane = comptime!(i % team.width);
            let mut x = Array::<f32>::new(comptime!(team.width));
            #[unroll]
            for k in 0..comptime!(team.width) {
                x[k] = 0.0;
            }
            if !output.empty {
                let sum = scratch.heads[SUM * vectors + vector].extract(lane);
                let mut zero = false.runtime();
                let mut factor = 1.0f32.runtime();
                if comptime!(blueprint.sinks) {
                    factor = scratch.heads[EARLIER * vectors + vector].extract(lane);
                    zero = scratch.heads[CHUNK_FACTOR * vectors + vector].extract(lane) == 1.0;
                }
                if !zero {
                    #[unroll]
                    for k in 0..comptime!(team.width) {
                        x[k] = output.values[piece.at + i].extract(k) * factor / sum;
                    }
                    match comptime!(blueprint.rotary) {
                        Some(rotary) => {
                            let position = words::index(
                                &tensors.positions,
                                tile.token,
                                blueprint.position_type,
                            );
                            let dimension = piece.dimensions * team.width;
                            if dimension >= NOPE_DIM && position < scalars.table_rows {
                                let table = &tensors.cos_sin_cache;
                                let pair = (dimension - NOPE_DIM) / 2;
                                unrotate(
                                    &mut x,
                                    table,
                                    position as usize,
                                    pair,
                                    team.width,
                                    rotary,
                                );
                            }
                        }
                        None => {}
                    }
                }
            }
            let start = (tile.token * scalars.out_heads as usize + head as usize)
                * comptime!(HEAD_DIM / WORD_VALUES)
                + piece.dimensions * comptime!(team.width / WORD_VALUES);
            #[unroll]
            for word in 0..comptime!(team.width / WORD_VALUES) {
                let mut packed = CacheWord::empty();
                #[unroll]
                for half in 0..2usize {
                    let from = comptime!(word * WORD_VALUES + 2 * half);
                    let pair = words::encode_pair(x[from], x[from + 1], blueprint.codec);
                    packed.insert(half, pair);
                }
                tensors.out[start + word] = packed;
            }
        }
    }
}

/// Undoes the rotation of the pairs from `pair` on.
#[cube]
fn unrotate(
    x: &mut Array<f32>,
    table: &[Word],
    position: usize,
    pair: usize,
    #[comptime] width: usize,
    #[comptime] rotary: Rotary,
) {
    let mut angles = Array::<f32>::new(8usize);
    rope::load_angles(&mut angles, table, position, pair / 4, rotary);
    let upper = pair % 4 == 2;
    #[unroll]
    for k in 0..comptime!(width / 2) {
        let (mut cosine, mut sine) = rope::angle(&angles, k, rotary);
        if comptime!(width == 4) {
            // Two pairs are half of what is loaded.
            let (upper_cosine, upper_sine) = rope::angle(&angles, comptime!(k + 2), rotary);
            cosine = select(upper, upper_cosine, cosine);
            sine = select(upper, upper_sine, sine);
        }
        let back = -sine;
        let (even, odd) = (x[2 * k], x[2 * k + 1]);
        x[2 * k] = fma(even, cosine, -(odd * back));
        x[2 * k + 1] = fma(even, back, odd * cosine);
    }
}
