use super::{
    AttentionConfig, StepMetadata,
    product::{batched, project},
};
use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig, RmsNorm, RmsNormConfig},
    store::{
        FloatCastAdapter, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore,
    },
    tensor::{DType, Device, Tensor},
};
use mla_prologue_burn::{Attend, KvCache, widen};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{HEAD_DIM, Invalid};
use std::path::Path;

/// A sliding-window attention layer of DeepSeek-V4, or one tensor-parallel rank's share of it.
///
/// ```text
/// q  = rope(headnorm(q_b(rmsnorm(q_a(x)))))     the prologue: also pads the heads
/// kv = rope(rmsnorm(kv(x)))                     the prologue: also quantizes and inserts
/// o  = attention over the paged cache, with sinks; the rotation of the token's position undone
/// y  = o_b(concat over groups of o_a(o of the group's heads))
/// ```
///
/// Projections are computed in f32; queries, keys and the output of attention are in 16 bits, its sums in f32.
#[derive(Module, Debug)]
pub struct DeepSeekV4Attention {
    /// `[hidden, q_lora]`.
    pub q_a_proj: Linear,
    /// `[q_lora]`.
    pub q_a_norm: RmsNorm,
    /// `[q_lora, heads * 512]`.
    pub q_b_proj: Linear,
    /// `[hidden, 512]`.
    pub kv_proj: Linear,
    /// `[512]`.
    pub kv_norm: RmsNorm,
    /// `[heads]`: the logit of each head's sink.
    pub sinks: Param<Tensor<1>>,
    /// `[heads / o_groups * 512, o_groups * o_lora]`: the columns of each group side by side.
    pub o_a_proj: Linear,
    /// `[o_groups * o_lora, hidden]`.
    pub o_b_proj: Linear,
    #[module(skip)]
    config: AttentionConfig,
}

impl DeepSeekV4Attention {
    /// A layer with random weights.
    ///
    /// # Errors
    /// An invalid configuration.
    pub fn new(config: AttentionConfig, device: &Device) -> Result<Self> {
        config.validate()?;
        let preset = config.preset;
        let (heads, groups) = (preset.heads, preset.o_groups);
        let linear = |input, output| LinearConfig::new(input, output).with_bias(false).init(device);
        let norm = |width| {
            RmsNormConfig::new(width)
                .with_epsilon(f64::from(config.eps).max(f64::MIN_POSITIVE))
                .init(device)
        };
        Ok(Self {
            q_a_proj: linear(preset.hidden, preset.q_lora_rank),
            q_a_norm: norm(preset.q_lora_rank),
            q_b_proj: linear(preset.q_lora_rank, heads * HEAD_DIM),
            kv_proj: linear(preset.hidden, HEAD_DIM),
            kv_norm: norm(HEAD_DIM),
            sinks: Param::from_tensor(Tensor::zeros([heads], device)),
            o_a_proj: linear(heads / groups * HEAD_DIM, groups * preset.o_lora_rank),
            o_b_proj: linear(groups * preset.o_lora_rank, preset.hidden),
            config,
        })
    }

    /// A layer with the weights of a safetensors file, converted to f32, under the names of the published checkpoints after
    /// `prefix`: `q_a_proj.weight` `[q_lora, hidden]` and so on, rows being outputs, and `sinks`.
    ///
    /// # Errors
    /// An invalid configuration, or a file that cannot be read or lacks a tensor of the right shape.
    pub fn load(
        config: AttentionConfig,
        file: &Path,
        prefix: &str,
        device: &Device,
    ) -> Result<Self> {
        let mut layer = Self::new(config, device)?;
        let start = format!("^{}", prefix.replace('.', "\\."));
        let mut store = SafetensorsStore::from_file(file)
            .with_key_remapping(&start, "")
            .with_from_adapter(PyTorchToBurnAdapter.chain(FloatCastAdapter::to(DType::F32)))
            .allow_partial(true)
            .validate(false);
        let unreadable = |why: String| {
            Invalid::new("the weights", file.display(), format_args!("readable: {why}"))
        };
        let loaded = layer.load_from(&mut store).map_err(|error| unreadable(error.to_string()))?;
        if let Some(error) = loaded.errors.first() {
            return Err(unreadable(error.to_string()).into());
        }
        if let Some((path, _)) = loaded.missing.first() {
            // Burn's name of a norm's weight.
            let path = path.replace("gamma", "weight");
            let must = "in the file, of the configured shape";
            return Err(Invalid::new(format_args!("{prefix}{path}"), "absent", must).into());
        }
        Ok(layer)
    }

    /// The configuration; of a share, that of the rank.
    pub fn config(&self) -> &AttentionConfig {
        &self.config
    }

    /// The share of one rank of `world_size`, on a device: some heads and output groups. The outputs of all
    /// ranks add up to the layer's.
    ///
    /// # Errors
    /// A world size that does not divide heads and groups, or a rank outside of it.
    pub fn shard(&self, world_size: usize, rank: usize, device: &Device) -> Result<Self> {
        let config = self.config.rank(world_size)?;
        if rank >= world_size {
            let must = format_args!("below the world size {world_size}");
            return Err(Invalid::new("the rank", rank, must).into());
        }
        let part = |size: usize| size / world_size * rank..size / world_size * (rank + 1);
        let columns = |linear: &Linear| share(linear, 1, part(linear.weight.dims()[1]));
        let rows = |linear: &Linear| share(linear, 0, part(linear.weight.dims()[0]));
        let sinks = self.sinks.val().slice(part(self.config.preset.heads));
        let share = Self {
            q_b_proj: columns(&self.q_b_proj),
            sinks: Param::from_tensor(sinks),
            o_a_proj: columns(&self.o_a_proj),
            o_b_proj: rows(&self.o_b_proj),
            config,
            ..self.clone()
        };
        Ok(share.fork(device))
    }

    /// `x` `[tokens, hidden]` to the same shape; the tokens' keys are inserted into the cache.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device.
    pub fn forward(
        &self,
        x: Tensor<2>,
        step: &StepMetadata,
        kv_cache: &mut KvCache,
    ) -> Result<Tensor<2>> {
        self.forward_with(x, step, kv_cache, true)
    }

    /// [`forward`](Self::forward) without a check of positions and slots, which never waits for the device: for a
    /// captured graph. What that means for wrong ones is said at [`Prologue::unchecked`](mla_prologue_burn::Prologue::unchecked).
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward) but for the indices.
    pub fn forward_unchecked(
        &self,
        x: Tensor<2>,
        step: &StepMetadata,
        kv_cache: &mut KvCache,
    ) -> Result<Tensor<2>> {
        self.forward_with(x, step, kv_cache, false)
    }

    fn forward_with(
        &self,
        x: Tensor<2>,
        step: &StepMetadata,
        kv_cache: &mut KvCache,
        checked: bool,
    ) -> Result<Tensor<2>> {
        let config = &self.config;
        let heads = config.preset.heads;
        let [tokens, hidden] = x.dims();
        if hidden != config.preset.hidden {
            let must = format_args!("the hidden size {}", config.preset.hidden);
            return Err(Invalid::new("the width of x", hidden, must).into());
        }
        if tokens == 0 {
            return Ok(x);
        }
        let q = self.q_a_norm.forward(project(x.clone(), self.q_a_proj.weight.val()));
        let q = project(q, self.q_b_proj.weight.val()).reshape([tokens, heads, HEAD_DIM]);
        let kv = project(x, self.kv_proj.weight.val());
        let mut prologue = config.prologue(self.kv_norm.gamma.val())?;
        prologue.checked = checked;
        let q = prologue.run(q, kv, &step.tokens, kv_cache)?;

        // The heads that the prologue padded for another attention kernel are not read.
        let mut attend = Attend::new(heads);
        attend.checked = checked;
        let o = attend.run(q, kv_cache, &step.window(config.window, self.sinks.val()))?;
        Ok(self.project_out(widen(o)?))
    }

    /// The output projection: of each group of heads, then of all groups.
    fn project_out(&self, o: Tensor<3>) -> Tensor<2> {
        let groups = self.config.preset.o_groups;
        let [tokens, heads, _] = o.dims();
        let width = heads / groups * HEAD_DIM;
        let o = o.reshape([tokens, groups, width]).swap_dims(0, 1);
        let weight = self.o_a_proj.weight.val();
        let rank = self.config.preset.o_lora_rank;
        let weight = weight.reshape([width, groups, rank]).swap_dims(0, 1);
        let o = batched(o, weight).swap_dims(0, 1).reshape([tokens, groups * rank]);
        project(o, self.o_b_proj.weight.val())
    }
}

/// Some rows or columns of a projection.
fn share(linear: &Linear, dim: usize, part: std::ops::Range<usize>) -> Linear {
    let weight = linear.weight.val().slice_dim(dim, part);
    Linear { weight: Param::from_tensor(weight), bias: None }
}
