//! What is known when the kernel is compiled: each distinct [`Blueprint`] is one specialization.

use crate::Strategy;
use mla_prologue_operator::{
    CacheFormat, Fp8, Half, Index, Problem, QuantFrom, RotaryLayout, RotaryType, Rounding,
};

/// Everything that the generated code depends on. Token counts, live heads, strides, block sizes and
/// indices are not here: they are arguments of the compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// How the 32 lanes of a row map to hardware.
    pub lanes: Lanes,
    /// How 16-bit values are converted.
    pub conversion: Conversion,
    /// Rows that a cube works on at once.
    pub rows_per_cube: u32,
    /// The type of `q`, `kv` and the norm weight.
    pub half: Half,
    /// The type of `positions`.
    pub positions: Index,
    /// The type of the rotary table's values.
    pub table_type: RotaryType,
    /// Where the cosines and sines of a table row are.
    pub table_layout: RotaryLayout,
    /// The work on queries, if any.
    pub query: Option<QueryBlueprint>,
    /// The work on keys, if any.
    pub key: Option<KeyBlueprint>,
}

/// The work on queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// Are the added heads written?
    pub pads: Pads,
}

/// The work on keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyBlueprint {
    /// The type of `slot_mapping`.
    pub slots: Index,
    /// RMSNorm with a weight, and the rounding after it.
    pub norm: Option<Rounding>,
    /// Which values are quantized.
    pub quant_from: QuantFrom,
    /// The cache.
    pub format: CacheFormat,
    /// Rows lie as far apart as the stride says, not one after the other.
    pub strided: bool,
}

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
            Self::Unit => mla_prologue_operator::LANES,
        }
    }
}

/// How 16-bit values are converted; both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// By the device's own conversions.
    Native,
    /// By integer arithmetic, where the device has none that can be relied on.
    Integer,
}

impl Conversion {
    pub(crate) const fn native_where(native: bool) -> Self {
        if native { Self::Native } else { Self::Integer }
    }
}

/// What happens to the heads that are added to the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pads {
    /// They are zeroed.
    #[default]
    Written,
    /// They are known to be zero and not touched.
    KnownZero,
}

impl Blueprint {
    /// Words of 4 bytes that 8 values of the output take.
    pub(crate) fn out_words(&self) -> usize {
        if self.query.is_some_and(|query| query.fp8.is_some()) { 2 } else { 4 }
    }

    /// The specialization for a problem on a device with this strategy.
    pub fn new(problem: &Problem, strategy: &Strategy, pads: Pads) -> Self {
        let query = problem.query.map(|query| QueryBlueprint {
            padded_heads: query.padded_heads as u32,
            norm: query.norm,
            rope: query.rope,
            rounding: query.rounding,
            fp8: query.scale.and(problem.fp8()),
            strided: query.strides.is_some(),
            pads,
        });
        let key = problem.key.map(|key| KeyBlueprint {
            slots: key.slot_type,
            norm: key.norm,
            quant_from: key.quant_from,
            format: key.cache.format,
            strided: key.row_stride.is_some(),
        });
        Self {
            lanes: strategy.lanes,
            conversion: strategy.conversion(problem.half),
            rows_per_cube: strategy.rows_per_cube(rows(problem, pads)),
            half: problem.half,
            positions: problem.positions,
            table_type: problem.table.number,
            table_layout: problem.table.layout,
            query,
            key,
        }
    }
}

/// Rows of work: the heads of the output that are written, and the key, of each token.
pub(crate) fn rows(problem: &Problem, pads: Pads) -> usize {
    let heads = problem.query.map_or(0, |query| match pads {
        Pads::Written => query.padded_heads,
        Pads::KnownZero => query.heads,
    });
    problem.tokens * (heads + usize::from(problem.key.is_some()))
}
