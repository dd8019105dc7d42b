use crate::{
    CacheFormat, CacheLayout, Fp8, HEAD_DIM, Half, Index, Invalid, QuantFrom, ROPE_DIM, Result,
    RotaryLayout, RotaryType, Rounding, Sizes, error::require,
};
use std::ops::Deref;

/// Rows that one call may have: heads and keys of all tokens.
const MAX_ROWS: usize = i32::MAX as usize;

/// The shapes and options of one call, as the caller states them. [`validate`](Self::validate) makes
/// them a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Tokens of the call; none is fine.
    pub tokens: usize,
    /// The type of `q`, `kv` and the norm weight.
    pub half: Half,
    /// Added to the mean square in every norm; finite, not negative.
    pub eps: f32,
    /// The type of `positions`.
    pub positions: Index,
    /// The rotary table `cos_sin_cache`.
    pub table: RotaryTable,
    /// The work on the queries, if any.
    pub query: Option<Query>,
    /// The work on the keys, if any.
    pub key: Option<Key>,
}

/// The rotary table `cos_sin_cache` `[rows, 64]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryTable {
    /// Positions that it covers.
    pub rows: usize,
    /// The type of its values.
    pub number: RotaryType,
    /// Where in a row the cosines and sines are.
    pub layout: RotaryLayout,
}

/// The queries: `q` `[tokens, heads, 512]` to `q_out` `[tokens, padded_heads, 512]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query {
    /// Heads that `q` has, 1 or more.
    pub heads: usize,
    /// Heads that `q_out` has, any number from `heads` up; the added ones are zeroed.
    pub padded_heads: usize,
    /// RMSNorm of each head.
    pub norm: bool,
    /// RoPE of the last 64 values of each head.
    pub rope: bool,
    /// Between the two.
    pub rounding: Rounding,
    /// With it, `q_out` is FP8: the values divided by this scale, in the cache's format.
    pub scale: Option<f32>,
    /// Where the rows of `q` lie; `None`: one after the other.
    pub strides: Option<Strides>,
}

/// Distances between rows of `q`, in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strides {
    /// From a token to the next.
    pub token: usize,
    /// From a head to the next.
    pub head: usize,
}

/// The keys: `kv` `[tokens, 512]` into the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Entries of `slot_mapping`; tokens past them are not inserted.
    pub slots: usize,
    /// The type of `slot_mapping`.
    pub slot_type: Index,
    /// RMSNorm with a weight before RoPE, and the rounding after it.
    pub norm: Option<Rounding>,
    /// Which values are quantized.
    pub quant_from: QuantFrom,
    /// The cache.
    pub cache: CacheLayout,
    /// The scale of the whole tensor in a cache of FP8 rows.
    pub scale: Option<f32>,
    /// Distance between rows of `kv` in values; `None`: one after the other.
    pub row_stride: Option<usize>,
}

impl Strides {
    /// The strides of rows that lie one after the other.
    pub const fn dense(heads: usize) -> Self {
        Self { token: heads * HEAD_DIM, head: HEAD_DIM }
    }
}

impl Query {
    /// Norm and RoPE of `heads` heads, padded to `padded_heads`.
    pub fn new(heads: usize, padded_heads: usize) -> Self {
        Self {
            heads,
            padded_heads,
            norm: true,
            rope: true,
            rounding: Rounding::None,
            scale: None,
            strides: None,
        }
    }
}

impl Key {
    /// RoPE, quantization and insertion of the first `slots` tokens.
    pub fn new(slots: usize, cache: CacheLayout) -> Self {
        Self {
            slots,
            slot_type: Index::I64,
            norm: None,
            quant_from: QuantFrom::Half,
            cache,
            scale: None,
            row_stride: None,
        }
    }
}

/// The shapes and options of one call, validated: a value that cannot be wrong.
///
/// ```
/// # use mla_prologue_operator::*;
/// let cache = CacheLayout { format: CacheFormat::default(), block_size: 64, block_stride: 37440, num_blocks: 8 };
/// let spec = Spec {
///     tokens: 4,
///     half: Half::Bf16,
///     eps: 1e-6,
///     positions: Index::I64,
///     table: RotaryTable { rows: 4096, number: RotaryType::F32, layout: RotaryLayout::Halves },
///     query: Some(Query::new(16, 64)),
///     key: Some(Key::new(4, cache)),
/// };
/// let problem = spec.validate()?;
/// assert_eq!(problem.q_out_bytes(), 4 * 64 * 512 * 2);
///
/// let wrong = Spec { query: Some(Query::new(65, 64)), ..spec }.validate();
/// assert_eq!(wrong.unwrap_err().to_string(), "padded_heads is 64; it must be at least the 65 heads of q");
/// # Ok::<(), Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    spec: Spec,
    sizes: Sizes,
}

impl Deref for Problem {
    type Target = Spec;
    fn deref(&self) -> &Spec {
        &self.spec
    }
}

impl Spec {
    /// # Errors
    /// The first of the fields that makes no sense, by itself or beside the others.
    pub fn validate(self) -> Result<Problem> {
        require(
            self.query.is_some() || self.key.is_some(),
            "work",
            "neither q nor kv",
            "at least one of the two",
        )?;
        require(
            self.eps.is_finite() && self.eps >= 0.0,
            "eps",
            self.eps,
            "a finite f32, not negative",
        )?;
        require(
            self.table.rows < u32::MAX as usize,
            "the row count of cos_sin_cache",
            self.table.rows,
            "below 2^32 - 1",
        )?;
        self.query.iter().try_for_each(|query| query.validate(&self))?;
        self.key.iter().try_for_each(|key| key.validate(&self))?;
        let sizes = Sizes::new(&self);
        let too_large =
            || Invalid::new("the problem", "too large", "of tensors whose bytes can be counted");
        Ok(Problem { spec: self, sizes: sizes.ok_or_else(too_large)? })
    }

    /// The FP8 format of the call: the cache's.
    pub fn fp8(&self) -> Option<Fp8> {
        self.key.and_then(|key| key.cache.format.fp8())
    }

    /// Bytes of a row of the rotary table.
    pub fn table_row_bytes(&self) -> usize {
        ROPE_DIM * self.table.number.bytes()
    }
}

impl Problem {
    /// Bytes of every tensor of the call.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Bytes of `q_out`, which the caller may own: `tokens * padded_heads * 512` values.
    pub const fn q_out_bytes(&self) -> usize {
        self.sizes.q_out
    }

    /// Bytes of `kv_cache`.
    pub const fn cache_bytes(&self) -> usize {
        self.sizes.kv_cache
    }
}

impl Query {
    fn validate(&self, spec: &Spec) -> Result<()> {
        require(self.heads > 0, "the head count of q", 0, "1 or more")?;
        require(
            self.padded_heads >= self.heads,
            "padded_heads",
            self.padded_heads,
            format_args!("at least the {} heads of q", self.heads),
        )?;
        require(self.padded_heads < MAX_ROWS, "padded_heads", self.padded_heads, "below 2^31 - 1")?;
        let rows = (self.padded_heads + 1).checked_mul(spec.tokens);
        require(
            rows.is_some_and(|rows| rows <= MAX_ROWS),
            "q_out",
            format_args!("{} tokens of {} heads", spec.tokens, self.padded_heads),
            "less than 2^31 rows, with one of the key for each token",
        )?;
        require(
            self.rounding == Rounding::None || (self.norm && self.rope),
            "q_rounding",
            self.rounding,
            "none where q_norm or q_rope is false",
        )?;
        if let Some(scale) = self.scale {
            let rows_fp8 = spec.key.is_some_and(|key| key.scale.is_some());
            require(rows_fp8, "q_scale", scale, "absent unless cache_format is rows_fp8")?;
            check_scale("q_scale", scale)?;
        }
        let Some(Strides { token, head }) = self.strides else { return Ok(()) };
        check_stride("the token stride of q", token)?;
        check_stride("the head stride of q", head)
    }
}

impl Key {
    fn validate(&self, spec: &Spec) -> Result<()> {
        self.cache.validate()?;
        require(
            self.slots <= spec.tokens,
            "the length of slot_mapping",
            self.slots,
            format_args!("at most the {} tokens", spec.tokens),
        )?;
        require(spec.tokens <= MAX_ROWS, "the row count of kv", spec.tokens, "less than 2^31")?;
        let format = self.cache.format;
        check_cache_scale(format, self.scale)?;
        require(
            self.quant_from == QuantFrom::Half || format.quant_block().is_some(),
            "kv_quant_from",
            self.quant_from,
            format_args!("absent with cache_format {}", format.name()),
        )?;
        check_stride("the row stride of kv", self.row_stride.unwrap_or(HEAD_DIM))
    }
}

/// Rows begin at a word of 16 bytes, and the kernel counts strides in these words, in 32 bits.
fn check_stride(name: &str, stride: usize) -> Result<()> {
    require(
        stride.is_multiple_of(8) && stride / 8 < u32::MAX as usize,
        name,
        stride,
        "a multiple of 8 values (16 bytes), below 2^35",
    )
}

/// A scale and its reciprocal, which the values are multiplied by, must both be usable in f32.
fn check_scale(name: &str, scale: f32) -> Result<()> {
    let inverse = 1.0 / scale;
    require(
        scale > 0.0 && scale.is_finite() && inverse.is_normal(),
        name,
        scale,
        "a finite f32 above 0 whose reciprocal is a normal f32",
    )
}

/// A cache of FP8 rows has a scale, and no other has one.
pub(crate) fn check_cache_scale(format: CacheFormat, scale: Option<f32>) -> Result<()> {
    match (matches!(format, CacheFormat::RowsFp8 { .. }), scale) {
        (true, Some(scale)) => check_scale("kv_scale", scale),
        (true, None) => require(false, "kv_scale", "absent", "given with cache_format rows_fp8"),
        (false, scale) => require(
            scale.is_none(),
            "kv_scale",
            scale.unwrap_or_default(),
            format_args!("absent with cache_format {}: only rows_fp8 has one", format.name()),
        ),
    }
}
