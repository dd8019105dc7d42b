//! Padding of the query heads to the count that an attention kernel accepts.

use crate::{blueprint::Lanes, lanes};
use cubecl::prelude::*;

/// Zeroes a row of the output: two words for each lane.
#[cube]
pub fn zero_row<N: Size>(q_out: &mut [Vector<u32, N>], row: usize, #[comptime] lanes: Lanes) {
    let count = comptime!(lanes.per_unit());
    #[unroll(count == 1)]
    for lane in 0..count {
        #[unroll]
        for run in 0..2usize {
            q_out[row * 64 + run * 32 + lanes::first(lanes) + lane] = Vector::new(0u32);
        }
    }
}
