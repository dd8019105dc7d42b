//! A whole attention layer on a file: what `mla-prologue layer` does.

mod file;

pub use file::{LayerFile, write_layer};

use crate::{Error, Result};
use burn::tensor::{Tensor, TensorData};
use mla_prologue_burn::device;
use mla_prologue_model::{
    AttentionBackend, AttentionConfig, BlockPool, DeepSeekV4Attention, StepMetadata, TensorParallel,
};
use mla_prologue_operator::{Fp8, Invalid, ROPE_DIM};

/// How a layer is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The devices that the ranks are dealt out to, in turn.
    pub devices: Vec<String>,
    /// Ranks of the tensor-parallel group.
    pub world_size: usize,
    /// The attention kernel that the heads are padded for.
    pub backend: AttentionBackend,
    /// What the cache holds.
    pub cache: Cache,
    /// Feed the second half of the tokens one by one.
    pub decode: bool,
}

/// What a layer's cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// `fp8_ds_mla` in the device's native FP8 format, OCP where it has none.
    NativeFp8,
    /// `fp8_ds_mla` in this format, whatever the device's native one is.
    Fp8(Fp8),
    /// Rows in bf16.
    Rows16Bit,
}

impl Cache {
    /// What it is called on the command line, the default first.
    pub const NAMES: &'static str = "fp8, e4m3fn, e4m3fnuz or bf16";

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fp8" => Some(Self::NativeFp8),
            "bf16" => Some(Self::Rows16Bit),
            other => Fp8::named(other).map(Self::Fp8),
        }
    }
}

/// Tokens of a block of the cache.
const BLOCK_SIZE: usize = 64;

/// Runs the layer on the file's input; returns its output `[tokens, hidden]`. `progress` is called with the number of
/// tokens done.
///
/// # Errors
/// Options or weights that cannot be used, or a device that fails.
pub fn run(file: &LayerFile, options: &Options, progress: impl Fn(usize)) -> Result<Vec<f32>> {
    let tokens = file.tokens();
    let blocks = tokens.div_ceil(BLOCK_SIZE).max(1);
    // The heads of a rank are what the backend pads, so the whole layer need not fit it.
    let config = AttentionConfig::new(file.preset, AttentionBackend::Any, BLOCK_SIZE, blocks)?;
    // A longer window than the sequence sees no more.
    let window = file.window.min(tokens.max(1));
    let config = AttentionConfig { window, eps: file.eps, ..config };
    let config = config.padded_for(options.backend, options.world_size)?;
    if options.devices.len() > options.world_size {
        let must = format_args!("at most the {} ranks", options.world_size);
        return Err(Invalid::new("the number of devices", options.devices.len(), must).into());
    }
    let names = options.devices.iter().cycle().take(options.world_size);
    let devices = names.map(|name| device(name)).collect::<Result<Vec<_>, _>>()?;
    let home = devices.first().ok_or_else(|| Invalid::new("the ranks", 0, "1 or more"))?;
    let config = match options.cache {
        Cache::NativeFp8 => config.with_fp8_of(home)?,
        Cache::Fp8(fp8) => config.with_fp8(fp8),
        Cache::Rows16Bit => config.with_rows_16bit(),
    };
    let layer = DeepSeekV4Attention::load(config, &file.path, "w.", home);
    let layer = layer.map_err(|error| match Error::from(error) {
        Error::Invalid(invalid) => Error::input(&file.path, invalid),
        other => other,
    })?;
    let mut ranks = TensorParallel::new(&layer, &devices)?;
    if tokens == 0 {
        return Ok(Vec::new());
    }
    let hidden = file.preset.hidden;
    let x = Tensor::<2>::from_data(TensorData::new(file.x.clone(), [tokens, hidden]), home);
    let table = TensorData::new(file.table.clone(), [tokens, ROPE_DIM]);
    let table = Tensor::<2>::from_data(table, home);

    let mut pool = BlockPool::new(config.cache)?;
    let sequence = pool.open();
    let mut outputs = Vec::new();
    let mut done = 0;
    while done < tokens {
        let count = match options.decode {
            true if done > 0 => 1,
            true => tokens.div_ceil(2),
            false => tokens,
        };
        // What no token will see again is free for others.
        pool.slide(sequence, window)?;
        let step = StepMetadata::next(&mut pool, &[sequence], count, blocks, &table)?;
        let y = ranks.forward(x.clone().slice(done..done + count), &step)?;
        outputs.extend(values(y)?);
        done += count;
        progress(done);
    }
    Ok(outputs)
}

fn values(y: Tensor<2>) -> Result<Vec<f32>> {
    let failed =
        |reason: String| mla_prologue_kernel::Error::Failed { doing: "running the layer", reason };
    let data = y.try_into_data().map_err(|error| failed(error.to_string()))?;
    Ok(data.try_to_vec().map_err(|error| failed(format!("{error:?}")))?)
}

/// `||got - want|| / ||want||`.
pub fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let wide = || want.iter().map(|&want| f64::from(want));
    let mut differences = got.iter().zip(wide()).map(|(&got, want)| f64::from(got) - want);
    norm(&mut differences) / norm(&mut wide()).max(f64::MIN_POSITIVE)
}
