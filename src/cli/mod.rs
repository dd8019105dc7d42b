//! The command line: what it takes, and one module for each command.

mod args;
mod bench;
mod devices;
mod kernels;
#[cfg(feature = "burn")]
mod layer;
mod plan;
mod report;
mod run;
mod source;
mod verify;

use args::{Args, Command};
use clap::{Parser, error::ErrorKind};
use mla_prologue::Result;
use std::{
    io::{self, Write},
    panic,
    process::ExitCode,
};

/// A difference was found.
const DIFFERENT: u8 = 1;

/// Parses the arguments, runs the command, and turns whatever happens into an exit code and one line on
/// standard error.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    // A panic is a defect; it is told in one line too. Drivers' panics are caught where they happen.
    panic::set_hook(Box::new(|_| ()));
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
        Command::Verify(args) => verify::verify(&args),
        Command::Bench(args) => bench::bench(&args).map(|()| ExitCode::SUCCESS),
        Command::Source(args) => source::source(&args).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "burn")]
        Command::Layer(args) => layer::layer(&args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::plan(&args).map(|()| ExitCode::SUCCESS),
    }
}

/// One line on standard error; where nobody listens, nothing is lost.
fn fail(message: &str, code: u8) -> ExitCode {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let _ = writeln!(io::stderr(), "error: {}", lines.join(" "));
    ExitCode::from(code)
}

/// Help and version go out as they are; what is wrong with the arguments, in one line.
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
