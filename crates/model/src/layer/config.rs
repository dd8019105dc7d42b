use crate::{AttentionBackend, Plan, Preset, Prologue, Reader};
use burn::tensor::{DType, Device, Int, Tensor};
use mla_prologue_operator::{CacheFormat, CacheLayout, Fp8, Half, Invalid, Key, Result, Rounding};

/// The sizes of a sliding-window layer and what surrounds it.
///
/// ```
/// use mla_prologue_model::{AttentionBackend, AttentionConfig, Preset};
/// let config = AttentionConfig::new(Preset::V4_FLASH, AttentionBackend::FlashMla, 64, 32)?;
/// assert_eq!((config.window, config.cache.slots()), (128, 64 * 32));
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Heads, widths and groups.
    pub shape: Preset,
    /// Tokens that a token sees, itself included.
    pub window: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// The attention kernel that the queries are padded for.
    pub backend: AttentionBackend,
    /// The cache of the layer.
    pub cache: CacheLayout,
    /// The type of the queries and keys that enter attention.
    pub half: Half,
    /// The cache's 8-bit format need not be the device's own.
    pub any_fp8: bool,
}

impl AttentionConfig {
    /// A layer of the model with a `fp8_ds_mla` cache of `num_blocks` blocks of `block_size` tokens.
    ///
    /// # Errors
    /// More heads than the backend takes, or a cache that makes no sense.
    pub fn new(
        shape: Preset,
        backend: AttentionBackend,
        block_size: usize,
        num_blocks: usize,
    ) -> Result<Self> {
        let cache = Plan::new(shape, 1, backend)?.cache(block_size, num_blocks)?;
        Ok(Self { shape, window: 128, eps: 1e-6, backend, cache, half: Half::Bf16, any_fp8: false })
    }

    /// The same with a cache of 16-bit rows.
    pub fn with_rows_16bit(self) -> Self {
        let format = CacheFormat::Rows16Bit;
        let exact = CacheLayout::min_stride(format, self.cache.block_size).unwrap_or(usize::MAX);
        Self { cache: CacheLayout { format, block_stride: exact, ..self.cache }, ..self }
    }

    /// The same with the 8-bit format of a device's own instructions in the cache, where it has one and the cache too.
    ///
    /// # Errors
    /// A device that is not of CubeCL's backend.
    pub fn with_fp8_of(self, device: &Device) -> mla_prologue_kernel::Result<Self> {
        let own = crate::op::kernel_device(device)?.own_fp8();
        let own = own.map(|own| Self { any_fp8: false, ..self.with_fp8(own) });
        Ok(own.unwrap_or(self))
    }

    /// The same with this 8-bit format in the cache, if it holds one, whatever the device's own is.
    pub fn with_fp8(self, fp8: Fp8) -> Self {
        let format = self.cache.format.with_fp8(fp8);
        Self { cache: CacheLayout { format, ..self.cache }, any_fp8: true, ..self }
    }

    /// The same with another attention kernel, on ranks that share the heads.
    ///
    /// # Errors
    /// A world size that does not divide heads and groups, or more heads of a rank than the backend takes.
    pub fn padded_for(self, backend: AttentionBackend, world_size: usize) -> Result<Self> {
        Plan::new(self.shape, world_size, backend)?;
        let block_stride = match self.cache.format {
            CacheFormat::Fp8DsMla { .. } => backend.block_stride(self.cache.block_stride),
            _ => self.cache.block_stride,
        };
        Ok(Self { backend, cache: CacheLayout { block_stride, ..self.cache }, ..self })
    }

    /// An empty cache.
    ///
    /// # Errors
    /// A cache that makes no sense.
    pub fn empty_cache(&self, device: &Device) -> Result<Tensor<2, Int>> {
        self.cache.validate()?;
        let shape = [self.cache.num_blocks, self.cache.block_stride];
        Ok(Tensor::zeros(shape, (device, DType::U8)))
    }

    /// What one of `world_size` ranks holds.
    ///
    /// # Errors
    /// A world size that does not divide heads and groups, or more heads than the backend takes.
    pub fn rank(&self, world_size: usize) -> Result<Self> {
        Plan::new(self.shape, world_size, self.backend)?;
        let shape = Preset {
            heads: self.shape.heads / world_size,
            o_groups: self.shape.o_groups / world_size,
            ..self.shape
        };
        Ok(Self { shape, ..*self })
    }

    /// The prologue of the layer: the keys' norm is part of it.
    ///
    /// # Errors
    /// More heads than the backend takes.
    pub(super) fn prologue(&self, kv_norm_weight: Tensor<1>) -> Result<Prologue> {
        let heads = self.shape.heads;
        let padded = self.backend.padded_query_heads(heads)?;
        let prologue = Prologue::new(heads, padded, self.cache);
        let key = Key { norm: Some(Rounding::None), ..prologue.key };
        let kv_norm_weight = Some(kv_norm_weight);
        let Self { half, eps, any_fp8, .. } = *self;
        Ok(Prologue { half, eps, key, kv_norm_weight, any_fp8, ..prologue })
    }

    /// The way back from the cache.
    pub(super) fn reader(&self) -> Reader {
        Reader { half: self.half, ..Reader::new(self.cache) }
    }

    /// # Errors
    /// Sizes of which one is zero, groups that do not divide the heads, or a window larger than the cache.
    pub(super) fn validate(&self) -> Result<()> {
        let Preset { heads, hidden, q_lora_rank, o_groups, o_lora_rank, .. } = self.shape;
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
        let slots = self.cache.slots();
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
