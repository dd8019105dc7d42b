use crate::{AttentionBackend, Plan, Preset};
use burn::tensor::{Device, Tensor};
use mla_prologue_burn::{KeyNorm, KvCache, Prologue, kernel_device};
use mla_prologue_operator::{CacheFormat, CacheLayout, Float16, Fp8, Invalid, Result, Rounding};

/// The sizes of a sliding-window layer and what surrounds it.
///
/// ```
/// use mla_prologue_model::{AttentionBackend, AttentionConfig, Preset};
/// let config = AttentionConfig::new(Preset::V4_FLASH, AttentionBackend::FlashMla, 64, 32)?;
/// assert_eq!((config.window, config.cache.capacity()), (128, 64 * 32));
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Heads, widths and groups.
    pub preset: Preset,
    /// Tokens that a token sees, itself included.
    pub window: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// The attention kernel that the queries are padded for.
    pub backend: AttentionBackend,
    /// The cache of the layer.
    pub cache: CacheLayout,
    /// The type of the queries and keys that enter attention.
    pub dtype: Float16,
    /// The cache's FP8 format need not be the device's native one.
    pub any_fp8: bool,
}

impl AttentionConfig {
    /// A layer of the model with a `fp8_ds_mla` cache of `num_blocks` blocks of `block_size` tokens.
    ///
    /// # Errors
    /// More heads than the backend takes, or an invalid cache.
    pub fn new(
        preset: Preset,
        backend: AttentionBackend,
        block_size: usize,
        num_blocks: usize,
    ) -> Result<Self> {
        let cache = Plan::new(preset, 1, backend)?.cache(block_size, num_blocks)?;
        Ok(Self {
            preset,
            window: 128,
            eps: 1e-6,
            backend,
            cache,
            dtype: Float16::Bf16,
            any_fp8: false,
        })
    }

    /// The same with a cache of 16-bit rows.
    pub fn with_rows_16bit(self) -> Self {
        let format = CacheFormat::Rows16Bit;
        let CacheLayout { block_size, num_blocks, .. } = self.cache;
        Self { cache: CacheLayout::new(format, block_size, num_blocks), ..self }
    }

    /// The same with the device's native FP8 format in the cache, where both have one.
    ///
    /// # Errors
    /// A device that is not of CubeCL's backend.
    pub fn with_fp8_of(self, device: &Device) -> mla_prologue_kernel::Result<Self> {
        let native = kernel_device(device)?.native_fp8();
        let native = native.map(|native| Self { any_fp8: false, ..self.with_fp8(native) });
        Ok(native.unwrap_or(self))
    }

    /// The same with this FP8 format in the cache, if it holds one, whatever the device's native one is.
    pub fn with_fp8(self, fp8: Fp8) -> Self {
        let format = self.cache.format.with_fp8(fp8);
        Self { cache: CacheLayout { format, ..self.cache }, any_fp8: true, ..self }
    }

    /// The same with another attention kernel, on ranks that share the heads.
    ///
    /// # Errors
    /// A world size that does not divide heads and groups, or more heads of a rank than the backend takes.
    pub fn padded_for(self, backend: AttentionBackend, world_size: usize) -> Result<Self> {
        Plan::new(self.preset, world_size, backend)?;
        let cache = match self.cache.format {
            CacheFormat::Fp8DsMla { .. } => self.cache.align_stride(backend.block_alignment()),
            _ => self.cache,
        };
        Ok(Self { backend, cache, ..self })
    }

    /// An empty cache.
    ///
    /// # Errors
    /// An invalid layout.
    pub fn empty_cache(&self, device: &Device) -> mla_prologue_kernel::Result<KvCache> {
        Ok(KvCache::zeros(self.cache, device)?.dtype(self.dtype))
    }

    /// What one of `world_size` ranks holds.
    ///
    /// # Errors
    /// A world size that does not divide heads and groups, or more heads than the backend takes.
    pub fn rank(&self, world_size: usize) -> Result<Self> {
        Plan::new(self.preset, world_size, self.backend)?;
        let preset = Preset {
            heads: self.preset.heads / world_size,
            o_groups: self.preset.o_groups / world_size,
            ..self.preset
        };
        Ok(Self { preset, ..*self })
    }

    /// The prologue of the layer: the keys' norm is part of it.
    ///
    /// # Errors
    /// More heads than the backend takes.
    pub(super) fn prologue(&self, weight: Tensor<1>) -> Result<Prologue> {
        let heads = self.preset.heads;
        let mut prologue = Prologue::new(heads, self.backend.padded_query_heads(heads)?);
        prologue.eps = self.eps;
        prologue.any_fp8 = self.any_fp8;
        prologue.key_norm = Some(KeyNorm { weight, rounding: Rounding::None });
        Ok(prologue)
    }

    /// # Errors
    /// Sizes of which one is zero, groups that do not divide the heads, or a window larger than the cache.
    pub(super) fn validate(&self) -> Result<()> {
        let Preset { heads, hidden, q_lora_rank, o_groups, o_lora_rank, .. } = self.preset;
        let sizes = [
            ("heads", heads),
            ("hidden", hidden),
            ("q_lora", q_lora_rank),
            ("o_groups", o_groups),
            ("o_lora", o_lora_rank),
            ("window", self.window),
        ];
        for (name, size) in sizes {
            if size == 0 {
                return Err(Invalid::new(name, size, "1 or more"));
            }
        }
        let slots = self.cache.capacity();
        if self.window > slots {
            let must = format_args!("at most the {slots} slots of the cache");
            return Err(Invalid::new("window", self.window, must));
        }
        if !heads.is_multiple_of(o_groups) {
            let must = format_args!("a divisor of the {heads} heads");
            return Err(Invalid::new("o_groups", o_groups, must));
        }
        self.cache.validate()
    }
}
