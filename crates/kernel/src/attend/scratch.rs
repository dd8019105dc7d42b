//! What a team works in: shared memory of a cube, or arrays of a unit's own.

use super::Team;
use cubecl::prelude::*;
use mla_prologue_operator::attend::CHUNK;

/// The memory of a team.
#[derive(CubeType)]
pub struct Scratch<N: Size> {
    /// Keys of a chunk: 64 rows of a slice's dimensions.
    pub keys: Box<[Vector<f32, N>]>,
    /// Queries: for each dimension of a slice, the heads.
    pub queries: Box<[Vector<f32, N>]>,
    /// Scores, then weights: for each key, the heads.
    pub weights: Box<[Vector<f32, N>]>,
    /// What is known of each head; the `row`s are named below.
    pub heads: Box<[Vector<f32, N>]>,
    /// Block and token of each key; [`NO_INDEX`](crate::row::words::NO_INDEX) for the block of one that does not count.
    pub slots: Box<[u32]>,
    /// Who works in it.
    #[cube(comptime)]
    pub team: Team,
}

/// Rows of [`Scratch::heads`]: the largest score so far.
pub const MAX: usize = 0;
/// The sum of the weights so far.
pub const SUM: usize = 1;
/// What the earlier output is multiplied by when a chunk is merged, or the sink.
pub const EARLIER: usize = 2;
/// What the chunk's output is multiplied by; in the end, 1 for a head whose sink takes everything.
pub const CHUNK_FACTOR: usize = 3;
/// The largest score of each part of the chunk: as many rows as there are [parts](Team::max_parts).
pub const CHUNK_MAX: usize = 4;

#[cube]
impl<N: Size> Scratch<N> {
    /// Memory for a team. Its contents are undefined.
    pub fn new(#[comptime] team: Team) -> Scratch<N> {
        let keys = comptime!(CHUNK * team.key_stride());
        let queries = comptime!(team.slice * team.head_vectors());
        let weights = comptime!(CHUNK * team.head_vectors());
        let heads = comptime!((CHUNK_MAX + team.max_parts()) * team.head_vectors());
        let slots = comptime!(2 * CHUNK);
        if comptime!(team.shared) {
            let keys = Shared::<[Vector<f32, N>]>::new_aligned_slice(keys, 16usize);
            let queries = Shared::<[Vector<f32, N>]>::new_aligned_slice(queries, 16usize);
            let weights = Shared::<[Vector<f32, N>]>::new_aligned_slice(weights, 16usize);
            let heads = Shared::<[Vector<f32, N>]>::new_aligned_slice(heads, 16usize);
            let slots = Shared::<[u32]>::new_slice(slots);
            // SAFETY: the memory outlives the kernel's uses of it.
            unsafe {
                Scratch::<N> {
                    keys: keys.as_boxed_unchecked(),
                    queries: queries.as_boxed_unchecked(),
                    weights: weights.as_boxed_unchecked(),
                    heads: heads.as_boxed_unchecked(),
                    slots: slots.as_boxed_unchecked(),
                    team,
                }
            }
        } else {
            let keys = Array::<Vector<f32, N>>::new(keys);
            let queries = Array::<Vector<f32, N>>::new(queries);
            let weights = Array::<Vector<f32, N>>::new(weights);
            let heads = Array::<Vector<f32, N>>::new(heads);
            let slots = Array::<u32>::new(slots);
            // SAFETY: as above.
            unsafe {
                Scratch::<N> {
                    keys: keys.as_boxed_unchecked(),
                    queries: queries.as_boxed_unchecked(),
                    weights: weights.as_boxed_unchecked(),
                    heads: heads.as_boxed_unchecked(),
                    slots: slots.as_boxed_unchecked(),
                    team,
                }
            }
        }
    }

    /// Waits for the others of the team.
    pub fn sync(&self) {
        if comptime!(self.team.shared) {
            sync_cube();
        }
    }

    /// Which of the team this unit is.
    pub fn me(&self) -> usize {
        if comptime!(self.team.shared) { UNIT_POS as usize } else { 0usize.runtime() }
    }
}
