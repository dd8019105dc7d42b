use super::{args, report::print};
use mla_prologue::{
    Result,
    bench::Shape,
    file,
    kernel::{Conversion, source},
};

/// Prints the code generated for a target, or the targets.
pub fn source(args: &args::Source) -> Result<()> {
    if args.target == "list" {
        return print(
            &source::Target::all().map(|target| format!("{target}\n")).collect::<String>(),
        );
    }
    // Counts, strides and sizes are arguments of the kernel: the code does not depend on them.
    let problem = match &args.input {
        Some(path) => file::read(path)?.problem,
        None => Shape::new(1, 1, 64).case().spec.validate()?,
    };
    let conversion = if args.integer { Conversion::Integer } else { Conversion::Native };
    print(&source::generate(&args.target, &problem, conversion)?)
}
