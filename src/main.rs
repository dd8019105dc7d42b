//! The command line `mla-prologue`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
