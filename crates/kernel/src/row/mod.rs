//! A row of 512 values, which one plane or one unit works on: its [lanes], the [words] that memory is read and written
//! in, and a module for each step, named as in `mla-prologue-reference`.

pub mod cache;
pub mod exp2;
pub mod lanes;
pub mod norm;
pub mod quant;
pub mod rope;
pub mod words;

pub use lanes::Lanes;
pub use words::{CacheWord, Codec, Conversion, Word};

use cubecl::prelude::*;
use mla_prologue_operator::{HEAD_DIM, LANE_RUN, LANES};

/// Words of a row in 16 bits.
pub const ROW_WORDS: usize = HEAD_DIM / LANE_RUN;
/// Values of a lane: a run of each half of the row.
pub const LANE_VALUES: usize = HEAD_DIM / LANES;

/// A row of 512 values in f32, or as much of it as this unit holds: [`Lanes::runs`] runs of 8 values, two for each of its
/// lanes.
#[derive(CubeType)]
pub struct Row {
    /// The values, run by run.
    pub values: Array<f32>,
    /// How the lanes map to hardware.
    #[cube(comptime)]
    pub lanes: Lanes,
    /// The 16-bit type that the row comes from and goes to.
    #[cube(comptime)]
    pub codec: Codec,
}

#[cube]
impl Row {
    /// A row whose values are to be set.
    pub fn empty(#[comptime] lanes: Lanes, #[comptime] codec: Codec) -> Row {
        let values = Array::<f32>::new(comptime!(LANE_RUN * lanes.runs()));
        Row { values, lanes, codec }
    }

    /// Sets every value to zero.
    pub fn zero(&mut self) {
        let runs = comptime!(self.lanes.runs());
        #[unroll(runs == 2)]
        for run in 0..runs {
            #[unroll]
            for i in 0..LANE_RUN {
                self.values[run * LANE_RUN + i] = 0.0;
            }
        }
    }

    /// Loads a row of 16-bit values, which begins at word `start`.
    pub fn load(
        from: &[Word],
        start: usize,
        #[comptime] lanes: Lanes,
        #[comptime] codec: Codec,
    ) -> Row {
        let mut row = Row::empty(lanes, codec);
        let runs = comptime!(lanes.runs());
        #[unroll(runs == 2)]
        for run in 0..runs {
            let word = from[start + lanes::word(run, lanes)];
            words::decode(word, &mut row.values, run * LANE_RUN, codec);
        }
        row
    }

    /// Rounds the values to 16 bits and goes on in f32.
    pub fn round(&mut self) {
        let runs = comptime!(self.lanes.runs());
        #[unroll(runs == 2)]
        for run in 0..runs {
            words::round(&mut self.values, run * LANE_RUN, self.codec);
        }
    }

    /// Stores the row in 16 bits from word `start` on.
    pub fn store(&self, to: &mut [Word], start: usize) {
        let lanes = comptime!(self.lanes);
        let runs = comptime!(lanes.runs());
        #[unroll(runs == 2)]
        for run in 0..runs {
            to[start + lanes::word(run, lanes)] =
                words::encode(&self.values, run * LANE_RUN, self.codec);
        }
    }

    /// Stores the row in f32 from word `start` on.
    pub fn store_f32(&self, to: &mut [Word], start: usize) {
        let lanes = comptime!(self.lanes);
        let runs = comptime!(lanes.runs());
        #[unroll(runs == 2)]
        for run in 0..runs {
            let at = start + 2 * lanes::word(run, lanes);
            words::store_f32(&self.values, run * LANE_RUN, to, at);
        }
    }
}
