//! What is known when the kernel is compiled: each distinct [`Blueprint`] is one specialization.

use crate::{
    Strategy,
    row::{Codec, Lanes, rope::Rotary},
};
use mla_prologue_operator::{CacheFormat, Fp8, Index, QuantFrom, Rounding, prologue::Problem};

/// Everything that the generated code depends on. Token counts, live heads, strides, block sizes and
/// indices are not here: they are arguments of the compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// How the 32 lanes of a row map to hardware.
    pub lanes: Lanes,
    /// Rows that a cube works on at once.
    pub rows_per_cube: u32,
    /// The type of `q`, `kv` and the norm weight, and how it is converted.
    pub codec: Codec,
    /// The type of `positions`.
    pub position_type: Index,
    /// The rotary table.
    pub rotary: Rotary,
    /// What is done to the queries, if anything.
    pub query: Option<QueryBlueprint>,
    /// What is done to the keys, if anything.
    pub key: Option<KeyBlueprint>,
}

/// What is done to the queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryBlueprint {
    /// Heads of the output, any number.
    pub padded_heads: u32,
    /// RMSNorm of each head.
    pub norm: bool,
    /// RoPE of each head.
    pub rope: bool,
    /// Rounding between the two.
    pub rounding: Rounding,
    /// The output's format if it is FP8.
    pub fp8: Option<Fp8>,
    /// Rows lie where the strides say, not one after the other.
    pub strided: bool,
    /// Are the padding heads written?
    pub padding: PaddingHeads,
}

/// What is done to the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyBlueprint {
    /// The type of `slot_mapping`.
    pub slot_type: Index,
    /// RMSNorm with a weight, and the rounding after it.
    pub norm: Option<Rounding>,
    /// Which values are quantized.
    pub quant_from: QuantFrom,
    /// The cache.
    pub format: CacheFormat,
    /// Rows lie as far apart as the stride says, not one after the other.
    pub strided: bool,
}

/// What a call knows of the padding heads of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PaddingHeads {
    /// Nothing: they are zeroed.
    #[default]
    Written,
    /// They are zero, and not accessed.
    KnownZero,
}

impl Blueprint {
    /// The specialization for a problem on a device with this strategy.
    pub fn new(problem: &Problem, strategy: &Strategy, padding: PaddingHeads) -> Self {
        let spec = problem.spec();
        let query = spec.query.map(|query| QueryBlueprint {
            padded_heads: query.padded_heads as u32,
            norm: query.norm,
            rope: query.rope,
            rounding: query.rounding,
            fp8: query.scale.and(spec.fp8()),
            strided: query.strides.is_some(),
            padding,
        });
        let key = spec.key.map(|key| KeyBlueprint {
            slot_type: key.slot_type,
            norm: key.norm,
            quant_from: key.quant_from,
            format: key.cache.format,
            strided: key.row_stride.is_some(),
        });
        let codec = strategy.codec(spec.dtype);
        Self {
            lanes: strategy.lanes,
            rows_per_cube: strategy.rows_per_cube(rows(problem, padding)),
            codec,
            position_type: spec.position_type,
            rotary: Rotary {
                dtype: spec.table.dtype,
                order: spec.table.order,
                conversion: codec.conversion,
            },
            query,
            key,
        }
    }

    /// Words of 4 bytes that 8 values of the output take.
    pub(super) fn out_words(&self) -> usize {
        if self.query.is_some_and(|query| query.fp8.is_some()) { 2 } else { 4 }
    }

    /// Heads of the output, where its padding heads are written.
    pub(super) fn written_heads(&self) -> Option<usize> {
        let query = self.query.filter(|query| query.padding == PaddingHeads::Written);
        query.map(|query| query.padded_heads as usize)
    }
}

/// Rows of work: the heads of the output that are written, and the key, of each token.
pub(super) fn rows(problem: &Problem, padding: PaddingHeads) -> usize {
    let spec = problem.spec();
    let heads = spec.query.map_or(0, |query| match padding {
        PaddingHeads::Written => query.padded_heads,
        PaddingHeads::KnownZero => query.heads,
    });
    spec.tokens * (heads + usize::from(spec.key.is_some()))
}
