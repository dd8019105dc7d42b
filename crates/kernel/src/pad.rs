//! Padding of the query heads to the count that an attention kernel accepts.

use crate::{blueprint::Lanes, lanes};
use cubecl::prelude::*;

/// Zeroes a row of the output: two words for each lane.
#[cube]
pub fn zero_row<N: Size>(q_out: &mut [Vector<u32, N>], row: usize, #[comptime] lanes: Lanes) {
    let runs = comptime!(lanes.runs());
    #[unroll(runs == 2)]
    for run in 0..runs {
        q_out[row * 64 + lanes::word(run, lanes)] = Vector::new(0u32);
    }
}
