//! Tensors drawn from a seed.

use super::Case;
use crate::{Result, draw, file::random_bytes};
use fastrand::Rng;
use mla_prologue_operator::{
    Float16, HEAD_DIM, Index, ROPE_DIM,
    prologue::{Call, Key, Problem, Tensors},
};
use mla_prologue_reference::numbers::to_float16;
use std::fmt;

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
pub enum SlotPattern {
    /// All over the cache.
    #[default]
    Shuffled,
    /// A third of them not inserted: -1, -2 or the smallest integer.
    SomeNegative,
    /// None of them inserted.
    AllNegative,
}

impl fmt::Display for SlotPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shuffled => "shuffled",
            Self::SomeNegative => "some negative",
            Self::AllNegative => "all negative",
        })
    }
}

/// Draws the tensors of a case.
pub fn draw(case: &Case, problem: Problem) -> Result<Call> {
    let rng = &mut Rng::with_seed(case.seed);
    let (spec, sizes) = (problem.spec(), problem.sizes());
    let rows = |rng: &mut Rng, bytes: usize| -> Vec<u8> {
        let mut values = Vec::with_capacity(bytes / 2);
        while values.len() < bytes / 2 {
            values.extend(row(rng, case.data, spec.dtype));
        }
        values.iter().take(bytes / 2).flat_map(|bits| bits.to_le_bytes()).collect()
    };
    let weight = |rng: &mut Rng| -> Vec<u8> {
        let values = (0..sizes.kv_norm_weight / 2)
            .map(|_| to_float16(1.0 + 0.5 * draw::bell(rng), spec.dtype));
        values.flat_map(u16::to_le_bytes).collect()
    };
    let positions = (0..spec.tokens).map(|_| rng.usize(..spec.table.rows) as i64).collect();
    let slots = spec.key.map(|key| slots(rng, &key, case.slots)).unwrap_or_default();
    let mut kv_cache = vec![0; sizes.kv_cache];
    rng.fill(&mut kv_cache);
    let tensors = Tensors {
        q: rows(rng, sizes.q),
        kv: rows(rng, sizes.kv),
        kv_norm_weight: weight(rng),
        positions: draw::indices(positions, spec.position_type),
        slot_mapping: draw::indices(slots, spec.key.map_or(Index::I64, |key| key.slot_type)),
        cos_sin_cache: draw::table(rng, &spec.table, case.data == Data::Residual),
        q_out: random_bytes("q_out", sizes.q_out)?,
        kv_cache,
    };
    Ok(Call::new(problem, tensors)?)
}

/// One row of 512.
fn row(rng: &mut Rng, data: Data, dtype: Float16) -> Vec<u16> {
    let scale = 2f32.powi(rng.i32(-6..=6));
    let ordinary = |rng: &mut Rng| to_float16(scale * draw::bell(rng), dtype);
    match data {
        Data::Ordinary => (0..HEAD_DIM).map(|_| ordinary(rng)).collect(),
        // So small that the mean of the squares is subnormal.
        Data::Edges if rng.u8(..6) == 0 => {
            let tiny = 2f32.powi(rng.i32(-75..=-60));
            (0..HEAD_DIM).map(|_| to_float16(tiny * draw::bell(rng), dtype)).collect()
        }
        Data::Edges => (0..HEAD_DIM / 32).flat_map(|_| edge_block(rng, dtype)).collect(),
        Data::NonFinite => {
            let infinity = to_float16(f32::INFINITY, dtype);
            let mut row: Vec<u16> = (0..HEAD_DIM).map(|_| ordinary(rng)).collect();
            for _ in 0..rng.usize(..3) {
                let non_finite = [infinity, infinity | 0x8000, infinity + 1, 0x7FFF, 0xFFFF];
                row[rng.usize(..HEAD_DIM)] = non_finite[rng.usize(..non_finite.len())];
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
fn edge_block(rng: &mut Rng, dtype: Float16) -> Vec<u16> {
    let kind = rng.u8(..6);
    let power = 2f32.powi(rng.i32(-12..=6));
    let next_to_limit = to_float16(448.0 * power, dtype).wrapping_add_signed(rng.i16(-1..=1));
    let value = |rng: &mut Rng| -> u16 {
        let sign = if rng.bool() { 0x8000 } else { 0 };
        let step = f32::from(rng.u8(..128)) + if rng.bool() { 0.5 } else { 0.25 };
        sign | match kind {
            0 => 0,
            1 => rng.u16(..8),                                         // subnormal
            2 => to_float16(f32::INFINITY, dtype) - 1 - rng.u16(..4),  // next to the largest
            3 => to_float16(step * power / 16.0, dtype),               // between steps of FP8
            4 => to_float16(2f32.powi(rng.i32(-20..=2)) * 1.5, dtype), // FP8 subnormals and ties
            _ => to_float16(power * rng.f32(), dtype),
        }
    };
    let mut block: Vec<u16> = (0..32).map(|_| value(rng)).collect();
    if kind > 2 {
        block[rng.usize(..32)] = next_to_limit;
    }
    block
}

/// Distinct slots, some of them replaced by negative ones.
fn slots(rng: &mut Rng, key: &Key, pattern: SlotPattern) -> Vec<i64> {
    let lowest = match key.slot_type {
        Index::I64 => i64::MIN,
        Index::I32 => i64::from(i32::MIN),
    };
    let mut all: Vec<i64> = (0..key.cache.capacity() as i64).collect();
    rng.shuffle(&mut all);
    let pick = |(token, slot): (usize, i64)| {
        let nowhere = [-1, -2, lowest][token / 3 % 3];
        match pattern {
            SlotPattern::Shuffled => slot,
            SlotPattern::SomeNegative if token % 3 != 1 => slot,
            SlotPattern::SomeNegative | SlotPattern::AllNegative => nowhere,
        }
    };
    all.into_iter()
        .chain(std::iter::repeat(-1))
        .take(key.slot_count)
        .enumerate()
        .map(pick)
        .collect()
}
