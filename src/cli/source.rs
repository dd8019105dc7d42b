use super::args;
use mla_prologue::Result;

/// Prints the code generated for a target.
pub fn source(_args: &args::Source) -> Result<()> {
    Ok(())
}
