//! The string metadata of an input file: every key, what it may be, and what refuses it.

use crate::file::{KeyInfo, Keys};
use mla_prologue_operator::{
    CacheFormat, Invalid, Kind, PadScaleByte, QuantFrom, Result, Rounding, SCALE_RANGE,
    prologue::{Profile, Tensors},
};
use std::{collections::HashMap, ops::Deref};

/// Every metadata key that an input file may have.
#[rustfmt::skip]
pub const KEYS: &[KeyInfo] = &[
    KeyInfo { name: "eps", values: "a number, 0 or more", meaning: "added to the mean square in a norm; needed with one" },
    KeyInfo { name: "padded_heads", values: "a number", meaning: "heads of q_out, at least those of q; needed with q" },
    KeyInfo { name: "block_size", values: "a number, 1 or more", meaning: "tokens of a block of kv_cache; needed with kv" },
    KeyInfo { name: "work", values: "both, q, kv", meaning: "what is done; tensors and keys of the rest must be absent" },
    KeyInfo { name: "q_norm", values: "true, false", meaning: "RMSNorm of each head of q" },
    KeyInfo { name: "q_rope", values: "true, false", meaning: "RoPE of q" },
    KeyInfo { name: "q_rounding", values: "none, 16bit", meaning: "rounding of q between norm and RoPE" },
    KeyInfo { name: "kv_norm_rounding", values: "16bit, none", meaning: "rounding of kv between norm and RoPE; only with the tensor kv_norm_weight" },
    KeyInfo { name: "kv_quant_from", values: "16bit, f32", meaning: "the values that are quantized: rounded to 16 bits first, or not" },
    KeyInfo { name: "rotary_layout", values: "halves, interleaved", meaning: "a row of cos_sin_cache: cosines then sines, or pairs of the two" },
    KeyInfo { name: "cache_format", values: "fp8_ds_mla, mxfp8_528, rows_16bit, rows_fp8", meaning: "how a token is stored" },
    KeyInfo { name: "fp8", values: "e4m3fn, e4m3fnuz", meaning: "the 8-bit format; not with rows_16bit" },
    KeyInfo { name: "pad_scale_byte", values: "zero, keep", meaning: "the eighth scale byte of a token; only with fp8_ds_mla" },
    KeyInfo { name: "kv_scale", values: SCALE_RANGE, meaning: "the scale of a rows_fp8 cache; needed with it, and only there" },
    KeyInfo { name: "q_scale", values: "a number as kv_scale", meaning: "makes q_out FP8 with this scale; only with rows_fp8" },
    KeyInfo { name: "profile", values: "vllm, sglang", meaning: "an engine's q_rounding, kv_norm_rounding, kv_quant_from, rotary_layout and pad_scale_byte" },
    KeyInfo { name: "format", values: "anything", meaning: "ignored" },
];

/// Tensors and keys that belong to the queries; they are refused where nothing is done to these.
const OF_QUERIES: &[&str] = &["q", "padded_heads", "q_norm", "q_rope", "q_rounding", "q_scale"];
/// Those that belong to the keys.
const OF_KEYS: &[&str] = &[
    "kv",
    "kv_norm_weight",
    "slot_mapping",
    "kv_cache",
    "block_size",
    "kv_norm_rounding",
    "kv_quant_from",
    "cache_format",
    "fp8",
    "pad_scale_byte",
    "kv_scale",
];

/// The metadata of a file, its names checked.
pub struct Metadata<'a> {
    keys: Keys<'a>,
    /// Is something done to the queries?
    pub q: bool,
    /// Is something done to the keys?
    pub kv: bool,
}

impl<'a> Deref for Metadata<'a> {
    type Target = Keys<'a>;

    fn deref(&self) -> &Self::Target {
        &self.keys
    }
}

impl<'a> Metadata<'a> {
    /// Checks that every key and tensor is known, used by the work, and agrees with the profile.
    pub fn new(named: &'a HashMap<String, String>, tensors: &[&str]) -> Result<Self> {
        let mut known = Tensors::NAMES;
        known.q_out = ""; // written only
        let known: Vec<&str> = known.named().map(|(_, name)| name).collect();
        let keys = Keys::new(named, KEYS, tensors, &known)?;
        let work = keys.choice("work", &["both", "q", "kv"])?;
        let names = keys.names();
        let mut metadata = Self { keys, q: work != "kv", kv: work != "q" };
        let unused = |name: &&&str| {
            (!metadata.q && OF_QUERIES.contains(name)) || (!metadata.kv && OF_KEYS.contains(name))
        };
        if let Some(name) = names.iter().chain(tensors).find(unused) {
            return Err(Invalid::unexpected(name, "given", format!("absent with work {work}")));
        }
        metadata.set_profile()?;
        Ok(metadata)
    }

    /// Sets the keys that a profile covers; what is named besides must agree.
    fn set_profile(&mut self) -> Result<()> {
        let Some(name) = self.get("profile") else { return Ok(()) };
        let profile = Profile::named(name).ok_or_else(|| {
            let names = Profile::ALL.iter().map(|profile| profile.name()).collect::<Vec<_>>();
            Invalid::new("profile", name, names.join(" or "))
        })?;
        self.keys.defaults = profile.conventions().named().to_vec();
        for (key, value) in &self.defaults {
            if let Some(named) = self.get(key).filter(|named| named != value) {
                return Err(Invalid::new(
                    key,
                    named,
                    format!("{value}, or absent, with profile {profile}"),
                ));
            }
        }
        Ok(())
    }

    /// Where norms are asked for, their eps.
    pub fn eps(&self, needed: bool) -> Result<f32> {
        let must = "a number that is finite in f32, 0 or more";
        match self.real("eps", must)? {
            None if needed => {
                Err(Invalid::new("eps", "missing from the metadata", must).of(Kind::Missing))
            }
            eps => Ok(eps.unwrap_or(0.0)),
        }
    }

    /// `q_norm`, `q_rope` and `q_rounding`.
    pub fn query_steps(&self) -> Result<(bool, bool, Rounding)> {
        let (norm, rope) = (self.flag("q_norm")?, self.flag("q_rope")?);
        let rounding = self.choice("q_rounding", &["none", "16bit"])?;
        let useful = norm && rope;
        self.refuse(useful, "q_rounding", "absent where q_norm or q_rope is false")?;
        let rounding = if useful { rounding } else { "none" };
        Ok((norm, rope, Rounding::named(rounding).unwrap_or_default()))
    }

    /// The rounding after the key's norm, if there is one.
    pub fn key_norm(&self, weight: bool) -> Result<Option<Rounding>> {
        self.refuse(weight, "kv_norm_rounding", "absent without the tensor kv_norm_weight")?;
        let rounding = self.choice("kv_norm_rounding", &["16bit", "none"])?;
        Ok(Rounding::named(rounding).filter(|_| weight))
    }

    /// The cache's format, and which values are quantized.
    pub fn cache(&self) -> Result<(CacheFormat, QuantFrom)> {
        let format = self.cache_format()?;
        let name = format.name();
        self.only_with(&["kv_quant_from"], format.quant_block().is_some(), name)?;
        let padded = matches!(format, CacheFormat::Fp8DsMla { .. });
        self.only_with(&["pad_scale_byte"], padded, name)?;
        self.only_with(&["q_scale"], format.has_tensor_scale(), name)?;
        let pad = self.choice("pad_scale_byte", &["zero", "keep"])?;
        let from = self.choice("kv_quant_from", &["16bit", "f32"])?;
        let from = QuantFrom::named(from).filter(|_| format.quant_block().is_some());
        let pad_scale_byte = PadScaleByte::named(pad).unwrap_or_default();
        let format = match format {
            CacheFormat::Fp8DsMla { fp8, .. } => CacheFormat::Fp8DsMla { fp8, pad_scale_byte },
            other => other,
        };
        Ok((format, from.unwrap_or_default()))
    }
}
