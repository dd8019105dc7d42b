//! The string metadata of an input file: every key, what it may be, and what refuses it.

use mla_prologue_operator::{
    CacheFormat, Fp8, Invalid, Kind, PadScaleByte, QuantFrom, Result, Rounding, TableOrder,
    prologue::Profile,
};
use std::{collections::HashMap, fmt::Display, str::FromStr};

/// Which part of the work a key or tensor belongs to; it is refused where that part is not done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The queries.
    Q,
    /// The keys.
    Kv,
    /// Both.
    Any,
}

/// A metadata key: its name, the part of the work that it belongs to, its values (the default first), and
/// what it means.
pub struct KeyInfo {
    /// The name.
    pub name: &'static str,
    pub(crate) part: Part,
    /// Its values in words.
    pub values: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Every metadata key that an input file may have.
#[rustfmt::skip]
pub const KEYS: &[KeyInfo] = &[
    KeyInfo { name: "eps", part: Part::Any, values: "a number, 0 or more", meaning: "added to the mean square in a norm; needed with one" },
    KeyInfo { name: "padded_heads", part: Part::Q, values: "a number", meaning: "heads of q_out, at least those of q; needed with q" },
    KeyInfo { name: "block_size", part: Part::Kv, values: "a number, 1 or more", meaning: "tokens of a block of kv_cache; needed with kv" },
    KeyInfo { name: "work", part: Part::Any, values: "both, q, kv", meaning: "what is done; tensors and keys of the rest must be absent" },
    KeyInfo { name: "q_norm", part: Part::Q, values: "true, false", meaning: "RMSNorm of each head of q" },
    KeyInfo { name: "q_rope", part: Part::Q, values: "true, false", meaning: "RoPE of q" },
    KeyInfo { name: "q_rounding", part: Part::Q, values: "none, 16bit", meaning: "rounding of q between norm and RoPE" },
    KeyInfo { name: "kv_norm_rounding", part: Part::Kv, values: "16bit, none", meaning: "rounding of kv between norm and RoPE; only with the tensor kv_norm_weight" },
    KeyInfo { name: "kv_quant_from", part: Part::Kv, values: "16bit, f32", meaning: "the values that are quantized: rounded to 16 bits first, or not" },
    KeyInfo { name: "rotary_layout", part: Part::Any, values: "halves, interleaved", meaning: "a row of cos_sin_cache: cosines then sines, or pairs of the two" },
    KeyInfo { name: "cache_format", part: Part::Kv, values: "fp8_ds_mla, mxfp8_528, rows_16bit, rows_fp8", meaning: "how a token is stored" },
    KeyInfo { name: "fp8", part: Part::Kv, values: "e4m3fn, e4m3fnuz", meaning: "the 8-bit format; not with rows_16bit" },
    KeyInfo { name: "pad_scale_byte", part: Part::Kv, values: "zero, keep", meaning: "the eighth scale byte of a token; only with fp8_ds_mla" },
    KeyInfo { name: "kv_scale", part: Part::Kv, values: "a number above 0 whose reciprocal is a normal f32", meaning: "the scale of a rows_fp8 cache; needed with it, and only there" },
    KeyInfo { name: "q_scale", part: Part::Q, values: "a number as kv_scale", meaning: "makes q_out FP8 with this scale; only with rows_fp8" },
    KeyInfo { name: "profile", part: Part::Any, values: "vllm, sglang", meaning: "an engine's q_rounding, kv_norm_rounding, kv_quant_from, rotary_layout and pad_scale_byte" },
    KeyInfo { name: "format", part: Part::Any, values: "anything", meaning: "ignored" },
];

/// The tensors that an input file may have.
pub const TENSORS: [(&str, Part); 7] = [
    ("q", Part::Q),
    ("kv", Part::Kv),
    ("kv_norm_weight", Part::Kv),
    ("positions", Part::Any),
    ("slot_mapping", Part::Kv),
    ("cos_sin_cache", Part::Any),
    ("kv_cache", Part::Kv),
];

/// The metadata of a file, its names checked.
pub struct Metadata<'a> {
    named: &'a HashMap<String, String>,
    profile: Option<[(&'static str, &'static str); 5]>,
    /// The parts of the work.
    pub q: bool,
    pub kv: bool,
}

impl<'a> Metadata<'a> {
    /// Checks that every key and tensor is known, used by the work, and agrees with the profile.
    pub fn new(named: &'a HashMap<String, String>, tensors: &[&str]) -> Result<Self> {
        let mut keys: Vec<&str> = named.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let known = |name: &str| KEYS.iter().find(|key| key.name == name);
        if let Some(key) = keys.iter().find(|name| known(name).is_none()) {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            return Err(Invalid::new(
                key,
                "an unknown metadata key",
                format!("one of {}", names.join(", ")),
            ));
        }
        let part = |name: &str| TENSORS.iter().find(|tensor| tensor.0 == name);
        if let Some(name) = tensors.iter().find(|name| part(name).is_none()) {
            let names: Vec<&str> = TENSORS.iter().map(|tensor| tensor.0).collect();
            return Err(Invalid::new(
                name,
                "an unknown tensor",
                format!("one of {}", names.join(", ")),
            ));
        }
        let mut metadata = Self { named, profile: None, q: true, kv: true };
        let work = metadata.choice("work", &["both", "q", "kv"])?;
        (metadata.q, metadata.kv) = (work != "kv", work != "q");
        let unused = |part| (part == Part::Q && !metadata.q) || (part == Part::Kv && !metadata.kv);
        let keys = keys.iter().filter(|name| known(name).is_some_and(|key| unused(key.part)));
        let names = tensors.iter().filter(|name| part(name).is_some_and(|tensor| unused(tensor.1)));
        if let Some(name) = keys.chain(names).next() {
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
        self.profile = Some(profile.conventions().named());
        for (key, value) in self.profile.into_iter().flatten() {
            if let Some(named) = self.get(key).filter(|named| *named != value) {
                return Err(Invalid::new(
                    key,
                    named,
                    format!("{value}, or absent, with profile {profile}"),
                ));
            }
        }
        Ok(())
    }

    /// What the file itself says, whatever its profile.
    fn get(&self, key: &str) -> Option<&'a str> {
        self.named.get(key).map(String::as_str)
    }

    /// The value of a key that has one of a few: the file's, else the profile's, else the first.
    fn choice(&self, key: &str, values: &[&'static str]) -> Result<&'static str> {
        let profile =
            self.profile.iter().flatten().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let Some(value) = self.get(key).or(profile) else { return Ok(values[0]) };
        let found = values.iter().find(|known| **known == value);
        found.copied().ok_or_else(|| Invalid::new(key, value, values.join(" or ")))
    }

    fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.choice(key, &["true", "false"])? == "true")
    }

    /// The number that a key must hold.
    pub fn required<T: FromStr>(&self, key: &str, must: &str) -> Result<T> {
        let text = self.get(key).ok_or_else(|| {
            Invalid::new(key, "missing from the metadata", must).of(Kind::Missing)
        })?;
        text.parse().map_err(|_| Invalid::new(key, text, must))
    }

    /// The f32 nearest to the decimal number, not negative, that a key holds.
    pub fn real(&self, key: &str, must: &str) -> Result<Option<f32>> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let negative = text.parse::<f64>().is_ok_and(|number| number < 0.0);
        let number = text.parse().ok().filter(|number: &f32| number.is_finite() && !negative);
        number.map(Some).ok_or_else(|| Invalid::new(key, text, must))
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
        let name = self.choice("cache_format", &CacheFormat::NAMES)?;
        let [ds_mla, mxfp8, rows_16bit, rows_fp8] = CacheFormat::NAMES;
        let only = |key: &str, formats: &[&str]| {
            self.refuse(
                formats.contains(&name),
                key,
                format_args!("absent with cache_format {name}"),
            )
        };
        only("fp8", &[ds_mla, mxfp8, rows_fp8])?;
        only("kv_quant_from", &[ds_mla, mxfp8])?;
        only("pad_scale_byte", &[ds_mla])?;
        only("kv_scale", &[rows_fp8])?;
        only("q_scale", &[rows_fp8])?;
        let fp8 = Fp8::named(self.choice("fp8", &["e4m3fn", "e4m3fnuz"])?).unwrap_or_default();
        let pad = self.choice("pad_scale_byte", &["zero", "keep"])?;
        let from =
            QuantFrom::named(self.choice("kv_quant_from", &["16bit", "f32"])?).unwrap_or_default();
        let pad_scale_byte = PadScaleByte::named(pad).unwrap_or_default();
        Ok(match name {
            _ if name == mxfp8 => (CacheFormat::Mxfp8 { fp8 }, from),
            _ if name == rows_16bit => (CacheFormat::Rows16Bit, QuantFrom::default()),
            _ if name == rows_fp8 => (CacheFormat::RowsFp8 { fp8 }, QuantFrom::default()),
            _ => (CacheFormat::Fp8DsMla { fp8, pad_scale_byte }, from),
        })
    }

    /// `rotary_layout`.
    pub fn table_order(&self) -> Result<TableOrder> {
        let name = self.choice("rotary_layout", &["halves", "interleaved"])?;
        Ok(TableOrder::named(name).unwrap_or_default())
    }

    /// Refuses a key that the file names where it has no effect.
    fn refuse(&self, useful: bool, key: &str, must: impl Display) -> Result<()> {
        match self.get(key).filter(|_| !useful) {
            Some(value) => Err(Invalid::unexpected(key, value, must)),
            None => Ok(()),
        }
    }
}
