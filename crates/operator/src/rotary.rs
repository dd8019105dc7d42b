use crate::{ROPE_DIM, names::named};

named! {
    /// The type of the rotary table; 16-bit ones are converted to f32 exactly.
    pub enum RotaryType {
        /// IEEE binary32.
        #[default]
        F32 = "f32",
        /// bfloat16.
        Bf16 = "bf16",
        /// IEEE binary16.
        F16 = "f16",
    }
}

impl RotaryType {
    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

named! {
    /// The order in which a row of the rotary table stores the 32 cosines and 32 sines of a position. The *pairing* of
    /// the values that are rotated is another matter: it is always interleaved (GPT-J), never half-split (NeoX).
    pub enum TableOrder {
        /// All cosines, then all sines.
        #[default]
        CosThenSin = "halves",
        /// Cosine and sine of pair 0, of pair 1, and so on.
        CosSinPairs = "interleaved",
    }
}

/// The rotary table `cos_sin_cache` `[rows, 64]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryTable {
    /// Positions that it covers.
    pub rows: usize,
    /// The type of its values.
    pub dtype: RotaryType,
    /// Where in a row the cosines and sines are.
    pub order: TableOrder,
}

impl RotaryTable {
    /// A table of f32 values, in each row 32 cosines, then 32 sines.
    pub const fn new(rows: usize) -> Self {
        Self { rows, dtype: RotaryType::F32, order: TableOrder::CosThenSin }
    }

    /// Bytes of a row.
    pub const fn row_bytes(&self) -> usize {
        ROPE_DIM * self.dtype.bytes()
    }
}
