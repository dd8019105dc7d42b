//! The steps of a chunk: scores, weights, and their product with the values.

use super::{
    Team,
    scratch::{CHUNK_FACTOR, CHUNK_MAX, EARLIER, MAX, SUM, Scratch},
};
use crate::row::{exp2::exp_each, words::NO_INDEX};
use cubecl::prelude::*;
use mla_prologue_operator::attend::CHUNK;

/// Adds a slice's products to the scores, each in the order of the dimensions; after the last slice, scales them.
#[cube]
pub fn scores<N: Size>(scratch: &mut Scratch<N>, slice: usize, scale: f32) {
    let team = comptime!(scratch.team);
    let (items, workers) = comptime!((team.score_items(), team.workers()));
    let me = scratch.me();
    #[unroll(team.shared)]
    for step in 0..comptime!(items.div_ceil(workers)) {
        let item = step * workers + me;
        if item < items {
            score_item(scratch, item, slice, scale);
        }
    }
}

/// The scores of a few keys and vectors of heads.
#[cube]
fn score_item<N: Size>(scratch: &mut Scratch<N>, item: usize, slice: usize, scale: f32) {
    let team = comptime!(scratch.team);
    let (keys, vectors) = comptime!((team.keys_per_item, team.vectors_per_item));
    let groups = comptime!(CHUNK / keys);
    // Neighbouring units have neighbouring keys and the same heads.
    let first_key = item % groups * keys;
    let first_vector = item / groups * vectors;
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(keys * vectors));
    #[unroll]
    for k in 0..keys {
        #[unroll]
        for v in 0..vectors {
            let at = (first_key + k) * team.head_vectors() + first_vector + v;
            sums[k * vectors + v] =
                if slice == 0 { Vector::new(0.0f32) } else { scratch.weights[at] };
        }
    }
    for i in 0..comptime!(team.slice_vectors()) {
        #[unroll]
        for lane in 0..comptime!(team.width) {
            #[unroll]
            for v in 0..vectors {
                let dimension = i * team.width + lane;
                let q = scratch.queries[dimension * team.head_vectors() + first_vector + v];
                #[unroll]
                for k in 0..keys {
                    let key = scratch.keys[(first_key + k) * team.key_stride() + i];
                    let sum = sums[k * vectors + v];
                    sums[k * vectors + v] = fma(q, Vector::new(key.extract(lane)), sum);
                }
            }
        }
    }
    #[unroll]
    for k in 0..keys {
        #[unroll]
        for v in 0..vectors {
            let mut sum = sums[k * vectors + v];
            if slice == comptime!(team.slices() - 1) {
                sum *= Vector::new(scale);
            }
            scratch.weights[(first_key + k) * team.head_vectors() + first_vector + v] = sum;
        }
    }
}

/// Makes the scores weights, relative to the chunk's largest score, and merges what is known of each head.
#[cube]
pub fn weights<N: Size>(scratch: &mut Scratch<N>, first: bool) {
    let team = comptime!(scratch.team);
    let vectors = comptime!(team.head_vectors());
    let workers = comptime!(team.workers());
    let me = scratch.me();
    let parts = comptime!(vectors * team.max_parts());
    for step in 0..comptime!(parts.div_ceil(workers)) {
        let item = step * workers + me;
        if item < parts {
            max_of_part(scratch, item);
        }
    }
    scratch.sync();
    let items = comptime!(CHUNK * vectors);
    for step in 0..comptime!(items.div_ceil(workers)) {
        let item = step * workers + me;
        if item < items {
            let (key, vector) = (item / vectors, item % vectors);
            let mut weight = Vector::new(0.0f32);
            if scratch.slots[2 * key] != NO_INDEX {
                weight = exp_each(scratch.weights[item] - chunk_max(&*scratch, vector));
            }
            scratch.weights[item] = weight;
        }
    }
    scratch.sync();
    for step in 0..comptime!(vectors.div_ceil(workers)) {
        let vector = step * workers + me;
        if vector < vectors {
            merge(scratch, vector, first);
        }
    }
    scratch.sync();
}

/// The largest scores of a vector of heads in a part of the chunk.
#[cube]
fn max_of_part<N: Size>(scratch: &mut Scratch<N>, item: usize) {
    let team = comptime!(scratch.team);
    let (vectors, keys) = comptime!((team.head_vectors(), CHUNK / team.max_parts()));
    let (part, vector) = (item / vectors, item % vectors);
    let mut most = Vector::new(f32::NEG_INFINITY);
    #[unroll(team.shared)]
    for i in 0..keys {
        let key = part * keys + i;
        if scratch.slots[2 * key] != NO_INDEX {
            most = max(most, scratch.weights[key * vectors + vector]);
        }
    }
    scratch.heads[CHUNK_MAX * vectors + item] = most;
}

/// The largest scores of a vector of heads in the chunk.
#[cube]
fn chunk_max<N: Size>(scratch: &Scratch<N>, vector: usize) -> Vector<f32, N> {
    let vectors = comptime!(scratch.team.head_vectors());
    let mut most = scratch.heads[CHUNK_MAX * vectors + vector];
    #[unroll]
    for part in 1..comptime!(scratch.team.max_parts()) {
        most = max(most, scratch.heads[(CHUNK_MAX + part) * vectors + vector]);
    }
    most
}

/// Merges the chunk's largest scores and sums of a vector of heads.
#[cube]
fn merge<N: Size>(scratch: &mut Scratch<N>, vector: usize, first: bool) {
    let vectors = comptime!(scratch.team.head_vectors());
    let mut sum = Vector::new(0.0f32);
    for first in 0..comptime!(CHUNK / 8) {
        #[unroll]
        for i in 0..8usize {
            // A weight of +0 leaves the sum as it is.
            sum += scratch.weights[(first * 8 + i) * vectors + vector];
        }
    }
    let chunk_max = chunk_max(&*scratch, vector);
    if first {
        scratch.heads[MAX * vectors + vector] = chunk_max;
        scratch.heads[SUM * vectors + vector] = sum;
    } else {
        let earlier_max = scratch.heads[MAX * vectors + vector];
        let most = max(earlier_max, chunk_max);
        let earlier = exp_each(earlier_max - most);
        let chunk = exp_each(chunk_max - most);
        let earlier_sum = scratch.heads[SUM * vectors + vector];
        scratch.heads[MAX * vectors + vector] = most;
        scratch.heads[SUM * vectors + vector] = fma(earlier_sum, earlier, sum * chunk);
        scratch.heads[EARLIER * vectors + vector] = earlier;
        scratch.heads[CHUNK_FACTOR * vectors + vector] = chunk;
    }
}

/// The output of a tile of heads, as much of it as this unit holds: of each of its pieces, `width` dimensions of some heads.
#[derive(CubeType)]
pub struct Output<N: Size> {
    /// The values.
    pub values: Array<Vector<f32, N>>,
    /// No entry has counted so far.
    pub empty: bool,
}

#[cube]
impl<N: Size> Output<N> {
    /// Nothing yet.
    pub fn new(#[comptime] team: Team) -> Output<N> {
        Output::<N> {
            values: Array::<Vector<f32, N>>::new(comptime!(team.output_vectors())),
            empty: true.runtime(),
        }
    }

    /// Merges a slice of the chunk's output.
    pub fn add(&mut self, scratch: &Scratch<N>, slice: usize) {
        let team = comptime!(scratch.team);
        let (items, workers) = comptime!((team.output_items(), team.workers()));
        let steps = comptime!(items.div_ceil(workers));
        let me = scratch.me();
        #[unroll(team.shared)]
        for step in 0..steps {
            let item = step * workers + me;
            if item < items {
                self.add_item(scratch, item, (slice * steps + step) * team.heads_per_item);
            }
        }
    }

    /// Merges a piece, which begins at `at`.
    fn add_item(&mut self, scratch: &Scratch<N>, item: usize, at: usize) {
        let team = comptime!(scratch.team);
        let heads = comptime!(team.heads_per_item);
        let vectors = comptime!(heads / team.width);
        let dimensions = item % comptime!(team.slice_vectors());
        let first_vector = item / comptime!(team.slice_vectors()) * vectors;
        let mut sums = Array::<Vector<f32, N>>::new(heads);
        #[unroll]
        for head in 0..heads {
            sums[head] = Vector::new(0.0f32);
        }
        for key in 0..CHUNK {
            let value = scratch.keys[key * team.key_stride() + dimensions];
            #[unroll]
            for v in 0..vectors {
                let weights = scratch.weights[key * team.head_vectors() + first_vector + v];
                #[unroll]
                for lane in 0..comptime!(team.width) {
                    let head = comptime!(v * team.width + lane);
                    sums[head] = fma(Vector::new(weights.extract(lane)), value, sums[head]);
                }
            }
        }
        if self.empty {
            #[unroll]
            for head in 0..heads {
                self.values[at + head] = sums[head];
            }
        } else {
            #[unroll]
            for v in 0..vectors {
                let at_heads = first_vector + v;
                let earlier = scratch.heads[EARLIER * team.head_vectors() + at_heads];
                let chunk = scratch.heads[CHUNK_FACTOR * team.head_vectors() + at_heads];
                #[unroll]
                for lane in 0..comptime!(team.width) {
                    let head = comptime!(v * team.width + lane);
                    let added = sums[head] * Vector::new(chunk.extract(lane));
                    let factor = Vector::new(earlier.extract(lane));
                    self.values[at + head] = fma(self.values[at + head], factor, added);
                }
            }
        }
    }
}
