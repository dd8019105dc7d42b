//! Loading of queries and keys into a team's memory, as f32.

use super::{
    Blueprint,
    kernel::{Arguments, Scalars, Tile},
    scratch::Scratch,
};
use crate::row::{
    CacheWord, ROW_WORDS, Word,
    cache::{self, Fetched, Reading},
    words::{self, NO_INDEX},
};
use cubecl::prelude::*;
use mla_prologue_operator::LANE_RUN;

/// Loads a slice of the queries of a tile of heads: for each dimension, the heads. Heads that are not there are zero.
#[cube]
pub fn queries<N: Size>(
    q: &[Word],
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    tile: &Tile,
    slice: usize,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(scratch.team);
    let vectors = comptime!(team.head_vectors());
    let words_of_slice = comptime!(team.slice / LANE_RUN);
    let items = comptime!(vectors * words_of_slice);
    let workers = comptime!(team.workers());
    let me = scratch.me();
    for step in 0..comptime!(items.div_ceil(workers)) {
        let item = step * workers + me;
        if item < items {
            let (vector, word) = (item % vectors, item / vectors);
            let mut columns = Array::<Vector<f32, N>>::new(LANE_RUN);
            let mut x = Array::<f32>::new(LANE_RUN);
            #[unroll]
            for lane in 0..comptime!(team.width) {
                let head = tile.first_head + (vector * comptime!(team.width) + lane) as u32;
                if head < scalars.heads {
                    let start = tile.token * scalars.q_token_stride as usize
                        + head as usize * ROW_WORDS
                        + slice * words_of_slice;
                    words::decode(q[start + word], &mut x, 0usize, blueprint.codec);
                } else {
                    #[unroll]
                    for i in 0..LANE_RUN {
                        x[i] = 0.0;
                    }
                }
                #[unroll]
                for i in 0..LANE_RUN {
                    let mut column = columns[i];
                    column.insert(lane, x[i]);
                    columns[i] = column;
                }
            }
            #[unroll]
            for i in 0..LANE_RUN {
                scratch.queries[(word * LANE_RUN + i) * vectors + vector] = columns[i];
            }
        }
    }
}

/// Loads a slice of the keys of a chunk. Those that do not count are -0, which a product with a weight of zero adds
/// without a trace.
#[cube]
pub fn keys<N: Size>(
    tensors: &Arguments,
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    extra: bool,
    slice: usize,
    #[comptime] blueprint: Blueprint,
) {
    match comptime!(blueprint.extra) {
        Some(_) => {
            if extra {
                let (size, stride) = (scalars.extra_block_size, scalars.extra_block_stride);
                let cache = &tensors.extra_kv_cache;
                keys_of(cache, size, stride, scalars.kv_scale, scratch, slice, blueprint);
            } else {
                let (size, stride) = (scalars.block_size, scalars.block_stride);
                let cache = &tensors.kv_cache;
                keys_of(cache, size, stride, scalars.kv_scale, scratch, slice, blueprint);
            }
        }
        None => {
            let (size, stride) = (scalars.block_size, scalars.block_stride);
            let cache = &tensors.kv_cache;
            keys_of(cache, size, stride, scalars.kv_scale, scratch, slice, blueprint);
        }
    }
}

#[cube]
fn keys_of<N: Size>(
    cache: &[CacheWord],
    block_size: u32,
    block_stride: u32,
    scale: f32,
    scratch: &mut Scratch<N>,
    slice: usize,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(scratch.team);
    let words_of_slice = comptime!(team.slice / LANE_RUN);
    let workers = comptime!(team.workers());
    let (batch, batches) = comptime!((team.key_batch(), team.key_items() / team.key_batch()));
    let (codec, format) = comptime!((blueprint.codec, blueprint.format));
    let reading = Reading { scale, codec, format };
    let me = scratch.me();
    for step in 0..batches {
        let first = step * batch * workers + me;
        let mut fetched = Sequence::<Fetched>::new();
        #[unroll]
        for i in 0..batch {
            let item = first + i * workers;
            let (key, word) = (item / words_of_slice, item % words_of_slice);
            // One that does not count is read from the first block: a cache of which entries are wanted has one.
            let block = scratch.slots[2 * key];
            let block = select(block == NO_INDEX, 0u32, block);
            let token = scratch.slots[2 * key + 1];
            let slot = cache::locate(block, token, block_size, block_stride, format);
            fetched.push(cache::fetch_word(cache, &slot, slice * words_of_slice + word, format));
        }
        #[unroll]
        for i in 0..batch {
            let item = first + i * workers;
            let (key, word) = (item / words_of_slice, item % words_of_slice);
            let counts = scratch.slots[2 * key] != NO_INDEX;
            let mut x = Array::<f32>::new(LANE_RUN);
            let at = slice * words_of_slice + word;
            cache::decode_word(&fetched[i], at, &reading, &mut x, 0usize);
            store_key(scratch, &x, counts, key * team.key_stride() + word * team.word_vectors());
        }
    }
}

/// Stores 8 values of a key: -0 where it does not count.
#[cube]
fn store_key<N: Size>(scratch: &mut Scratch<N>, x: &Array<f32>, counts: bool, at: usize) {
    let team = comptime!(scratch.team);
    let nothing = f32::reinterpret(comptime!((-0f32).to_bits()).runtime());
    #[unroll]
    for part in 0..comptime!(team.word_vectors()) {
        let mut vector = Vector::<f32, N>::empty();
        #[unroll]
        for i in 0..comptime!(team.width) {
            vector.insert(i, select(counts, x[part * team.width + i], nothing));
        }
        scratch.keys[at + part] = vector;
    }
}
