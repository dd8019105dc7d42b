//! The string metadata of a file.

use mla_prologue_operator::{CacheFormat, Fp8, Invalid, Kind, PadScaleByte, Result, TableOrder};
use safetensors::Dtype;
use std::{collections::HashMap, fmt::Display, str::FromStr};

/// A metadata key: its name, its values (the default first), and what it means.
pub struct KeyInfo {
    /// The name.
    pub name: &'static str,
    /// Its values in words.
    pub values: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A number as files write it: Rust also takes a sign in front.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// [`take_type`], where `absent` is a choice as well.
pub fn take_optional_type(
    keys: &mut HashMap<String, String>,
    key: &str,
    types: &[Dtype],
) -> Result<Option<Dtype>> {
    if keys.get(key).is_some_and(|name| name == "absent") {
        keys.remove(key);
    }
    take_type(keys, key, types)
}

/// Takes the type of a tensor that an option names, if it is given.
pub fn take_type(
    keys: &mut HashMap<String, String>,
    key: &str,
    types: &[Dtype],
) -> Result<Option<Dtype>> {
    let Some(name) = keys.remove(key) else { return Ok(None) };
    let names: Vec<String> = types.iter().map(|dtype| dtype.to_string().to_lowercase()).collect();
    let at = names.iter().position(|known| *known == name);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    at.map(|at| Some(types[at])).ok_or_else(|| Invalid::new(key, name, one_of(&names)))
}

/// `a or b`, or `one of a, b, c`.
pub fn one_of(values: &[&str]) -> String {
    match values {
        [_, _] => values.join(" or "),
        _ => format!("one of {}", values.join(", ")),
    }
}

/// The metadata of a file, its names checked.
pub struct Keys<'a> {
    named: &'a HashMap<String, String>,
    /// Values of keys that the file does not name, where they are not the usual ones.
    pub defaults: Vec<(&'static str, &'static str)>,
}

impl<'a> Keys<'a> {
    /// Checks that every key and every tensor is known.
    pub fn new(
        named: &'a HashMap<String, String>,
        known: &[KeyInfo],
        tensors: &[&str],
        known_tensors: &[&str],
    ) -> Result<Self> {
        let known: Vec<&str> = known.iter().map(|key| key.name).collect();
        let unknown = |name: &str, what: &str, known: &[&str]| {
            let known: Vec<&str> = known.iter().filter(|name| !name.is_empty()).copied().collect();
            Err(Invalid::new(name, what, format!("one of {}", known.join(", "))))
        };
        let keys = Self { named, defaults: Vec::new() };
        if let Some(key) = keys.names().into_iter().find(|name| !known.contains(name)) {
            return unknown(key, "an unknown metadata key", &known);
        }
        match tensors.iter().find(|name| !known_tensors.contains(name)) {
            Some(name) => unknown(name, "an unknown tensor", known_tensors),
            None => Ok(keys),
        }
    }

    /// The keys that the file names, sorted.
    pub fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = self.named.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// What the file itself says.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.named.get(key).map(String::as_str)
    }

    /// The value of a key that has one of a few: the file's, else its default, else the first.
    pub fn choice(&self, key: &str, values: &[&'static str]) -> Result<&'static str> {
        let default = self.defaults.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let Some(value) = self.get(key).or(default) else { return Ok(values[0]) };
        let found = values.iter().find(|known| **known == value);
        found.copied().ok_or_else(|| Invalid::new(key, value, one_of(values)))
    }

    /// `true`, unless the file says `false`.
    pub fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.choice(key, &["true", "false"])? == "true")
    }

    /// The number that a key must hold.
    pub fn required<T: FromStr>(&self, key: &str, must: &str) -> Result<T> {
        let text = self.get(key).ok_or_else(|| {
            Invalid::new(key, "missing from the metadata", must).of(Kind::Missing)
        })?;
        number(text).ok_or_else(|| Invalid::new(key, text, must))
    }

    /// The number that a key may hold.
    pub fn optional<T: FromStr>(&self, key: &str, must: &str) -> Result<Option<T>> {
        self.get(key).map(|_| self.required(key, must)).transpose()
    }

    /// The finite f32 nearest to the decimal number that a key holds.
    pub fn finite(&self, key: &str, must: &str) -> Result<Option<f32>> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = number(text).filter(|number: &f32| number.is_finite());
        number.map(Some).ok_or_else(|| Invalid::new(key, text, must))
    }

    /// The same of a number that is not negative.
    pub fn real(&self, key: &str, must: &str) -> Result<Option<f32>> {
        let number = self.finite(key, must)?;
        // What rounds to -0 may be negative.
        match self.get(key).filter(|text| text.parse::<f64>().is_ok_and(|number| number < 0.0)) {
            Some(text) => Err(Invalid::new(key, text, must)),
            None => Ok(number),
        }
    }

    /// `cache_format` and `fp8`; `kv_scale` is refused where it has no effect.
    pub fn cache_format(&self) -> Result<CacheFormat> {
        let fp8 = Fp8::named(self.choice("fp8", &["e4m3fn", "e4m3fnuz"])?).unwrap_or_default();
        let formats = CacheFormat::all(fp8, PadScaleByte::default());
        let name = self.choice("cache_format", &formats.map(CacheFormat::name))?;
        let format = formats.into_iter().find(|format| format.name() == name).unwrap_or_default();
        self.only_with(&["fp8"], format.fp8().is_some(), name)?;
        self.only_with(&["kv_scale"], format.has_tensor_scale(), name)?;
        Ok(format)
    }

    /// Refuses keys that have no effect with a cache format.
    pub fn only_with(&self, keys: &[&str], useful: bool, format: &str) -> Result<()> {
        let must = format_args!("absent with cache_format {format}");
        keys.iter().try_for_each(|key| self.refuse(useful, key, must))
    }

    /// `rotary_layout`.
    pub fn table_order(&self) -> Result<TableOrder> {
        let name = self.choice("rotary_layout", &["halves", "interleaved"])?;
        Ok(TableOrder::named(name).unwrap_or_default())
    }

    /// Refuses a key that the file names where it has no effect.
    pub fn refuse(&self, useful: bool, key: &str, must: impl Display) -> Result<()> {
        match self.get(key).filter(|_| !useful) {
            Some(value) => Err(Invalid::unexpected(key, value, must)),
            None => Ok(()),
        }
    }
}
