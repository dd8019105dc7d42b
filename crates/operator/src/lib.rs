//! The vocabulary of DeepSeek-V4's attention prologue, which every other crate speaks: the shapes and
//! options of one call ([`Spec`], once validated a [`Problem`]), the paged cache's layout
//! ([`CacheLayout`]), the buffers of a call on the host ([`Inputs`], [`Outputs`]) and the one error
//! ([`Invalid`]) that names an argument, what it is and what it must be.
//!
//! It computes nothing. The arithmetic is defined by the crate `mla-prologue-reference` and done on a
//! device by `mla-prologue-kernel`.

mod cache;
mod error;
mod gather;
mod host;
mod names;
mod problem;
mod sizes;
mod types;

pub use cache::{CacheFormat, CacheLayout, PadScaleByte};
pub use error::{Invalid, Result};
pub use gather::{BlockTable, Gather};
pub use host::{Inputs, Outputs};
pub use problem::{Key, Problem, Query, RotaryTable, Spec, Strides};
pub use sizes::Sizes;
pub use types::{Fp8, Half, Index, QuantFrom, RotaryLayout, RotaryType, Rounding};

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
/// A quantization block's largest magnitude is not taken below this.
pub const QUANT_FLOOR: f32 = 1e-4;
