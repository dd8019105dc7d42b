//! RMSNorm of a row.

use super::{LANE_VALUES, Row, RowExpand, Word, lanes, words};
use cubecl::prelude::*;
use mla_prologue_operator::{HEAD_DIM, LANE_RUN};

#[cube]
impl Row {
    /// Multiplies the row by `1 / sqrt(mean of squares + eps)`.
    pub fn rms_norm(&mut self, eps: f32) {
        let count = comptime!(self.lanes.per_unit());
        let mut sums = Array::<f32>::new(count);
        #[unroll(count == 1)]
        for lane in 0..count {
            let mut sum = 0f32.runtime();
            #[unroll(count == 1)]
            for i in 0..LANE_VALUES {
                let v = self.values[lane * LANE_VALUES + i];
                sum = fma(v, v, sum);
            }
            sums[lane] = sum;
        }
        let sum = lanes::sum(&mut sums, self.lanes);
        // Compilers turn this division into a product, and NVRTC that and the addition into one operation, which rounds
        // once where the mean is subnormal. A sum of squares has no sign to lose.
        let mean = f32::reinterpret(words::magnitude(sum / comptime!(HEAD_DIM as f32)));
        let r = 1.0 / f32::sqrt(mean + eps);
        #[unroll(count == 1)]
        for i in 0..comptime!(LANE_VALUES * count) {
            self.values[i] *= r;
        }
    }

    /// Multiplies the row by a weight `[512]` of the row's 16-bit type.
    pub fn scale(&mut self, weight: &[Word]) {
        let lanes = comptime!(self.lanes);
        let runs = comptime!(lanes.runs());
        let mut w = Array::<f32>::new(LANE_RUN);
        #[unroll(runs == 2)]
        for run in 0..runs {
            words::decode(weight[lanes::word(run, lanes)], &mut w, 0usize, self.codec);
            #[unroll]
            for i in 0..LANE_RUN {
                self.values[run * LANE_RUN + i] *= w[i];
            }
        }
    }
}
