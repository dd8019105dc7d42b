use crate::report::print;
use clap::Args;
use mla_prologue_cases::{Error, Result, file, prologue};
use mla_prologue_codegen::{self as codegen, Module, Target, portability};
use mla_prologue_kernel::{Conversion, prologue::PaddingHeads};
use mla_prologue_operator::{Invalid, prologue::Problem};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

#[derive(Args)]
#[command(after_help = help())]
pub struct Source {
    /// A file as `run` takes it, whose options choose the code
    #[arg(value_name = "IN", conflicts_with = "mode")]
    pub input: Option<PathBuf>,
    /// What to compile for; `list` shows the targets of this build, `all` what is characteristic of the code
    /// for each
    #[arg(long, value_name = "TARGET", default_value = "list")]
    pub target: String,
    /// An option that chooses the code, without a file; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub mode: Vec<String>,
    /// Convert 16-bit values by integer arithmetic, as on the CPU and Vulkan
    #[arg(long)]
    pub integer: bool,
    /// Write the machine code (amdgcn, spirv) to this file instead of printing it to be read
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
}

/// Prints the code generated for a target, or the targets.
pub fn source(args: &Source) -> Result<()> {
    if Target::all().next().is_none() {
        let must = "one with the feature cuda, hip or vulkan";
        return Err(Invalid::new("this build", "without code generators", must).into());
    }
    let input = args.input.as_deref().map(|path| ("IN", path));
    let binary = args.binary.as_deref().map(|path| ("--binary", path));
    file::check_outputs(input.as_slice(), binary.as_slice())?;
    if args.target == "list" {
        if args.input.is_some() || !args.mode.is_empty() || args.binary.is_some() {
            let must = "given, to choose what the code is for";
            return Err(Invalid::new("--target", "absent, or list", must).into());
        }
        return print(&Target::all().map(|target| format!("{target}\n")).collect::<String>());
    }
    let kernel = (problem(args)?, PaddingHeads::Written);
    let conversion = if args.integer { Conversion::Integer } else { Conversion::Native };
    if args.target == "all" {
        if let Some(path) = &args.binary {
            let must = "absent with --target all";
            return Err(Invalid::new("--binary", path.display(), must).into());
        }
        return print(&portability::table(&kernel, conversion));
    }
    let target =
        Target::of(&args.target).map_err(|error| Error::from(error.named("--target")))?;
    let definition = target.define(&kernel, &target.strategy(conversion));
    let module = target.compile(definition).map_err(failed)?;
    match &args.binary {
        Some(path) => write(path, target, &module),
        None => print(&module.text),
    }
}

/// No code for a target is a failure of CubeCL's.
fn failed(error: codegen::Error) -> Error {
    match error {
        codegen::Error::Invalid(invalid) => invalid.into(),
        other => Error::Failed(other.to_string()),
    }
}

fn write(path: &Path, target: Target, module: &Module) -> Result<()> {
    if module.binary.is_empty() {
        let must = "absent: this target's code is text";
        return Err(
            Invalid::new("--binary", path.display(), format_args!("{must} ({target})")).into()
        );
    }
    file::replace(path, [module.binary.as_slice()])
}

/// The file's problem, or that of the options. Counts, strides and sizes are arguments of the kernel: the code
/// does not depend on them.
fn problem(args: &Source) -> Result<Problem> {
    if let Some(path) = &args.input {
        return Ok(*prologue::read(path)?.problem());
    }
    let mut keys = HashMap::new();
    for mode in &args.mode {
        let must = "KEY=VALUE, each key once";
        let pair = mode.split_once('=').filter(|(key, _)| !keys.contains_key(*key));
        let (key, value) = pair.ok_or_else(|| Invalid::new("--mode", mode, must))?;
        let known = prologue::TENSOR_KEYS.iter().map(|key| key.0);
        let known: Vec<&str> = known.chain(prologue::KEYS.iter().map(|key| key.name)).collect();
        if !known.contains(&key) {
            let must = format!("KEY=VALUE with a key of {}", known.join(", "));
            return Err(Invalid::new("--mode", mode, must).into());
        }
        keys.insert(key.to_owned(), value.to_owned());
    }
    Ok(prologue::problem(keys)?)
}

/// The keys of `--mode`.
pub fn help() -> String {
    let mut text = String::from("Keys of --mode, the default value first:\n");
    let of_tensors = prologue::TENSOR_KEYS.into_iter();
    let of_metadata = prologue::KEYS.iter().map(|key| (key.name, key.values, key.meaning));
    for (name, values, meaning) in of_tensors.chain(of_metadata) {
        text += &format!("  {name:<17} {values}: {meaning}\n");
    }
    text + "Without any: the base operator in bf16, a head padded to 64, blocks of 64 tokens."
}
