use super::{DeepSeekV4Attention, StepMetadata};
use burn::tensor::{Device, Tensor};
use mla_prologue_burn::KvCache;
use mla_prologue_kernel::Result;
use mla_prologue_operator::Invalid;

/// A layer divided among tensor-parallel ranks, each on a device of its own or sharing one, with their caches:
/// the keys are on every rank.
#[derive(Debug)]
pub struct TensorParallel {
    ranks: Vec<(DeepSeekV4Attention, KvCache, Device)>,
}

impl TensorParallel {
    /// One rank for each device; a device may be named more than once.
    ///
    /// # Errors
    /// No device, or a number of them that does not divide heads and output groups.
    pub fn new(layer: &DeepSeekV4Attention, devices: &[Device]) -> Result<Self> {
        let rank = |(rank, device): (usize, &Device)| {
            let share = layer.shard(devices.len(), rank, device)?;
            let kv_cache = share.config().empty_cache(device)?;
            Ok((share, kv_cache, device.clone()))
        };
        if devices.is_empty() {
            return Err(Invalid::new("the ranks", "none", "1 or more").into());
        }
        Ok(Self { ranks: devices.iter().enumerate().map(rank).collect::<Result<_>>()? })
    }

    /// The ranks' shares.
    pub fn ranks(&self) -> impl Iterator<Item = &DeepSeekV4Attention> {
        self.ranks.iter().map(|(share, ..)| share)
    }

    /// `x` `[tokens, hidden]` to the same shape, on the device of `x`.
    ///
    /// # Errors
    /// Those of [`DeepSeekV4Attention::forward`].
    pub fn forward(&mut self, x: Tensor<2>, step: &StepMetadata) -> Result<Tensor<2>> {
        let home = x.device();
        let mut sum = Tensor::zeros(x.dims(), (&home, x.dtype()));
        for (share, kv_cache, device) in &mut self.ranks {
            let (x, step) = (x.clone().to_device(device), step.to_device(device));
            let y = share.forward(x, &step, kv_cache)?;
            sum = sum + y.to_device(&home);
        }
        Ok(sum)
    }
}
