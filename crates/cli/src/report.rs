//! The report of a command: a table for people, JSON for programs.

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use mla_prologue_cases::{
    Error, Result,
    file::{self, Named},
};
use serde_json::Value;
use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

#[derive(Args)]
pub struct Report {
    /// Also write the report as JSON to this file; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Report {
    /// Checks, before any work, that the report and the command's other files can be written, and none over another.
    pub fn check(&self, inputs: &[Named], outputs: &[Named]) -> Result<()> {
        let json = self.json.as_deref().map(|path| ("--json", path));
        let outputs: Vec<Named> = outputs.iter().copied().chain(json).collect();
        file::check_outputs(inputs, &outputs)
    }

    /// Prints the text, or writes the JSON, or both, as the arguments say.
    pub fn write(&self, text: &str, json: &Value) -> Result<()> {
        let document = format!("{json:#}\n");
        let file = match &self.json {
            Some(path) if path.as_os_str() == "-" => return print(&document),
            file => file,
        };
        // The table first: a file that cannot be written does not lose it.
        print(text)?;
        let Some(path) = file else { return Ok(()) };
        file::replace(path, [document.as_bytes()])
    }
}

/// Prints to standard output. A reader that closes it early is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::file("write", Path::new("standard output"), error))
        }
        _ => Ok(()),
    }
}

/// A table without lines, numbers to the right.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}
