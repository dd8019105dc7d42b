use crate::as_option;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use mla_prologue_cases::{Executor, Result, file, prologue};
use std::{path::PathBuf, time::Duration};

#[derive(Args)]
#[command(after_help = help())]
pub struct Run {
    /// The safetensors file to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The safetensors file to write: q_out and kv_cache
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub device: Device,
}

#[derive(Args)]
pub struct Device {
    /// auto, cuda:0, rocm:0, vulkan:0, cpu, or reference
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
}

impl Device {
    /// Opens it.
    pub fn open(&self) -> Result<Executor> {
        Executor::open(&self.device).map_err(as_option("device", "--device"))
    }
}

/// Runs the kernel on a file.
pub fn run(args: &Run) -> Result<()> {
    file::check_outputs(&[("IN", &args.input)], &[("OUT", &args.output)])?;
    let spinner = spinner("reading");
    let mut call = prologue::read(&args.input)?;
    let executor = args.device.open()?;
    spinner.set_message(format!("running on {}", executor.describe()));
    executor.run(&mut call)?;
    spinner.set_message("writing");
    prologue::write_output(&args.output, &call)?;
    spinner.finish_and_clear();
    Ok(())
}

/// Shows on a terminal that the program works.
pub fn spinner(message: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(message);
    let style = ProgressStyle::with_template("{spinner} {msg}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// What an input file holds.
pub fn help() -> String {
    let mut text = String::from(
        "IN holds these tensors (T tokens, H heads, S <= T slots, P positions):
  q              [T, H, 512]               bf16 or f16
  kv             [T, 512]                  the type of q
  positions      [T]                       i64 or i32: each token's row of cos_sin_cache
  slot_mapping   [S]                       i64 or i32: each token's slot; negative: not inserted
  cos_sin_cache  [P, 64]                   f32, bf16 or f16
  kv_cache       [blocks, bytes a block]   u8, before the call
  kv_norm_weight [512]                     the type of kv; optional: RMSNorm of kv before RoPE

and this string metadata, the default first:
",
    );
    for key in prologue::KEYS {
        text += &format!("  {:<17} {}\n  {:<17}   {}\n", key.name, key.values, "", key.meaning);
    }
    text + "\nOUT holds q_out [T, padded_heads, 512] and kv_cache, and the metadata that tells how to read them."
}
