use crate::{check, tensors};
use burn::tensor::{DType, Device, Int, Tensor};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{CacheLayout, Float16};

/// The paged cache as a tensor, with how it is laid out.
///
/// A clone keeps its contents: an operator that updates a cache of which a clone is held copies it first.
///
/// ```
/// use mla_prologue_burn::{KvCache, device};
/// use mla_prologue_operator::{CacheFormat, CacheLayout};
/// let layout = CacheLayout::new(CacheFormat::default(), 64, 8).align_stride(576);
/// let cache = KvCache::zeros(layout, &device("cpu")?)?;
/// assert_eq!(cache.tensor.dims(), [8, 37440]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KvCache {
    /// `[num_blocks, block_stride]` u8.
    pub tensor: Tensor<2, Int>,
    /// Format and blocks.
    pub layout: CacheLayout,
    /// The 16-bit type of the keys, and of the cache's 16-bit values.
    pub dtype: Float16,
    /// The scale of the whole tensor in a cache of FP8 rows.
    pub scale: Option<f32>,
}

impl KvCache {
    /// An empty cache for keys in bf16.
    ///
    /// # Errors
    /// An invalid layout.
    pub fn zeros(layout: CacheLayout, device: &Device) -> Result<Self> {
        layout.validate()?;
        let shape = [layout.num_blocks, layout.block_stride];
        let tensor = Tensor::zeros(shape, (device, DType::U8));
        Ok(Self { tensor, layout, dtype: Float16::Bf16, scale: None })
    }

    /// A cache for keys in bf16 whose blocks a tensor holds: `[num_blocks, block_stride]` u8.
    ///
    /// # Errors
    /// An invalid layout, or a tensor of another shape or type.
    pub fn from_tensor(tensor: Tensor<2, Int>, layout: CacheLayout) -> Result<Self> {
        layout.validate()?;
        let cache = Self { tensor, layout, dtype: Float16::Bf16, scale: None };
        cache.check().map(|()| cache)
    }

    /// The same for keys of another 16-bit type.
    #[must_use]
    pub fn dtype(self, dtype: Float16) -> Self {
        Self { dtype, ..self }
    }

    /// The same with a scale of the whole tensor, which a cache of FP8 rows has.
    #[must_use]
    pub fn scale(self, scale: impl Into<Option<f32>>) -> Self {
        Self { scale: scale.into(), ..self }
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.tensor.device()
    }

    /// The tensor is one that the operators take.
    pub(crate) fn check(&self) -> Result<()> {
        let CacheLayout { num_blocks, block_stride, .. } = self.layout;
        check::backend("kv_cache", &self.tensor)?;
        check::dtype("kv_cache", &self.tensor, &[DType::U8])?;
        check::shape("kv_cache", &self.tensor, [num_blocks, block_stride])
    }

    /// Burn's name of its 16-bit type.
    pub(crate) fn burn_dtype(&self) -> DType {
        tensors::dtype(self.dtype)
    }
}
