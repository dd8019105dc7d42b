//! Cases of the prologue.

pub mod catalogue;
mod file;
mod metadata;
mod options;
mod output;
mod verify;

pub use catalogue::{Case, Data, SlotPattern};
pub use file::{parse, read};
pub use metadata::{KEYS, KeyInfo};
pub use options::{TENSOR_KEYS, problem};
pub use output::{read_output, write_output};
pub use verify::{Comparison, Rule, compare};

use crate::{Error, Result};

/// Random bytes for `q_out` before a call, so that what is not written shows.
///
/// # Errors
/// More than the memory that is there.
fn random_bytes(count: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(count);
    reserved.map_err(|_| Error::Memory { tensor: "q_out".into(), bytes: count })?;
    bytes.resize(count, 0);
    fastrand::Rng::with_seed(count as u64).fill(&mut bytes);
    Ok(bytes)
}
