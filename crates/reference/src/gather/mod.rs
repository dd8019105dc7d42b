//! Reading the cache back, row by row.

use crate::{cache, numbers};
use mla_prologue_operator::{HEAD_DIM, gather::Call};
use rayon::prelude::*;

/// Gathers rows of a cache and converts them: fills `out` `[rows, 512]`, in f32 or the 16-bit type.
pub fn run(call: &mut Call) {
    let (problem, read, written) = call.split_mut();
    let spec = problem.spec();
    let row = |slot: &Option<usize>| match slot {
        Some(slot) => cache::read(&spec.cache, spec.dtype, spec.scale, read.kv_cache, *slot),
        None => vec![0.0; HEAD_DIM],
    };
    let slots = problem.slots(read.indices, read.block_table);
    let x: Vec<f32> = slots.par_iter().flat_map_iter(row).collect();
    let bytes = if spec.rounded {
        numbers::encode(&x, spec.dtype)
    } else {
        x.iter().flat_map(|x| x.to_le_bytes()).collect()
    };
    written.out.copy_from_slice(&bytes);
}
