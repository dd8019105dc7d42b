use super::{args, plan::backend};
use indicatif::{ProgressBar, ProgressStyle};
use mla_prologue::{
    Result,
    file::{LayerFile, check_destination, check_distinct, write_layer},
    layer::{Cache, Options, relative_error, run},
    operator::Invalid,
};
use serde_json::json;

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
pub fn layer(args: &args::Layer) -> Result<()> {
    let cache = Cache::named(&args.cache);
    let cache = cache.ok_or_else(|| Invalid::new("--cache", &args.cache, Cache::NAMES))?;
    let options = Options {
        devices: args.device.split(',').map(String::from).collect(),
        world_size: args.tp,
        backend: backend(&args.backend)?,
        cache,
        decode: args.decode,
    };
    check_distinct(&args.input, "OUT", &args.output)?;
    check_destination(&args.output)?;
    if let Some(json) = &args.report.json {
        check_destination(json)?;
        if *json == args.output {
            return Err(Invalid::new("--json", json.display(), "another file than OUT").into());
        }
    }
    let file = LayerFile::read(&args.input)?;
    let bar = ProgressBar::new(file.tokens() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tokens");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let y = run(&file, &options, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    write_layer(&args.output, &y, file.shape.hidden)?;
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
