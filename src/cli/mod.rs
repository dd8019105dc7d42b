//! The command line: what it takes, and one module for each command.

mod args;
mod bench;
mod devices;
mod plan;
mod report;
mod run;
mod source;
mod verify;

use args::{Args, Command};
use clap::Parser;
use mla_prologue::Result;
use std::{panic, process::ExitCode};

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
        Command::Plan(args) => plan::plan(&args).map(|()| ExitCode::SUCCESS),
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    eprintln!("error: {}", message.split_whitespace().collect::<Vec<_>>().join(" "));
    ExitCode::from(code)
}

/// Help and version go out as they are; what is wrong with the arguments, in one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nothing is lost where nobody reads on.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let (message, _) = text.split_once("\n\nUsage").unwrap_or((&text, ""));
    let message = message.trim_start_matches("error: ");
    fail(&format!("{message} (see --help)"), 2)
}
