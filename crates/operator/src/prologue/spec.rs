use super::{Problem, Tensors};
use crate::{
    CacheLayout, Float16, Fp8, HEAD_DIM, Index, Invalid, MAX_ROWS, QuantFrom, Result, RotaryTable,
    Rounding,
    cache::check_scale,
    error::require,
    tensors::{check_stride, setters},
};

/// The shapes and options of one call, as the caller states them. [`validate`](Self::validate) makes
/// them a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// Tokens of the call; 0 is allowed.
    pub tokens: usize,
    /// The type of `q`, `kv` and the norm weight.
    pub dtype: Float16,
    /// Added to the mean square in every norm; finite, not negative.
    pub eps: f32,
    /// The type of `positions`.
    pub position_type: Index,
    /// The rotary table `cos_sin_cache`.
    pub table: RotaryTable,
    /// What is done to the queries, if anything.
    pub query: Option<Query>,
    /// What is done to the keys, if anything.
    pub key: Option<Key>,
}

/// The queries: `q` `[tokens, heads, 512]` to `q_out` `[tokens, padded_heads, 512]`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// Live heads, which `q` has: 1 or more.
    pub heads: usize,
    /// Heads that `q_out` has, any number from `heads` up; the padding heads are zero.
    pub padded_heads: usize,
    /// RMSNorm of each head.
    pub norm: bool,
    /// RoPE of the last 64 values of each head.
    pub rope: bool,
    /// Rounding between the two.
    pub rounding: Rounding,
    /// With it, `q_out` is FP8: the values times 1 / scale, in the cache's format.
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
#[non_exhaustive]
pub struct Key {
    /// The length of `slot_mapping`, at most the tokens of the call; those past it (data-parallel padding) are not inserted.
    pub slot_count: usize,
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
    pub const fn new(heads: usize, padded_heads: usize) -> Self {
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

    setters! {
        /// RMSNorm of each head, or not.
        norm: bool,
        /// RoPE of each head, or not.
        rope: bool,
        /// Rounding between norm and RoPE.
        rounding: Rounding,
        /// FP8 queries with this scale.
        scale: Option<f32>,
        /// Where the rows of `q` lie.
        strides: Option<Strides>,
    }
}

impl Key {
    /// RoPE, quantization and insertion of the first `slot_count` tokens.
    pub const fn new(slot_count: usize, cache: CacheLayout) -> Self {
        Self {
            slot_count,
            slot_type: Index::I64,
            norm: None,
            quant_from: QuantFrom::Rounded,
            cache,
            scale: None,
            row_stride: None,
        }
    }

    setters! {
        /// The length of `slot_mapping`.
        slot_count: usize,
        /// The type of `slot_mapping`.
        slot_type: Index,
        /// RMSNorm before RoPE, and the rounding after it.
        norm: Option<Rounding>,
        /// Which values are quantized.
        quant_from: QuantFrom,
        /// The cache.
        cache: CacheLayout,
        /// The scale of a cache of FP8 rows.
        scale: Option<f32>,
        /// Distance between rows of `kv` in values.
        row_stride: Option<usize>,
    }
}

impl Spec {
    /// A call of bf16 tensors, with `eps` 1e-6 and positions in i64, that does nothing yet.
    pub const fn new(tokens: usize, table: RotaryTable) -> Self {
        Self {
            tokens,
            dtype: Float16::Bf16,
            eps: 1e-6,
            position_type: Index::I64,
            table,
            query: None,
            key: None,
        }
    }

    setters! {
        /// Tokens of the call.
        tokens: usize,
        /// The type of `q`, `kv` and the norm weight.
        dtype: Float16,
        /// Added to the mean square in every norm.
        eps: f32,
        /// The type of `positions`.
        position_type: Index,
        /// The rotary table.
        table: RotaryTable,
        /// What is done to the queries.
        query: Option<Query>,
        /// What is done to the keys.
        key: Option<Key>,
    }

    /// Checks the fields, by themselves and beside each other.
    ///
    /// # Errors
    /// The first field that is invalid, by itself or beside the others.
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
        let sizes = Tensors::sizes(&self).ok_or_else(|| {
            Invalid::new("the problem", "too large", "of tensors whose bytes can be counted")
        })?;
        Ok(Problem::new(self, sizes))
    }

    /// The FP8 format of the call: the cache's.
    pub fn fp8(&self) -> Option<Fp8> {
        self.key.and_then(|key| key.cache.format.fp8())
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
            if !rows_fp8 {
                let must = "absent unless cache_format is rows_fp8";
                return Err(Invalid::unexpected("q_scale", scale, must));
            }
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
            self.slot_count <= spec.tokens,
            "the length of slot_mapping",
            self.slot_count,
            format_args!("at most the {} tokens", spec.tokens),
        )?;
        require(spec.tokens <= MAX_ROWS, "the row count of kv", spec.tokens, "less than 2^31")?;
        let format = self.cache.format;
        format.check_scale(self.scale)?;
        require(
            self.quant_from == QuantFrom::Rounded || format.quant_block().is_some(),
            "kv_quant_from",
            self.quant_from,
            format_args!("absent with cache_format {}", format.name()),
        )?;
        check_stride("the row stride of kv", self.row_stride.unwrap_or(HEAD_DIM))
    }
}
