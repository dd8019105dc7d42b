use crate::run::{Device, spinner};
use clap::{Args, ValueEnum};
use mla_prologue_cases::{Result, attend, file};
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = help())]
pub struct Attend {
    /// The safetensors file to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The safetensors file to write: out, max and sum
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub device: Device,
    /// How it is computed
    #[arg(long, value_enum, default_value_t)]
    pub strategy: Strategy,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Strategy {
    /// The fastest that the device has
    #[default]
    Auto,
    /// The bits of the reference
    Exact,
}

/// Attends, on a file.
pub fn attend(args: &Attend) -> Result<()> {
    file::check_outputs(&[("IN", &args.input)], &[("OUT", &args.output)])?;
    let spinner = spinner("reading");
    let mut call = attend::read(&args.input)?;
    let executor = args.device.open()?;
    spinner.set_message(format!("attending on {}", executor.describe()));
    match args.strategy {
        // There is one strategy so far.
        Strategy::Auto | Strategy::Exact => executor.run(&mut call)?,
    }
    spinner.set_message("writing");
    attend::write_output(&args.output, &call)?;
    spinner.finish_and_clear();
    Ok(())
}

/// What an input file holds.
fn help() -> String {
    let mut text = String::from(
        "IN holds these tensors (T tokens, Q heads of q, H that attend, K and L entries, S sequences of B blocks, P positions):
  q               [T, Q, 512]               bf16 or f16; heads from H on are not read
  kv_cache        [blocks, bytes a block]   u8
  slots           [T, K]                    i64 or i32: the slots of each token's entries; outside the cache: skipped
  lens            [T]                       i64 or i32; optional: how many of them count
  block_table     [S, B]                    i64 or i32; in place of slots, with window: the blocks of each sequence
  extra_kv_cache  [blocks, bytes a block]   u8; optional: a second cache
  extra_slots     [T, L]                    i64 or i32: the slots of each token's entries in it
  extra_lens      [T]                       i64 or i32; optional
  sinks           [H]                       f32; optional: a logit of each head that gives nothing
  positions       [T]                       i64 or i32; with block_table or cos_sin_cache
  cos_sin_cache   [P, 64]                   f32, bf16 or f16; optional: the rotation of out that is undone

and this string metadata, the default first:
",
    );
    for key in attend::KEYS {
        text += &format!("  {:<17} {}\n  {:<17}   {}\n", key.name, key.values, "", key.meaning);
    }
    text + "\nOUT holds out [T, padded_heads, 512], max [T, H] and sum [T, H]: the largest score and the sum of the weights relative to it."
}
