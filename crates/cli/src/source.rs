use crate::report::print;
use clap::{Args, ValueEnum};
use mla_prologue_cases::{Error, Input, Result, attend, file, prologue};
use mla_prologue_codegen::{self as codegen, Module, Target, portability};
use mla_prologue_kernel::{Conversion, Kernel, prologue::PaddingHeads};
use mla_prologue_operator::{Invalid, prologue::Problem};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

#[derive(Args)]
#[command(after_help = help())]
pub struct Source {
    /// A file as `run` or `attend` takes it, whose options choose the code
    #[arg(value_name = "IN", conflicts_with_all = ["mode", "op"])]
    pub input: Option<PathBuf>,
    /// The operator
    #[arg(long, value_enum, default_value_t)]
    pub op: Op,
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

/// An operator, where no file tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Norm, RoPE and padding of queries, quantization and insertion of keys
    #[default]
    Prologue,
    /// Attention over the cache
    Attend,
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
    let kernel = kernel(args)?;
    let conversion = if args.integer { Conversion::Integer } else { Conversion::Native };
    if args.target == "all" {
        if let Some(path) = &args.binary {
            let must = "absent with --target all";
            return Err(Invalid::new("--binary", path.display(), must).into());
        }
        return print(&portability::table(&*kernel, conversion));
    }
    let target = Target::of(&args.target).map_err(|error| Error::from(error.named("--target")))?;
    let definition = target.define(&*kernel, &target.strategy(conversion));
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

/// The kernel of the file's problem, or of that of the options. Counts, strides and sizes are arguments of the kernel: the code does not
/// depend on them.
fn kernel(args: &Source) -> Result<Box<dyn Kernel>> {
    let of_prologue = |problem: Problem| Box::new((problem, PaddingHeads::Written));
    if let Some(path) = &args.input {
        return Ok(match Input::read(path)? {
            Input::Prologue(call) => of_prologue(*call.problem()),
            Input::Attend(call) => Box::new(*call.problem()),
        });
    }
    let mut keys = HashMap::new();
    let known: Vec<&str> = options(args.op).map(|(name, ..)| name).collect();
    for mode in &args.mode {
        let must = "KEY=VALUE, each key once";
        let pair = mode.split_once('=').filter(|(key, _)| !keys.contains_key(*key));
        let (key, value) = pair.ok_or_else(|| Invalid::new("--mode", mode, must))?;
        if !known.contains(&key) {
            let must = format!("KEY=VALUE with a key of {}", known.join(", "));
            return Err(Invalid::new("--mode", mode, must).into());
        }
        keys.insert(key.to_owned(), value.to_owned());
    }
    Ok(match args.op {
        Op::Prologue => of_prologue(prologue::problem(keys)?),
        Op::Attend => Box::new(attend::problem(keys)?),
    })
}

/// The keys of `--mode`: their names, their values, and what they mean.
fn options(op: Op) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let (tensors, keys) = match op {
        Op::Prologue => (&prologue::TENSOR_KEYS[..], prologue::KEYS),
        Op::Attend => (&attend::TENSOR_KEYS[..], attend::KEYS),
    };
    tensors.iter().copied().chain(keys.iter().map(|key| (key.name, key.values, key.meaning)))
}

/// The keys of `--mode` of every operator.
fn help() -> String {
    let mut text = String::new();
    for (op, base) in [
        (Op::Prologue, "the base operator in bf16, a head padded to 64, blocks of 64 tokens"),
        (Op::Attend, "16 heads in bf16 over a list of i32 slots, blocks of 64 tokens"),
    ] {
        let name = op.to_possible_value().map_or_else(String::new, |op| op.get_name().to_owned());
        text += &format!(
            "Keys of --mode with --op {name}, the default value first; without any: {base}.\n"
        );
        for (name, values, meaning) in options(op) {
            text += &format!("  {name:<17} {values}: {meaning}\n");
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}
