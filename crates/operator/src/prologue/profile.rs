use super::{Key, Query, Spec};
use crate::{CacheFormat, PadScaleByte, QuantFrom, Rounding, TableOrder, names::named};

named! {
    /// An engine whose conventions can be set at once.
    pub enum Profile {
        /// vLLM: the defaults.
        #[default]
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
    }
}

/// What engines do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conventions {
    /// Rounding of the queries between norm and RoPE.
    pub q_rounding: Rounding,
    /// Rounding of the keys between norm and RoPE.
    pub kv_norm_rounding: Rounding,
    /// Which values of the keys are quantized.
    pub kv_quant_from: QuantFrom,
    /// Where the cosines and sines of a row of the rotary table are.
    pub rotary_layout: TableOrder,
    /// The eighth scale byte of a token in `fp8_ds_mla`.
    pub pad_scale_byte: PadScaleByte,
}

impl Profile {
    /// The engine's conventions.
    pub const fn conventions(self) -> Conventions {
        match self {
            Self::Vllm => Conventions {
                q_rounding: Rounding::None,
                kv_norm_rounding: Rounding::To16Bit,
                kv_quant_from: QuantFrom::Rounded,
                rotary_layout: TableOrder::CosThenSin,
                pad_scale_byte: PadScaleByte::Zero,
            },
            Self::Sglang => Conventions {
                q_rounding: Rounding::To16Bit,
                kv_norm_rounding: Rounding::None,
                kv_quant_from: QuantFrom::F32,
                rotary_layout: TableOrder::CosSinPairs,
                pad_scale_byte: PadScaleByte::Keep,
            },
        }
    }
}

impl Conventions {
    /// The keys of a file that they set, with their values.
    pub const fn named(self) -> [(&'static str, &'static str); 5] {
        [
            ("q_rounding", self.q_rounding.name()),
            ("kv_norm_rounding", self.kv_norm_rounding.name()),
            ("kv_quant_from", self.kv_quant_from.name()),
            ("rotary_layout", self.rotary_layout.name()),
            ("pad_scale_byte", self.pad_scale_byte.name()),
        ]
    }
}

impl Spec {
    /// The same call with an engine's conventions, as far as it has a use for them. Call it last: it changes the queries and keys that are
    /// there.
    ///
    /// ```
    /// use mla_prologue_operator::{Rounding, TableOrder};
    /// use mla_prologue_operator::prologue::{Profile, Query, RotaryTable, Spec};
    /// let spec = Spec::new(1, RotaryTable::new(4096)).query(Query::new(16, 64)).profile(Profile::Sglang);
    /// assert_eq!(spec.query.unwrap().rounding, Rounding::To16Bit);
    /// assert_eq!(spec.table.order, TableOrder::CosSinPairs);
    /// ```
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        let conventions = profile.conventions();
        self.table.order = conventions.rotary_layout;
        self.query = self.query.map(|query| {
            let rounding =
                if query.norm && query.rope { conventions.q_rounding } else { Rounding::None };
            Query { rounding, ..query }
        });
        self.key = self.key.map(|mut key| {
            key.norm = key.norm.map(|_| conventions.kv_norm_rounding);
            if key.cache.format.quant_block().is_some() {
                key.quant_from = conventions.kv_quant_from;
            }
            if let CacheFormat::Fp8DsMla { pad_scale_byte, .. } = &mut key.cache.format {
                *pad_scale_byte = conventions.pad_scale_byte;
            }
            Key { ..key }
        });
        self
    }
}
