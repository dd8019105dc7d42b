//! Programs and files: the little that the tasks need of both.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What went wrong and what to do about it, ready to be printed.
pub type Result<T = ()> = std::result::Result<T, String>;

/// Runs a command with its output shown.
pub fn run(command: &mut Command) -> Result {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().map_err(|error| format!("`{shown}` did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Runs a command with its output shown, and written to a report; gives whether it succeeded.
pub fn record(command: &mut Command, report: &mut impl Write) -> Result<bool> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let failed = |error: std::io::Error| format!("`{shown}`: {error}");
    writeln!(report, "\n$ {}", anonymous(&shown)).map_err(failed)?;
    // Both kinds of output in the order in which they come.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let copy = writer.try_clone().map_err(failed)?;
    let child = command.stdin(Stdio::null()).stdout(writer).stderr(copy).spawn();
    // The command holds the other ends of the pipe.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.map_err(failed)?;
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
        eprintln!("{line}");
        writeln!(report, "{}", anonymous(&line)).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    writeln!(report, "({status})").map_err(failed)?;
    Ok(status.success())
}

/// A text without the paths that tell where, and for whom, this runs.
fn anonymous(text: &str) -> String {
    let root = root().display().to_string();
    let text = text.replace(&root, ".");
    match std::env::var("HOME") {
        Ok(home) if home.len() > 1 => text.replace(&home, "~"),
        _ => text,
    }
}

/// Runs a command and gives what it printed on standard output.
pub fn read(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{shown}` did not start: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim().lines().last().unwrap_or("no message").to_owned();
        Err(format!("`{shown}` failed ({}): {why}", output.status))
    }
}

/// Does this program exist on PATH?
pub fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// `cargo` itself, in the repository's root.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(root());
    // What cargo told this program about itself would make some build scripts (ring's) run again when cargo is next called
    // without it.
    let told = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    let told = |name: &OsString| told.iter().any(|start| name.to_string_lossy().starts_with(start));
    for name in std::env::vars_os().map(|(name, _)| name).filter(told) {
        cargo.env_remove(name);
    }
    cargo
}

/// Adds to an error from the file system what was being done.
pub fn at<T>(doing: &str, path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|error| format!("cannot {doing} {}: {error}", path.display()))
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_neither_the_root_nor_the_home_in_it() {
        let (root, home) =
            (root().display().to_string(), std::env::var("HOME").unwrap_or_default());
        let mut report = Vec::new();
        let mut echo = Command::new("echo");
        assert_eq!(record(echo.args([&format!("{root}/a {home}/b")]), &mut report), Ok(true));
        let report = String::from_utf8(report).expect("UTF-8");
        assert!(!report.contains(&root), "{report}");
        assert!(home.len() < 2 || !report.contains(&home), "{report}");
        assert!(report.contains("./a"), "{report}");
    }
}
