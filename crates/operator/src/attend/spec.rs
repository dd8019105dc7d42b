use super::{Entries, Extra, Problem, SlotList, Tensors};
use crate::{
    CacheLayout, Float16, HEAD_DIM, Index, Invalid, MAX_ROWS, Result, RotaryTable,
    error::require,
    tensors::{check_stride, setters},
};

/// What scores are multiplied by if nothing else is said: 1 / sqrt(512).
pub const SCALE: f32 = f32::from_bits(0x3D35_04F3);

/// The shapes and options of one call, as the caller states them. [`validate`](Self::validate) makes them a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// Tokens of the call; 0 is allowed.
    pub tokens: usize,
    /// Heads that attend, 1 or more: the first of `q`.
    pub heads: usize,
    /// Heads that `q` has, `heads` or more; the others are never read.
    pub q_heads: usize,
    /// Heads that `out` has, `heads` or more; the others are zero.
    pub padded_heads: usize,
    /// The type of `q` and `out`, and of the caches' 16-bit values.
    pub dtype: Float16,
    /// What scores are multiplied by; finite.
    pub scale: f32,
    /// From a token of `q` to the next, in values; `None`: one after the other.
    pub token_stride: Option<usize>,
    /// The cache.
    pub cache: CacheLayout,
    /// The scale of the whole tensor in caches of FP8 rows.
    pub kv_scale: Option<f32>,
    /// The entries of the cache that each token attends to.
    pub entries: Entries,
    /// A second cache and its entries, which come after the others.
    pub extra: Option<Extra>,
    /// Is there a sink for each head?
    pub sinks: bool,
    /// The type of `positions`.
    pub position_type: Index,
    /// With it, the rotation of the last 64 values of `out` by each token's position is undone.
    pub rotary: Option<RotaryTable>,
    /// Write `max` and `sum`, by which results over other entries can be merged.
    pub stats: bool,
}

impl Spec {
    /// `heads` heads of bf16 over a list of slots or a window of a cache, and nothing else.
    pub const fn new(tokens: usize, heads: usize, cache: CacheLayout, entries: Entries) -> Self {
        Self {
            tokens,
            heads,
            q_heads: heads,
            padded_heads: heads,
            dtype: Float16::Bf16,
            scale: SCALE,
            token_stride: None,
            cache,
            kv_scale: None,
            entries,
            extra: None,
            sinks: false,
            position_type: Index::I64,
            rotary: None,
            stats: false,
        }
    }

    setters! {
        /// Tokens of the call.
        tokens: usize,
        /// Heads that `q` has.
        q_heads: usize,
        /// Heads that `out` has.
        padded_heads: usize,
        /// The type of `q` and `out`.
        dtype: Float16,
        /// What scores are multiplied by.
        scale: f32,
        /// From a token of `q` to the next, in values.
        token_stride: Option<usize>,
        /// The cache.
        cache: CacheLayout,
        /// The scale of caches of FP8 rows.
        kv_scale: Option<f32>,
        /// The entries of the cache.
        entries: Entries,
        /// A second cache and its entries.
        extra: Option<Extra>,
        /// Is there a sink for each head?
        sinks: bool,
        /// The type of `positions`.
        position_type: Index,
        /// The rotation that is undone.
        rotary: Option<RotaryTable>,
        /// Write `max` and `sum`, or not.
        stats: bool,
    }

    /// From a token of `q` to the next, in values.
    pub const fn stride(&self) -> usize {
        match self.token_stride {
            Some(stride) => stride,
            None => self.q_heads.saturating_mul(HEAD_DIM),
        }
    }

    /// Entries of the first list of a token; those that are skipped count.
    pub const fn count(&self) -> usize {
        match &self.entries {
            Entries::Slots(slots) => slots.count,
            Entries::Window(window) => window.length,
        }
    }

    /// Entries of the second list.
    pub const fn extra_count(&self) -> usize {
        match &self.extra {
            Some(Extra { slots: SlotList { count, .. }, .. }) => *count,
            None => 0,
        }
    }

    /// Does the call have positions?
    pub const fn has_positions(&self) -> bool {
        self.rotary.is_some() || matches!(self.entries, Entries::Window(_))
    }

    /// # Errors
    /// The first field that is invalid, by itself or beside the others.
    pub fn validate(self) -> Result<Problem> {
        self.validate_heads()?;
        require(self.scale.is_finite(), "scale", self.scale, "a finite f32")?;
        self.cache.validate()?;
        self.cache.format.check_scale(self.kv_scale)?;
        match &self.entries {
            Entries::Slots(slots) => {
                slots.validate(self.tokens, &self.cache, ["slots", "kv_cache"])?;
            }
            Entries::Window(window) => window.validate(self.tokens, &self.cache)?,
        }
        if let Some(extra) = &self.extra {
            extra.cache.validate_as("extra_")?;
            let (is, must) = (extra.cache.format, self.cache.format);
            require(
                is == must,
                "the format of extra_kv_cache",
                is.name(),
                format_args!("that of kv_cache, {}", must.name()),
            )?;
            let names = ["extra_slots", "extra_kv_cache"];
            extra.slots.validate(self.tokens, &extra.cache, names)?;
        }
        let rows = self.rotary.map_or(0, |rotary| rotary.rows);
        require(
            rows < u32::MAX as usize,
            "the row count of cos_sin_cache",
            rows,
            "below 2^32 - 1",
        )?;
        let sizes = Tensors::sizes(&self).ok_or_else(|| {
            Invalid::new("the problem", "too large", "of tensors whose bytes can be counted")
        })?;
        Ok(Problem::new(self, sizes))
    }

    fn validate_heads(&self) -> Result<()> {
        require(self.heads > 0, "heads", 0, "1 or more")?;
        require(
            self.q_heads >= self.heads,
            "the head count of q",
            self.q_heads,
            format_args!("at least the {} heads that attend", self.heads),
        )?;
        require(
            self.padded_heads >= self.heads,
            "padded_heads",
            self.padded_heads,
            format_args!("at least the {} heads that attend", self.heads),
        )?;
        let rows = self.padded_heads.checked_mul(self.tokens);
        require(
            rows.is_some_and(|rows| rows <= MAX_ROWS),
            "out",
            format_args!("{} tokens of {} heads", self.tokens, self.padded_heads),
            "less than 2^31 rows",
        )?;
        let stride = self.stride();
        check_stride("the token stride of q", stride)?;
        require(
            self.token_stride.is_none() || stride / HEAD_DIM >= self.q_heads,
            "the token stride of q",
            stride,
            format_args!("at least the {} heads of q, 512 values each", self.q_heads),
        )
    }
}
