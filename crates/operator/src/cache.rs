use crate::{Fp8, HEAD_DIM, Invalid, NOPE_DIM, ROPE_DIM, Result, error::require, names::named};
use std::ops::Range;

named! {
    /// What happens to the eighth scale byte of a token in the `fp8_ds_mla` cache.
    pub enum PadScaleByte {
        /// It is written as zero (vLLM).
        #[default]
        Zero = "zero",
        /// It is left as it was (SGLang).
        Keep = "keep",
    }
}

/// How a token is stored in the cache. The 8-bit format is part of it, so that two caches of different
/// formats are two different types of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheFormat {
    /// `fp8_ds_mla`, 584 bytes a token: 448 values in FP8 with a scale for each 64, 64 values after
    /// RoPE in 16 bits.
    Fp8DsMla {
        /// The format of the 448 values.
        fp8: Fp8,
        /// The eighth scale byte.
        pad_scale_byte: PadScaleByte,
    },
    /// `mxfp8_528`, 528 bytes a token: all 512 values in FP8 with a scale for each 32.
    Mxfp8 {
        /// The format of the 512 values.
        fp8: Fp8,
    },
    /// `rows_16bit`, 1024 bytes a token: 512 values in the 16-bit type of the key.
    Rows16Bit,
    /// `rows_fp8`, 512 bytes a token: 512 values in FP8 with one scale for the whole tensor.
    RowsFp8 {
        /// The format of the 512 values.
        fp8: Fp8,
    },
}

impl Default for CacheFormat {
    fn default() -> Self {
        Self::Fp8DsMla { fp8: Fp8::default(), pad_scale_byte: PadScaleByte::default() }
    }
}

impl CacheFormat {
    /// How many formats there are.
    pub const COUNT: usize = 4;

    /// Every format, the default first, with these choices where it has them.
    pub const fn all(fp8: Fp8, pad_scale_byte: PadScaleByte) -> [Self; Self::COUNT] {
        [
            Self::Fp8DsMla { fp8, pad_scale_byte },
            Self::Mxfp8 { fp8 },
            Self::Rows16Bit,
            Self::RowsFp8 { fp8 },
        ]
    }

    /// The format's name in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp8DsMla { .. } => "fp8_ds_mla",
            Self::Mxfp8 { .. } => "mxfp8_528",
            Self::Rows16Bit => "rows_16bit",
            Self::RowsFp8 { .. } => "rows_fp8",
        }
    }

    /// The 8-bit format of its quantized values, where it has some.
    pub const fn fp8(self) -> Option<Fp8> {
        match self {
            Self::Fp8DsMla { fp8, .. } | Self::Mxfp8 { fp8 } | Self::RowsFp8 { fp8 } => Some(fp8),
            Self::Rows16Bit => None,
        }
    }

    /// The same with another 8-bit format, where it has one.
    pub const fn with_fp8(self, fp8: Fp8) -> Self {
        match self {
            Self::Fp8DsMla { pad_scale_byte, .. } => Self::Fp8DsMla { fp8, pad_scale_byte },
            Self::Mxfp8 { .. } => Self::Mxfp8 { fp8 },
            Self::RowsFp8 { .. } => Self::RowsFp8 { fp8 },
            Self::Rows16Bit => Self::Rows16Bit,
        }
    }

    /// Bytes of a token in the data region of its block.
    pub const fn data_bytes(self) -> usize {
        match self {
            Self::Fp8DsMla { .. } => NOPE_DIM + 2 * ROPE_DIM,
            Self::Mxfp8 { .. } | Self::RowsFp8 { .. } => HEAD_DIM,
            Self::Rows16Bit => 2 * HEAD_DIM,
        }
    }

    /// Bytes of a token in the scale region, which follows the data region of the block.
    pub const fn scale_bytes(self) -> usize {
        match self {
            Self::Fp8DsMla { .. } => 8,
            Self::Mxfp8 { .. } => 16,
            Self::Rows16Bit | Self::RowsFp8 { .. } => 0,
        }
    }

    /// Bytes of a token, its scales included.
    pub const fn token_bytes(self) -> usize {
        self.data_bytes() + self.scale_bytes()
    }

    /// Values that share a UE8M0 scale, where there are such scales.
    pub const fn quant_block(self) -> Option<usize> {
        match self {
            Self::Fp8DsMla { .. } => Some(64),
            Self::Mxfp8 { .. } => Some(32),
            Self::Rows16Bit | Self::RowsFp8 { .. } => None,
        }
    }

    /// Has a cache of this format one scale for the whole tensor?
    pub const fn has_tensor_scale(self) -> bool {
        match self {
            Self::RowsFp8 { .. } => true,
            Self::Fp8DsMla { .. } | Self::Mxfp8 { .. } | Self::Rows16Bit => false,
        }
    }

    /// Values of a token that have UE8M0 scales.
    pub const fn scaled_values(self) -> usize {
        match self {
            Self::Fp8DsMla { .. } => NOPE_DIM,
            Self::Mxfp8 { .. } => HEAD_DIM,
            Self::Rows16Bit | Self::RowsFp8 { .. } => 0,
        }
    }

    /// A block's stride in bytes must be a multiple of this.
    pub const fn stride_unit(self) -> usize {
        match self {
            Self::Fp8DsMla { .. } => 8,
            Self::Mxfp8 { .. } | Self::Rows16Bit | Self::RowsFp8 { .. } => 16,
        }
    }

    /// Checks the scale of the whole tensor: a cache of FP8 rows has one, and no other has.
    pub(crate) fn check_scale(self, scale: Option<f32>) -> Result<()> {
        match (self, scale) {
            (Self::RowsFp8 { .. }, Some(scale)) => check_scale("kv_scale", scale),
            (Self::RowsFp8 { .. }, None) => {
                Err(Invalid::missing("kv_scale", "given with cache_format rows_fp8"))
            }
            (_, Some(scale)) => {
                let name = self.name();
                let must = format!("absent with cache_format {name}: only rows_fp8 has one");
                Err(Invalid::unexpected("kv_scale", scale, must))
            }
            (_, None) => Ok(()),
        }
    }
}

/// What the scale of FP8 rows must be.
pub const SCALE_RANGE: &str = "a finite f32 above 0 whose reciprocal is a normal f32";

/// A scale and its reciprocal, which the values are multiplied by, must both be usable in f32.
pub(crate) fn check_scale(name: &str, scale: f32) -> Result<()> {
    let inverse = 1.0 / scale;
    require(scale > 0.0 && scale.is_finite() && inverse.is_normal(), name, scale, SCALE_RANGE)
}

/// The paged cache `[num_blocks, block_stride]` of bytes. Slot `s` is token `s % block_size` of block
/// `s / block_size`; a block holds the data of all its tokens, then their scales, then padding that
/// is never touched.
///
/// ```
/// # use mla_prologue_operator::{CacheFormat, CacheLayout};
/// let cache = CacheLayout::new(CacheFormat::default(), 64, 2).align_stride(576);
/// assert_eq!(cache.block_stride, 37440);
/// assert_eq!(cache.data(65), 37440 + 576..37440 + 2 * 576);
/// assert_eq!(cache.scales(65), 37440 + 64 * 576 + 8..37440 + 64 * 576 + 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheLayout {
    /// How a token is stored.
    pub format: CacheFormat,
    /// Tokens of a block, 1 or more.
    pub block_size: usize,
    /// Bytes from one block to the next; engines round it up or make it megabytes.
    pub block_stride: usize,
    /// Blocks of the cache.
    pub num_blocks: usize,
}

impl CacheLayout {
    /// Blocks that lie one after the other, as near as the format allows.
    pub const fn new(format: CacheFormat, block_size: usize, num_blocks: usize) -> Self {
        // One that cannot be counted is refused by `validate`.
        let exact = block_size.saturating_mul(format.token_bytes());
        Self { format, block_size, block_stride: exact, num_blocks }
            .align_stride(format.stride_unit())
    }

    /// The same with the stride of a block rounded up to a multiple of so many bytes: FlashMLA wants 576.
    #[must_use]
    pub const fn align_stride(self, bytes: usize) -> Self {
        let aligned = self.block_stride.checked_next_multiple_of(bytes);
        let block_stride = match aligned {
            Some(aligned) => aligned,
            None => usize::MAX,
        };
        Self { block_stride, ..self }
    }

    /// The same with that many bytes from a block to the next.
    #[must_use]
    pub const fn with_stride(self, block_stride: usize) -> Self {
        Self { block_stride, ..self }
    }

    /// Slots of the whole cache.
    pub const fn capacity(&self) -> usize {
        self.num_blocks * self.block_size
    }

    /// The slot of that number, where the cache has it.
    pub(crate) fn slot(&self, number: i64) -> Option<usize> {
        usize::try_from(number).ok().filter(|slot| *slot < self.capacity())
    }

    /// Bytes of the whole cache.
    pub const fn bytes(&self) -> usize {
        self.num_blocks * self.block_stride
    }

    /// Where the data of a slot lies, in bytes from the start of the cache.
    pub const fn data(&self, slot: usize) -> Range<usize> {
        let bytes = self.format.data_bytes();
        let start = slot / self.block_size * self.block_stride + slot % self.block_size * bytes;
        start..start + bytes
    }

    /// Where the UE8M0 scales of a slot lie.
    pub const fn scales(&self, slot: usize) -> Range<usize> {
        let bytes = self.format.scale_bytes();
        let start = slot / self.block_size * self.block_stride
            + self.block_size * self.format.data_bytes()
            + slot % self.block_size * bytes;
        start..start + bytes
    }

    /// Checks the layout; the other functions are for those that pass.
    ///
    /// # Errors
    /// A block of no tokens, a stride that is too small or no multiple of the format's unit, or a
    /// cache too large to be counted.
    pub fn validate(&self) -> Result<()> {
        self.validate_as("")
    }

    /// The same, of the cache whose arguments have this prefix.
    pub(crate) fn validate_as(&self, prefix: &str) -> Result<()> {
        let name = self.format.name();
        require(
            self.block_size > 0,
            format_args!("{prefix}block_size"),
            self.block_size,
            "1 or more",
        )?;
        let unit = self.format.stride_unit();
        let too_big = || {
            Invalid::new(format_args!("{prefix}block_size"), self.block_size, "at most 2^32 tokens")
        };
        let least = self.block_size.checked_mul(self.format.token_bytes()).ok_or_else(too_big)?;
        require(
            self.block_stride >= least && self.block_stride.is_multiple_of(unit),
            format_args!("the block stride of {prefix}kv_cache"),
            self.block_stride,
            format_args!(
                "a multiple of {unit} and at least {least} bytes, for {} tokens in {name}",
                self.block_size
            ),
        )?;
        require(
            self.block_stride / 8 < u32::MAX as usize,
            format_args!("the block stride of {prefix}kv_cache"),
            self.block_stride,
            "below 32 GiB",
        )?;
        let countable = self.num_blocks.checked_mul(self.block_stride).is_some()
            && self.num_blocks.checked_mul(self.block_size).is_some_and(|n| n < u32::MAX as usize);
        require(
            countable,
            format_args!("{prefix}kv_cache"),
            format_args!("{} blocks of {} slots", self.num_blocks, self.block_size),
            "less than 2^32 - 1 slots",
        )
    }
}
