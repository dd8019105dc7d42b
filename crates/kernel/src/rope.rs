//! Rotary position embedding of the last 64 values of a row: the second runs of lanes 24 to 31.

use crate::{
    blueprint::{Blueprint, Conversion, Lanes},
    lanes,
    words::{Word, decode_pair},
};
use cubecl::prelude::*;
use mla_prologue_operator::{Half, RotaryLayout, RotaryType};

/// The first lane whose second run is rotated.
const FIRST_LANE: usize = 24;

/// Rotates a row by row `position` of the table.
#[cube]
pub fn rotate(
    x: &mut Array<f32>,
    table: &[Word],
    position: usize,
    #[comptime] blueprint: Blueprint,
) {
    let count = comptime!(blueprint.lanes.per_unit());
    let start = comptime!(match blueprint.lanes {
        Lanes::Plane => 0,
        Lanes::Unit => FIRST_LANE,
    });
    #[unroll(count == 1)]
    for lane in start..count {
        let group = lanes::first(comptime!(blueprint.lanes)) + lane;
        if group >= FIRST_LANE {
            rotate_run(x, lane * 16 + 8, table, position, group - FIRST_LANE, blueprint);
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
    #[comptime] blueprint: Blueprint,
) {
    let mut angles = Array::<f32>::new(8usize);
    load_angles(&mut angles, table, position, group, blueprint);
    #[unroll]
    for pair in 0..4usize {
        let (cosine, sine) = match comptime!(blueprint.table_layout) {
            RotaryLayout::Halves => (angles[pair], angles[4 + pair]),
            RotaryLayout::Interleaved => (angles[2 * pair], angles[2 * pair + 1]),
        };
        let even = x[at + 2 * pair];
        let odd = x[at + 2 * pair + 1];
        x[at + 2 * pair] = fma(even, cosine, -(odd * sine));
        x[at + 2 * pair + 1] = fma(even, sine, odd * cosine);
    }
}

/// Loads the 8 values of a group of four pairs, in the table's own order.
#[cube]
fn load_angles(
    angles: &mut Array<f32>,
    table: &[Word],
    position: usize,
    group: usize,
    #[comptime] blueprint: Blueprint,
) {
    // The first four values and the last four are neighbours only where the table is interleaved.
    let interleaved = comptime!(blueprint.table_layout == RotaryLayout::Interleaved);
    let (first, second) = if interleaved { (2 * group, 2 * group + 1) } else { (group, 8 + group) };
    match comptime!(blueprint.table_type) {
        RotaryType::F32 => {
            four_f32(angles, 0usize, table[position * 16 + first]);
            four_f32(angles, 4usize, table[position * 16 + second]);
        }
        RotaryType::Bf16 | RotaryType::F16 => {
            let half = comptime!(match blueprint.table_type {
                RotaryType::F16 => Half::F16,
                _ => Half::Bf16,
            });
            let conversion = comptime!(blueprint.conversion);
            four_half(angles, 0usize, table, position * 16 + first, half, conversion);
            four_half(angles, 4usize, table, position * 16 + second, half, conversion);
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
fn four_half(
    angles: &mut Array<f32>,
    #[comptime] at: usize,
    table: &[Word],
    four: usize,
    #[comptime] half: Half,
    #[comptime] conversion: Conversion,
) {
    let word = table[four / 2];
    let upper = four % 2 == 1;
    #[unroll]
    for i in 0..2usize {
        let pair = select(upper, word.extract(2 + i), word.extract(i));
        let (low, high) = decode_pair(pair, half, conversion);
        angles[at + 2 * i] = low;
        angles[at + 2 * i + 1] = high;
    }
}
