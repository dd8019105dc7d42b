//! Conversions between f32 and the 16-bit types, through the crate `half`: exact one way, one rounding
//! to nearest even the other.

use half::{bf16, f16};
use mla_prologue_operator::{
    Float16, HEAD_DIM, RotaryType,
    prologue::{Query, Strides},
};
use rayon::prelude::*;

/// Where rows of 512 values start, in values.
pub struct Rows(Vec<usize>);

impl Rows {
    /// Rows that start at these values.
    pub fn at(starts: impl IntoIterator<Item = usize>) -> Self {
        Self(starts.into_iter().collect())
    }

    /// The rows of `q`, token by token, head by head.
    pub fn of_q(tokens: usize, query: &Query) -> Self {
        let heads = query.heads;
        let Strides { token, head } = query.strides.unwrap_or(Strides::dense(heads));
        Self::at((0..tokens * heads).map(|row| row / heads * token + row % heads * head))
    }
}

/// The f32 values of little-endian bytes.
pub fn from_f32_bytes(bytes: &[u8]) -> Vec<f32> {
    let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(value).collect()
}

/// f32 values as little-endian bytes.
pub fn to_f32_bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The f32 values of a 16-bit one.
pub fn from_float16(bits: u16, dtype: Float16) -> f32 {
    match dtype {
        Float16::Bf16 => bf16::from_bits(bits).to_f32(),
        Float16::F16 => f16::from_bits(bits).to_f32(),
    }
}

/// The nearest 16-bit value, ties to even.
pub fn to_float16(x: f32, dtype: Float16) -> u16 {
    match dtype {
        Float16::Bf16 => bf16::from_f32(x).to_bits(),
        Float16::F16 => f16::from_f32(x).to_bits(),
    }
}

/// Rows of 16-bit values as rows of f32.
pub fn decode_rows(bytes: &[u8], dtype: Float16, rows: &Rows) -> Vec<f32> {
    let decode = |start: &usize| {
        let row = &bytes[start * 2..(start + HEAD_DIM) * 2];
        row.chunks_exact(2).map(|b| from_float16(u16::from_le_bytes([b[0], b[1]]), dtype))
    };
    rows.0.par_iter().flat_map_iter(decode).collect()
}

/// f32 values as 16-bit ones.
pub fn encode(x: &[f32], dtype: Float16) -> Vec<u8> {
    x.par_iter().flat_map_iter(|&x| to_float16(x, dtype).to_le_bytes()).collect()
}

/// Rounds to 16 bits and goes on in f32.
pub fn round(x: &mut [f32], dtype: Float16) {
    x.par_iter_mut().for_each(|x| *x = from_float16(to_float16(*x, dtype), dtype));
}

/// The value at `index` of a rotary table.
pub fn from_table(bytes: &[u8], dtype: RotaryType, index: usize) -> f32 {
    let at =
        |dtype| from_float16(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]), dtype);
    match dtype {
        RotaryType::F32 => {
            let mut value = [0; 4];
            value.copy_from_slice(&bytes[4 * index..4 * index + 4]);
            f32::from_le_bytes(value)
        }
        RotaryType::Bf16 => at(Float16::Bf16),
        RotaryType::F16 => at(Float16::F16),
    }
}
