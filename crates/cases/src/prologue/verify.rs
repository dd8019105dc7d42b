//! Comparison of what a call wrote with what the reference gives.

use crate::{Comparison, Rule};
use mla_prologue_operator::{
    CacheFormat, HEAD_DIM, NOPE_DIM,
    prologue::{Call, Tensors},
};
use std::ops::Range;

/// Compares what a call wrote with what the reference wrote: `want` after it was run.
pub fn compare(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule) -> Comparison {
    let mut found = Comparison::default();
    compare_q(want, got, rule, &mut found);
    compare_cache(want, got, rule, &mut found);
    found.limit_near()
}

fn compare_q(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule, found: &mut Comparison) {
    let spec = want.problem().spec();
    let Some(query) = spec.query else { return };
    let want = want.tensors();
    let width = if query.scale.is_some() { 1 } else { 2 };
    found.values += want.q_out.len() / width;
    let rows =
        want.q_out.chunks_exact(HEAD_DIM * width).zip(got.q_out.chunks_exact(HEAD_DIM * width));
    for (row, (want, got)) in rows.enumerate().filter(|(_, (want, got))| want != got) {
        let (token, head) = (row / query.padded_heads, row % query.padded_heads);
        let rule = if head < query.heads { rule } else { Rule::Exact };
        let name = if head < query.heads { "q_out" } else { "q_out (a padding head)" };
        let values = want.chunks_exact(width).zip(got.chunks_exact(width));
        for (i, (want, got)) in values.enumerate() {
            let at = || format!("{name}[{token}, {head}, {i}]");
            found.judge(want, got, spec.dtype, rule, at);
        }
    }
}

fn compare_cache(call: &Call, got: &Tensors<Vec<u8>>, rule: Rule, found: &mut Comparison) {
    let spec = call.problem().spec();
    let Some(key) = spec.key else { return };
    let want = call.tensors();
    let cache = key.cache;
    found.values += want.kv_cache.len();
    // First the tokens that were inserted, value by value; then, with these made equal, every byte.
    let mut rest = got.kv_cache.clone();
    for (token, slot) in call.slots().enumerate() {
        let Ok(slot) = usize::try_from(slot) else { continue };
        let (data, scales) = (cache.data(slot), cache.scales(slot));
        if want.kv_cache[data.clone()] == rest[data.clone()]
            && want.kv_cache[scales.clone()] == rest[scales.clone()]
        {
            continue;
        }
        let rounded = match cache.format {
            CacheFormat::Fp8DsMla { .. } => NOPE_DIM,
            CacheFormat::Rows16Bit => 0,
            CacheFormat::Mxfp8 { .. } | CacheFormat::RowsFp8 { .. } => cache.format.data_bytes(),
        };
        for i in (rounded..cache.format.data_bytes()).step_by(2) {
            let byte = data.start + i;
            let at = || {
                format!("kv_cache, slot {slot} (token {token}), 16-bit value {}", (i - rounded) / 2)
            };
            let (want, got) = (&want.kv_cache[byte..byte + 2], &got.kv_cache[byte..byte + 2]);
            found.judge(want, got, spec.dtype, rule, at);
            rest[byte..byte + 2].copy_from_slice(want);
        }
        // A norm of the key reaches its UE8M0 scales and FP8 values.
        if rule == Rule::Band && key.norm.is_some() {
            let quantized = data.start..data.start + rounded;
            accept_near_bytes(
                &want.kv_cache,
                &mut rest,
                scales,
                quantized,
                cache.format.quant_block(),
                found,
            );
        }
    }
    let bytes = want.kv_cache.iter().zip(&rest).enumerate();
    for (offset, (want, got)) in bytes.filter(|(_, (want, got))| want != got) {
        found.wrong(|| {
            let (block, at) = (offset / cache.block_stride, offset % cache.block_stride);
            format!("kv_cache[{block}, {at}] is {got:#04x}, must be {want:#04x}")
        });
    }
}

/// Makes bytes equal that are one step apart: FP8 values, and UE8M0 scales with all values of their block.
fn accept_near_bytes(
    want: &[u8],
    got: &mut [u8],
    scales: Range<usize>,
    values: Range<usize>,
    block: Option<usize>,
    found: &mut Comparison,
) {
    let block = block.unwrap_or(values.len());
    for (i, start) in values.clone().step_by(block).enumerate() {
        let scale = scales.start + i;
        let rescaled = scales.contains(&scale) && want[scale].abs_diff(got[scale]) == 1;
        if rescaled {
            got[scale] = want[scale];
        }
        for value in start..start + block {
            let near =
                (want[value] ^ got[value]) & 0x80 == 0 && want[value].abs_diff(got[value]) == 1;
            if want[value] != got[value] && (near || rescaled) {
                found.near += 1;
                got[value] = want[value];
            }
        }
    }
}
