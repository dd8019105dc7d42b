//! The command line `mla-prologue`: a module for each command, with its arguments.

mod attend;
mod bench;
mod bench_attend;
mod devices;
#[cfg(feature = "persistence")]
mod kernels;
#[cfg(feature = "burn")]
mod layer;
mod plan;
mod report;
mod run;
mod source;
mod verify;

use clap::{Parser, Subcommand, error::ErrorKind};
use mla_prologue_cases::{Error, Result};
use std::{
    io::{self, Write},
    panic,
    process::ExitCode,
};

/// DeepSeek-V4's attention prologue in one fused kernel: per-head RMSNorm, RoPE and padding of the queries,
/// RoPE, FP8 quantization and paged-cache insertion of the keys.
///
/// Exit codes: 0 done; 1 a difference was found; 2 bad input or arguments; 3 a device or the file system
/// failed.
#[derive(Parser)]
#[command(name = "mla-prologue", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the devices that can be used here, and why the others cannot
    Devices(devices::Devices),
    /// Run the fused kernel on a file
    Run(run::Run),
    /// Attend over a paged cache, on a file
    Attend(attend::Attend),
    /// Compare the fused kernel with the reference, bit for bit
    Verify(verify::Verify),
    /// Measure the fused kernel
    Bench(bench::Bench),
    /// Print the code that is generated for a target
    Source(source::Source),
    /// Run a whole attention layer on a file
    #[cfg(feature = "burn")]
    Layer(layer::Layer),
    /// Run a whole attention layer on a file (not in this build: it needs the feature burn)
    #[cfg(not(feature = "burn"))]
    #[command(disable_help_flag = true)]
    Layer {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        _ignored: Vec<String>,
    },
    /// Show what each rank of a tensor-parallel group holds
    Plan(plan::Plan),
}

/// A difference was found.
const DIFFERENT: u8 = 1;

/// Parses the arguments, runs the command, and turns whatever happens into an exit code and one line on
/// standard error.
fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    // A panic is a defect; it is reported in one line too. Drivers' panics are caught where they happen.
    panic::set_hook(Box::new(|_| ()));
    #[cfg(feature = "persistence")]
    kernels::keep();
    match panic::catch_unwind(|| dispatch(args)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => fail(&error.to_string(), error.exit_code()),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text =
                text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            fail(&format!("internal error, please report it: {text}"), 3)
        }
    }
}

fn dispatch(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Devices(args) => devices::devices(&args).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Attend(args) => attend::attend(&args).map(|()| ExitCode::SUCCESS),
        Command::Verify(args) => verify::verify(&args),
        Command::Bench(args) => bench::bench(&args).map(|()| ExitCode::SUCCESS),
        Command::Source(args) => source::source(&args).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "burn")]
        Command::Layer(args) => layer::layer(&args).map(|()| ExitCode::SUCCESS),
        #[cfg(not(feature = "burn"))]
        Command::Layer { .. } => {
            let must =
                "one with the feature burn, as `cargo xtask layer` and `cargo xtask test` make";
            Err(mla_prologue_operator::Invalid::new("this build", "without Burn", must).into())
        }
        Command::Plan(args) => plan::plan(&args).map(|()| ExitCode::SUCCESS),
    }
}

/// The same error, where `argument` of a library is an option of a command.
fn as_option(argument: &str, option: &str) -> impl Fn(Error) -> Error {
    move |error| match error {
        Error::Invalid(invalid) if invalid.argument == argument => invalid.named(option).into(),
        other => other,
    }
}

/// One line on standard error. Errors are ignored: it may be closed.
fn fail(message: &str, code: u8) -> ExitCode {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let _ = writeln!(io::stderr(), "error: {}", lines.join(" "));
    ExitCode::from(code)
}

/// Prints help and version as they are, and what is wrong with the arguments in one line.
fn usage(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return fail("a command is missing (see --help)", 2);
    }
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let end = ["\n\nUsage", "\n\nFor more"].iter().filter_map(|end| text.find(end)).min();
    let message = text[..end.unwrap_or(text.len())].trim_start_matches("error: ");
    fail(&format!("{message} (see --help)"), 2)
}
