//! The vocabulary of DeepSeek-V4's attention operators, which every other crate shares.
//!
//! A folder an operator, [`prologue`], [`attend`] and [`gather`]: its `Spec` (shapes and options), once validated a `Problem`; its
//! `Tensors`, declared once; and a `Call`, a problem with its tensors in host memory. What the operators share is here:
//! number types, the paged cache's layout ([`CacheLayout`]), and the one error ([`Invalid`]), which names an argument, its
//! value and what it must be.
//!
//! It computes nothing. The arithmetic is defined by the crate `mla-prologue-reference` and done on a
//! device by `mla-prologue-kernel`.

pub mod attend;
mod block_table;
mod cache;
mod error;
pub mod gather;
mod names;
pub mod prologue;
mod rotary;
mod tensors;
mod types;

pub use block_table::BlockTable;
pub use cache::{CacheFormat, CacheLayout, PadScaleByte, SCALE_RANGE};
pub use error::{Invalid, Kind, Result};
pub use rotary::{RotaryTable, RotaryType, TableOrder};
pub use tensors::Access;
pub use types::{Float16, Fp8, Index, QuantFrom, Rounding};

/// Values of one head.
pub const HEAD_DIM: usize = 512;
/// The last values of a head, which RoPE rotates in pairs of neighbours.
pub const ROPE_DIM: usize = 64;
/// The values before them, which RoPE leaves alone.
pub const NOPE_DIM: usize = HEAD_DIM - ROPE_DIM;
/// A row of 512 values is summed by this many lanes; lane `l` owns `x[8l..8l+8]` and
/// `x[256+8l..256+8l+8]`.
pub const LANES: usize = 32;
/// Neighbouring values of a lane: one 16-byte word of 16-bit values.
pub const LANE_RUN: usize = 8;
/// Rows that one call may have.
pub(crate) const MAX_ROWS: usize = i32::MAX as usize;
/// The least absmax of a quantization block.
pub const QUANT_FLOOR: f32 = 1e-4;
