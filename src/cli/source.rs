use super::{args, report::print};
use mla_prologue::{
    Result, file,
    kernel::{
        Conversion, Pads,
        source::{Module, Target},
    },
    operator::{Invalid, Problem},
    portability,
};
use std::{collections::HashMap, path::Path};

/// Prints the code generated for a target, or the targets.
pub fn source(args: &args::Source) -> Result<()> {
    if args.target == "list" {
        if args.input.is_some() || !args.mode.is_empty() || args.binary.is_some() {
            let must = "given, to choose what the code is for";
            return Err(Invalid::new("--target", "absent, or list", must).into());
        }
        return print(&Target::all().map(|target| format!("{target}\n")).collect::<String>());
    }
    let problem = problem(args)?;
    let conversion = if args.integer { Conversion::Integer } else { Conversion::Native };
    if args.target == "all" {
        if let Some(path) = &args.binary {
            let must = "absent with --target all";
            return Err(Invalid::new("--binary", path.display(), must).into());
        }
        return print(&portability::table(&problem, conversion));
    }
    let target = Target::of(&args.target)?;
    let definition = target.define(&problem, &target.strategy(conversion), Pads::Written);
    let module = target.compile(definition)?;
    match &args.binary {
        Some(path) => write(path, target, &module),
        None => print(&module.text),
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
fn problem(args: &args::Source) -> Result<Problem> {
    if let Some(path) = &args.input {
        return Ok(file::read(path)?.problem);
    }
    let mut keys = HashMap::new();
    for mode in &args.mode {
        let must = "KEY=VALUE, each key once";
        let pair = mode.split_once('=').filter(|(key, _)| !keys.contains_key(*key));
        let (key, value) = pair.ok_or_else(|| Invalid::new("--mode", mode, must))?;
        let known = file::TENSOR_KEYS.iter().map(|key| key.0);
        let known: Vec<&str> = known.chain(file::KEYS.iter().map(|key| key.name)).collect();
        if !known.contains(&key) {
            let must = format!("KEY=VALUE with a key of {}", known.join(", "));
            return Err(Invalid::new("--mode", mode, must).into());
        }
        keys.insert(key.to_owned(), value.to_owned());
    }
    Ok(file::least(keys)?)
}

/// The keys of `--mode`.
pub fn help() -> String {
    let mut text = String::from("Keys of --mode, the default value first:\n");
    let of_tensors = file::TENSOR_KEYS.into_iter();
    let of_metadata = file::KEYS.iter().map(|key| (key.name, key.values, key.meaning));
    for (name, values, meaning) in of_tensors.chain(of_metadata) {
        text += &format!("  {name:<17} {values}: {meaning}\n");
    }
    text + "Without any: the base operator in bf16, a head padded to 64, blocks of 64 tokens."
}
