//! RMSNorm of a row of 512.

use crate::blueprint::Conversion;
use crate::{
    blueprint::Lanes,
    lanes,
    words::{self, Word, decode},
};
use cubecl::prelude::*;
use mla_prologue_operator::Half;

/// Multiplies the row by `1 / sqrt(mean of squares + eps)`.
#[cube]
pub fn rms_norm(x: &mut Array<f32>, eps: f32, #[comptime] lanes: Lanes) {
    let count = comptime!(lanes.per_unit());
    let mut sums = Array::<f32>::new(count);
    #[unroll(count == 1)]
    for lane in 0..count {
        let mut sum = 0f32.runtime();
        #[unroll(count == 1)]
        for i in 0..16usize {
            let v = x[lane * 16 + i];
            sum = fma(v, v, sum);
        }
        sums[lane] = sum;
    }
    let sum = lanes::sum(&mut sums, lanes);
    // Compilers make a product of this division, and NVRTC one operation of that and the addition, which rounds
    // once where the mean is subnormal. A sum of squares has no sign to lose.
    let mean = f32::reinterpret(words::magnitude(sum / 512.0));
    let r = 1.0 / f32::sqrt(mean + eps);
    #[unroll(count == 1)]
    for i in 0..comptime!(16 * count) {
        x[i] *= r;
    }
}

/// Multiplies the row by the weight.
#[cube]
pub fn weigh(
    x: &mut Array<f32>,
    weight: &[Word],
    #[comptime] half: Half,
    #[comptime] conversion: Conversion,
    #[comptime] lanes: Lanes,
) {
    let runs = comptime!(lanes.runs());
    let mut w = Array::<f32>::new(8usize);
    #[unroll(runs == 2)]
    for run in 0..runs {
        decode(weight[lanes::word(run, lanes)], &mut w, 0usize, half, conversion);
        #[unroll]
        for i in 0..8usize {
            x[run * 8 + i] *= w[i];
        }
    }
}
