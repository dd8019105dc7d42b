use crate::{as_option, plan::backend, report::Report};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use mla_prologue_cases::{
    Result,
    layer::{Cache, LayerFile, Options, relative_error, run, write_layer},
};
use mla_prologue_operator::Invalid;
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = HELP)]
pub struct Layer {
    /// The safetensors file to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The safetensors file to write: y
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// auto, cuda:0, rocm:0, vulkan:0 or cpu; several, separated by commas, are dealt out to the ranks
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Ranks of the tensor-parallel group
    #[arg(long, value_name = "RANKS", default_value_t = 1, allow_negative_numbers = true)]
    pub tp: usize,
    /// The attention kernel, which decides how the heads are padded: flashmla, flashinfer, aiter or any
    #[arg(long, default_value = "flashmla")]
    pub backend: String,
    /// What the cache holds: fp8_ds_mla in the device's native FP8 format (fp8) or in a named one (e4m3fn,
    /// e4m3fnuz), or rows_16bit (bf16)
    #[arg(long, default_value = "fp8")]
    pub cache: String,
    /// Feed the second half of the tokens one by one
    #[arg(long)]
    pub decode: bool,
    #[command(flatten)]
    pub report: Report,
}

/// What an input file holds.
pub const HELP: &str = "IN holds a sliding-window layer and its input (T tokens at the positions from 0 on):
  x                       [T, hidden]
  cos, sin                [T, 32]             or the metadata theta
  w.q_a_proj.weight       [q_lora, hidden]
  w.q_a_norm.weight       [q_lora]
  w.q_b_proj.weight       [heads * 512, q_lora]
  w.kv_proj.weight        [512, hidden]
  w.kv_norm.weight        [512]
  w.sinks                 [heads]
  w.o_a_proj.weight       [o_groups * o_lora, heads / o_groups * 512]
  w.o_b_proj.weight       [hidden, o_groups * o_lora]
  y                       [T, hidden]         optional: the output to compare with
in f32, bf16 or f16, and the string metadata heads, hidden, q_lora, o_groups, o_lora, window, eps.

OUT holds y [T, hidden] in f32. Projections and attention are computed in f32; queries and keys pass through
the kernel in bf16.";

/// Runs an attention layer on a file.
pub fn layer(args: &Layer) -> Result<()> {
    let cache = Cache::named(&args.cache);
    let cache = cache.ok_or_else(|| Invalid::new("--cache", &args.cache, Cache::NAMES))?;
    let options = Options {
        devices: args.device.split(',').map(String::from).collect(),
        world_size: args.tp,
        backend: backend(&args.backend)?,
        cache,
        decode: args.decode,
    };
    args.report.check(&[("IN", &args.input)], &[("OUT", &args.output)])?;
    let file = LayerFile::read(&args.input)?;
    let bar = ProgressBar::new(file.tokens() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tokens");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let y = run(&file, &options, |done| bar.set_position(done as u64))
        .map_err(as_option("the world size", "--tp"))?;
    bar.finish_and_clear();
    write_layer(&args.output, &y, file.preset.hidden)?;
    let error = file.y.as_ref().map(|want| relative_error(&y, want));
    let text = match error {
        Some(error) => {
            format!("{} tokens; relative error to the y of IN: {error:.2e}\n", file.tokens())
        }
        None => format!("{} tokens\n", file.tokens()),
    };
    args.report.write(
        &text,
        &json!({"tokens": file.tokens(), "compared": error.is_some(), "relative_error": error}),
    )
}
