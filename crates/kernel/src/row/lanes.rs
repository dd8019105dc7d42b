//! How the 32 lanes of a row map to hardware: the only place that knows.
//!
//! A unit holds [`Lanes::per_unit`] lanes, beginning with [`first`], and of each lane two runs of 8
//! values: run `2 * lane` is of the first half of the row, the next one of the second. A row is an array
//! of these runs. Either way the same additions happen in the same order.

use cubecl::prelude::*;
use mla_prologue_operator::LANES;

/// How the 32 lanes of a row map to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// A lane is a unit of a plane; lanes exchange values by shuffles within 32 units.
    Plane,
    /// One unit does all the lanes of a row in loops.
    Unit,
}

impl Lanes {
    /// Runs of 8 values that one unit works on: two for each lane.
    pub const fn runs(self) -> usize {
        2 * self.per_unit()
    }

    /// Lanes that one unit works on.
    pub const fn per_unit(self) -> usize {
        match self {
            Self::Plane => 1,
            Self::Unit => LANES,
        }
    }
}

/// The row that this unit works on, of all rows of the launch.
#[cube]
pub fn row(#[comptime] lanes: Lanes) -> usize {
    match lanes {
        Lanes::Plane => CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize,
        Lanes::Unit => CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize,
    }
}

/// The first lane that this unit holds.
#[cube]
pub fn first(#[comptime] lanes: Lanes) -> usize {
    match lanes {
        Lanes::Plane => UNIT_POS_X as usize,
        Lanes::Unit => 0usize.runtime(),
    }
}

/// Which of the row's words of 8 values is a run of this unit.
#[cube]
pub fn word(run: usize, #[comptime] lanes: Lanes) -> usize {
    run % 2 * comptime!(LANES) + first(lanes) + run / 2
}

/// The sum over all 32 lanes, one value each: lanes at distance 16, 8, 4, 2 and 1 add their values to each other.
#[cube]
pub fn sum(values: &mut Array<f32>, #[comptime] lanes: Lanes) -> f32 {
    match lanes {
        Lanes::Plane => {
            let mut sum = values[0];
            #[unroll]
            for step in 0..5u32 {
                sum += plane_shuffle_xor(sum, comptime!(16u32 >> step));
            }
            sum
        }
        Lanes::Unit => {
            // Addition commutes, so of the two equal sums of a pair one is enough.
            #[unroll]
            for step in 0..5u32 {
                let distance = comptime!(16usize >> step);
                for lane in 0..distance {
                    values[lane] += values[lane + distance];
                }
            }
            values[0]
        }
    }
}

/// Replaces the values, one for each run, by their maxima over groups of `group` neighbouring lanes.
#[cube]
pub fn max_in_groups(values: &mut Array<u32>, #[comptime] group: usize, #[comptime] lanes: Lanes) {
    match lanes {
        Lanes::Plane =>
        {
            #[unroll]
            for i in 0..2usize {
                #[unroll]
                for step in 0..comptime!(group.ilog2()) {
                    let other = plane_shuffle_xor(values[i], comptime!(1u32 << step));
                    values[i] = max(values[i], other);
                }
            }
        }
        Lanes::Unit => {
            for first in 0..comptime!(2 * LANES / group) {
                // The first run of each group: those of one half of the row, then of the other.
                let start = first / 2 * (2 * group) + first % 2;
                let mut largest = values[start];
                for lane in 1..group {
                    largest = max(largest, values[start + 2 * lane]);
                }
                for lane in 0..group {
                    values[start + 2 * lane] = largest;
                }
            }
        }
    }
}

/// Joins the bits of all 32 lanes, one value each.
#[cube]
pub fn join(values: &Array<u32>, #[comptime] lanes: Lanes) -> u32 {
    match lanes {
        Lanes::Plane => {
            let mut bits = values[0];
            #[unroll]
            for step in 0..5u32 {
                bits |= plane_shuffle_xor(bits, comptime!(16u32 >> step));
            }
            bits
        }
        Lanes::Unit => {
            let mut bits = values[0];
            for lane in 1..comptime!(LANES) {
                bits |= values[lane];
            }
            bits
        }
    }
}
