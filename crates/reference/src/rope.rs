//! Rotary position embedding of the last 64 values of each row, in pairs of neighbours
//! (interleaved pairing, as in GPT-J).

use crate::numbers::from_table;
use mla_prologue_operator::{HEAD_DIM, NOPE_DIM, ROPE_DIM, TableOrder, prologue::RotaryTable};
use rayon::prelude::*;

/// Pairs of a row that are rotated.
pub const PAIRS: usize = ROPE_DIM / 2;

/// The cosine and sine of each pair at one position.
pub type Angles = [(f32, f32); PAIRS];

/// The angles that leave a row as it is.
pub const NO_ROTATION: Angles = [(1.0, 0.0); PAIRS];

/// The angles of each position: its row of the rotary table.
pub fn angles(
    table: &RotaryTable,
    cos_sin_cache: &[u8],
    positions: impl Iterator<Item = i64>,
) -> Vec<Angles> {
    let value = |index| from_table(cos_sin_cache, table.dtype, index);
    let angles = |position: i64| {
        let row = position as usize * ROPE_DIM;
        std::array::from_fn(|i| match table.order {
            TableOrder::CosThenSin => (value(row + i), value(row + PAIRS + i)),
            TableOrder::CosSinPairs => (value(row + 2 * i), value(row + 2 * i + 1)),
        })
    };
    positions.map(angles).collect()
}

/// Rotates each row by its angles.
pub fn rotate(x: &mut [f32], angles: impl Fn(usize) -> Angles + Sync) {
    x.par_chunks_exact_mut(HEAD_DIM).enumerate().for_each(|(row, x)| {
        for (pair, (c, s)) in x[NOPE_DIM..].chunks_exact_mut(2).zip(angles(row)) {
            let [even, odd] = [pair[0], pair[1]];
            pair[0] = even.mul_add(c, -(odd * s));
            pair[1] = even.mul_add(s, odd * c);
        }
    });
}
