//! Tensors drawn from a seed.

use super::Case;
use crate::Call;
use fastrand::Rng;
use mla_prologue_operator::{
    HEAD_DIM, Half, Index, Invalid, Key, Problem, ROPE_DIM, RotaryLayout, RotaryType,
};
use mla_prologue_reference::numbers::to_half;
use std::{f32::consts::TAU, fmt};

/// What kind of numbers a case holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Data {
    /// Bell-shaped, each row with a scale of its own.
    #[default]
    Ordinary,
    /// What is hard to round: ties of FP8, maxima next to 448 times a power of two, blocks of zeros,
    /// subnormals, the largest finite values.
    Edges,
    /// Ordinary, with NaNs and infinities strewn in.
    NonFinite,
    /// RoPE pairs of equal values with cosine = +-sine: what remains is the rounding error of one
    /// product, which depends on the last bit of everything before it.
    Residual,
}

impl Data {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Ordinary, Self::Edges, Self::NonFinite, Self::Residual];
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ordinary => "ordinary",
            Self::Edges => "edges",
            Self::NonFinite => "non-finite",
            Self::Residual => "residual",
        })
    }
}

/// Where the tokens of a case go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Slots {
    /// All over the cache.
    #[default]
    Shuffled,
    /// A third of them nowhere: -1, -2 or the smallest integer.
    SomeNegative,
    /// None of them anywhere.
    AllNegative,
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shuffled => "shuffled",
            Self::SomeNegative => "some negative",
            Self::AllNegative => "all negative",
        })
    }
}

/// Draws the tensors of a case.
pub fn draw(case: &Case, problem: Problem) -> Result<Call, Invalid> {
    let rng = &mut Rng::with_seed(case.seed);
    let sizes = *problem.sizes();
    let rows = |rng: &mut Rng, bytes: usize| -> Vec<u8> {
        let mut values = Vec::with_capacity(bytes / 2);
        while values.len() < bytes / 2 {
            values.extend(row(rng, case.data, problem.half));
        }
        values.iter().take(bytes / 2).flat_map(|bits| bits.to_le_bytes()).collect()
    };
    let weight = |rng: &mut Rng| -> Vec<u8> {
        let values =
            (0..sizes.kv_norm_weight / 2).map(|_| to_half(1.0 + 0.5 * bell(rng), problem.half));
        values.flat_map(u16::to_le_bytes).collect()
    };
    let positions = (0..problem.tokens).map(|_| rng.usize(..problem.table.rows) as i64).collect();
    let slots = problem.key.map(|key| slots(rng, &key, case.slots)).unwrap_or_default();
    let mut kv_cache = vec![0; sizes.kv_cache];
    rng.fill(&mut kv_cache);
    Ok(Call {
        q: rows(rng, sizes.q),
        kv: rows(rng, sizes.kv),
        kv_norm_weight: weight(rng),
        positions: indices(positions, problem.positions),
        slot_mapping: indices(slots, problem.key.map_or(Index::I64, |key| key.slot_type)),
        cos_sin_cache: table(rng, &problem, case.data),
        kv_cache,
        problem,
    })
}

/// A number from a bell-shaped distribution around 0, with a deviation of 1.
fn bell(rng: &mut Rng) -> f32 {
    (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0
}

/// One row of 512.
fn row(rng: &mut Rng, data: Data, half: Half) -> Vec<u16> {
    let scale = 2f32.powi(rng.i32(-6..=6));
    let ordinary = |rng: &mut Rng| to_half(scale * bell(rng), half);
    match data {
        Data::Ordinary => (0..HEAD_DIM).map(|_| ordinary(rng)).collect(),
        // So small that the mean of the squares is subnormal.
        Data::Edges if rng.u8(..6) == 0 => {
            let tiny = 2f32.powi(rng.i32(-75..=-60));
            (0..HEAD_DIM).map(|_| to_half(tiny * bell(rng), half)).collect()
        }
        Data::Edges => (0..HEAD_DIM / 32).flat_map(|_| edge_block(rng, half)).collect(),
        Data::NonFinite => {
            let infinity = to_half(f32::INFINITY, half);
            let mut row: Vec<u16> = (0..HEAD_DIM).map(|_| ordinary(rng)).collect();
            for _ in 0..rng.usize(..3) {
                let strange = [infinity, infinity | 0x8000, infinity + 1, 0x7FFF, 0xFFFF];
                row[rng.usize(..HEAD_DIM)] = strange[rng.usize(..strange.len())];
            }
            row
        }
        Data::Residual => {
            let mut row: Vec<u16> = (0..HEAD_DIM).map(|_| ordinary(rng)).collect();
            for pair in row[HEAD_DIM - ROPE_DIM..].chunks_exact_mut(2) {
                pair[1] = pair[0];
            }
            row
        }
    }
}

/// 32 values of one kind that is hard to round.
fn edge_block(rng: &mut Rng, half: Half) -> Vec<u16> {
    let kind = rng.u8(..6);
    let power = 2f32.powi(rng.i32(-12..=6));
    let next_to_limit = to_half(448.0 * power, half).wrapping_add_signed(rng.i16(-1..=1));
    let value = |rng: &mut Rng| -> u16 {
        let sign = if rng.bool() { 0x8000 } else { 0 };
        let step = f32::from(rng.u8(..128)) + if rng.bool() { 0.5 } else { 0.25 };
        sign | match kind {
            0 => 0,
            1 => rng.u16(..8),                                     // subnormal
            2 => to_half(f32::INFINITY, half) - 1 - rng.u16(..4),  // next to the largest
            3 => to_half(step * power / 16.0, half),               // between steps of FP8
            4 => to_half(2f32.powi(rng.i32(-20..=2)) * 1.5, half), // FP8 subnormals and ties
            _ => to_half(power * rng.f32(), half),
        }
    };
    let mut block: Vec<u16> = (0..32).map(|_| value(rng)).collect();
    if kind > 2 {
        block[rng.usize(..32)] = next_to_limit;
    }
    block
}

/// Distinct slots, some of them replaced by what means nowhere.
fn slots(rng: &mut Rng, key: &Key, pattern: Slots) -> Vec<i64> {
    let lowest = match key.slot_type {
        Index::I64 => i64::MIN,
        Index::I32 => i64::from(i32::MIN),
    };
    let mut all: Vec<i64> = (0..key.cache.slots() as i64).collect();
    rng.shuffle(&mut all);
    let pick = |(token, slot): (usize, i64)| {
        let nowhere = [-1, -2, lowest][token / 3 % 3];
        match pattern {
            Slots::Shuffled => slot,
            Slots::SomeNegative if token % 3 != 1 => slot,
            Slots::SomeNegative | Slots::AllNegative => nowhere,
        }
    };
    all.into_iter().chain(std::iter::repeat(-1)).take(key.slots).enumerate().map(pick).collect()
}

fn indices(values: Vec<i64>, index: Index) -> Vec<u8> {
    match index {
        Index::I64 => values.into_iter().flat_map(i64::to_le_bytes).collect(),
        Index::I32 => values.into_iter().flat_map(|value| (value as i32).to_le_bytes()).collect(),
    }
}

/// A rotary table of random angles.
fn table(rng: &mut Rng, problem: &Problem, data: Data) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(problem.sizes().cos_sin_cache);
    for _ in 0..problem.table.rows {
        let mut row = [0f32; ROPE_DIM];
        for pair in 0..ROPE_DIM / 2 {
            let (sine, cosine) = (rng.f32() * TAU).sin_cos();
            let sine = if data == Data::Residual { cosine.copysign(sine) } else { sine };
            let (at_cosine, at_sine) = match problem.table.layout {
                RotaryLayout::Halves => (pair, ROPE_DIM / 2 + pair),
                RotaryLayout::Interleaved => (2 * pair, 2 * pair + 1),
            };
            (row[at_cosine], row[at_sine]) = (cosine, sine);
        }
        for value in row {
            match problem.table.number {
                RotaryType::F32 => bytes.extend(value.to_le_bytes()),
                RotaryType::Bf16 => bytes.extend(to_half(value, Half::Bf16).to_le_bytes()),
                RotaryType::F16 => bytes.extend(to_half(value, Half::F16).to_le_bytes()),
            }
        }
    }
    bytes
}
