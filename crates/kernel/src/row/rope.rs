//! Rotary position embedding of the last 64 values of a row, the second runs of lanes 24 to 31, in pairs of neighbours.

use super::{Codec, Conversion, LANE_VALUES, Lanes, Row, RowExpand, Word, lanes, words};
use cubecl::prelude::*;
use mla_prologue_operator::{Float16, LANE_RUN, LANES, ROPE_DIM, RotaryType, TableOrder};

/// The first lane whose second run is rotated.
const FIRST_LANE: usize = LANES - ROPE_DIM / LANE_RUN;
/// Fours of values that a row of the table has.
const TABLE_FOURS: usize = ROPE_DIM / 4;

/// The rotary table, as far as the generated code depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rotary {
    /// The type of its values.
    pub dtype: RotaryType,
    /// Where the cosines and sines of a row are.
    pub order: TableOrder,
    /// How 16-bit values are converted.
    pub conversion: Conversion,
}

impl Rotary {
    const fn float16(self) -> Option<Float16> {
        match self.dtype {
            RotaryType::F32 => None,
            RotaryType::Bf16 => Some(Float16::Bf16),
            RotaryType::F16 => Some(Float16::F16),
        }
    }
}

#[cube]
impl Row {
    /// Rotates the row by row `position` of the table.
    pub fn rotate(&mut self, table: &[Word], position: usize, #[comptime] rotary: Rotary) {
        let lanes = comptime!(self.lanes);
        let count = comptime!(lanes.per_unit());
        let start = comptime!(match lanes {
            Lanes::Plane => 0,
            Lanes::Unit => FIRST_LANE,
        });
        #[unroll(count == 1)]
        for lane in start..count {
            let group = lanes::first(lanes) + lane;
            if group >= FIRST_LANE {
                let at = lane * LANE_VALUES + LANE_RUN;
                rotate_run(&mut self.values, at, table, position, group - FIRST_LANE, rotary);
            }
        }
    }
}

/// Rotates the four pairs of a run; `group` tells which of the eight it is.
#[cube]
fn rotate_run(
    x: &mut Array<f32>,
    at: usize,
    table: &[Word],
    position: usize,
    group: usize,
    #[comptime] rotary: Rotary,
) {
    let mut angles = Array::<f32>::new(8usize);
    load_angles(&mut angles, table, position, group, rotary);
    #[unroll]
    for pair in 0..4usize {
        let (cosine, sine) = angle(&angles, pair, rotary);
        let even = x[at + 2 * pair];
        let odd = x[at + 2 * pair + 1];
        x[at + 2 * pair] = fma(even, cosine, -(odd * sine));
        x[at + 2 * pair + 1] = fma(even, sine, odd * cosine);
    }
}

/// Cosine and sine of one of the four pairs.
#[cube]
pub fn angle(
    angles: &Array<f32>,
    #[comptime] pair: usize,
    #[comptime] rotary: Rotary,
) -> (f32, f32) {
    match comptime!(rotary.order) {
        TableOrder::CosThenSin => (angles[pair], angles[4 + pair]),
        TableOrder::CosSinPairs => (angles[2 * pair], angles[2 * pair + 1]),
    }
}

/// Loads the 8 values of a group of four pairs, in the table's own order.
#[cube]
pub fn load_angles(
    angles: &mut Array<f32>,
    table: &[Word],
    position: usize,
    group: usize,
    #[comptime] rotary: Rotary,
) {
    // The first four values and the last four are neighbours only where the table stores pairs.
    let in_pairs = comptime!(rotary.order == TableOrder::CosSinPairs);
    let (first, second) = if in_pairs { (2 * group, 2 * group + 1) } else { (group, 8 + group) };
    let row = position * TABLE_FOURS;
    match comptime!(rotary.float16()) {
        Some(dtype) => {
            let codec = comptime!(Codec { dtype, conversion: rotary.conversion });
            four_float16(angles, 0usize, table, row + first, codec);
            four_float16(angles, 4usize, table, row + second, codec);
        }
        None => {
            four_f32(angles, 0usize, table[row + first]);
            four_f32(angles, 4usize, table[row + second]);
        }
    }
}

#[cube]
fn four_f32(angles: &mut Array<f32>, #[comptime] at: usize, word: Word) {
    #[unroll]
    for i in 0..4usize {
        angles[at + i] = f32::reinterpret(word.extract(i));
    }
}

/// Four 16-bit values are half a word.
#[cube]
fn four_float16(
    angles: &mut Array<f32>,
    #[comptime] at: usize,
    table: &[Word],
    four: usize,
    #[comptime] codec: Codec,
) {
    let word = table[four / 2];
    let upper = four % 2 == 1;
    #[unroll]
    for i in 0..2usize {
        let pair = select(upper, word.extract(2 + i), word.extract(i));
        let (low, high) = words::decode_pair(pair, codec);
        angles[at + 2 * i] = low;
        angles[at + 2 * i + 1] = high;
    }
}
