//! Reading the cache back, row by row.

use crate::{cache, numbers};
use mla_prologue_operator::{Gather, HEAD_DIM, Result};
use rayon::prelude::*;

/// Gathers rows of a cache and converts them; the result is `[rows, 512]` of f32 or of the 16-bit type.
/// `indices` and `block_table` (empty without one) are as [`Gather`] says.
///
/// # Errors
/// A [`Gather`] that makes no sense, or a tensor that is not of its size.
pub fn gather(
    gather: &Gather,
    kv_cache: &[u8],
    indices: &[u8],
    block_table: &[u8],
) -> Result<Vec<u8>> {
    gather.validate()?;
    let slots = gather.slots(indices, block_table)?;
    let row = |slot: &Option<usize>| match slot {
        Some(slot) => cache::read(&gather.cache, gather.half, gather.scale, kv_cache, *slot),
        None => vec![0.0; HEAD_DIM],
    };
    let x: Vec<f32> = slots.par_iter().flat_map_iter(row).collect();
    Ok(if gather.rounded {
        numbers::encode(&x, gather.half)
    } else {
        x.iter().flat_map(|x| x.to_le_bytes()).collect()
    })
}
