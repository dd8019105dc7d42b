//! Tensors drawn from a seed, for the cases of every operator.

use fastrand::Rng;
use mla_prologue_operator::{Float16, Index, ROPE_DIM, RotaryTable, RotaryType, TableOrder};
use mla_prologue_reference::numbers::to_float16;
use std::f32::consts::TAU;

/// A number from a bell-shaped distribution around 0, with a deviation of 1.
pub fn bell(rng: &mut Rng) -> f32 {
    (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0
}

/// Indices as little-endian bytes.
pub fn indices(values: Vec<i64>, index: Index) -> Vec<u8> {
    match index {
        Index::I64 => values.into_iter().flat_map(i64::to_le_bytes).collect(),
        Index::I32 => values.into_iter().flat_map(|value| (value as i32).to_le_bytes()).collect(),
    }
}

/// A rotary table of random angles; with `residual`, of angles whose cosine and sine are equal but for the sign.
pub fn table(rng: &mut Rng, table: &RotaryTable, residual: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(table.rows * table.row_bytes());
    for _ in 0..table.rows {
        let mut row = [0f32; ROPE_DIM];
        for pair in 0..ROPE_DIM / 2 {
            let (sine, cosine) = (rng.f32() * TAU).sin_cos();
            let sine = if residual { cosine.copysign(sine) } else { sine };
            let (at_cosine, at_sine) = match table.order {
                TableOrder::CosThenSin => (pair, ROPE_DIM / 2 + pair),
                TableOrder::CosSinPairs => (2 * pair, 2 * pair + 1),
            };
            (row[at_cosine], row[at_sine]) = (cosine, sine);
        }
        for value in row {
            match table.dtype {
                RotaryType::F32 => bytes.extend(value.to_le_bytes()),
                RotaryType::Bf16 => bytes.extend(to_float16(value, Float16::Bf16).to_le_bytes()),
                RotaryType::F16 => bytes.extend(to_float16(value, Float16::F16).to_le_bytes()),
            }
        }
    }
    bytes
}
