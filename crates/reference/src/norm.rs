//! RMSNorm of rows of 512.

use mla_prologue_operator::{HEAD_DIM, LANE_RUN, LANES};
use rayon::prelude::*;

/// Multiplies each row by `1 / sqrt(mean of squares + eps)`, then by the weight if there is one.
pub fn rms_norm(x: &mut [f32], eps: f32, weight: Option<&[f32]>) {
    x.par_chunks_exact_mut(HEAD_DIM).for_each(|row| {
        let r = 1.0 / (sum_of_squares(row) / HEAD_DIM as f32 + eps).sqrt();
        for (i, x) in row.iter_mut().enumerate() {
            *x *= r;
            if let Some(weight) = weight {
                *x *= weight[i];
            }
        }
    });
}

/// The sum in the order that is part of the definition: 32 lanes add up the squares of their 8 values
/// of the first half of the row, then of the second; then lanes at distance 16, 8, 4, 2 and 1 add
/// their sums to each other, all at once.
pub fn sum_of_squares(row: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    for (lane, sum) in sums.iter_mut().enumerate() {
        for half in row.chunks_exact(HEAD_DIM / 2) {
            for v in &half[lane * LANE_RUN..(lane + 1) * LANE_RUN] {
                *sum = v.mul_add(*v, *sum);
            }
        }
    }
    for distance in [16, 8, 4, 2, 1] {
        sums = std::array::from_fn(|lane| sums[lane] + sums[lane ^ distance]);
    }
    sums[0]
}
