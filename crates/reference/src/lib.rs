//! The executable definition of DeepSeek-V4's attention prologue: the **unfused** chain, as separate
//! passes over whole tensors, in plain Rust.
//!
//! Each module is one step and says exactly what is computed, in which order and with which roundings:
//! the fused kernel must give the same bits. Every operation is IEEE f32, rounded to nearest even;
//! `mul_add` rounds once.

pub mod cache;
mod gather;
pub mod norm;
pub mod numbers;
pub mod pad;
pub mod quant;
pub mod rope;

pub use gather::gather;
use mla_prologue_operator::{
    HEAD_DIM, Inputs, Key, Outputs, Problem, QuantFrom, Query, Result, Rounding,
};
use numbers::{Rows, decode_rows};

/// Runs the chain: fills `q_out`, and updates `kv_cache` in place.
///
/// # Errors
/// An input or output that is not as `problem` says, a position that is no row of the rotary table, a
/// slot outside the cache or used twice. Nothing is written then.
///
/// ```
/// # use mla_prologue_operator::*;
/// let spec = Spec {
///     tokens: 1,
///     half: Half::Bf16,
///     eps: 1e-6,
///     positions: Index::I64,
///     table: RotaryTable { rows: 1, number: RotaryType::F32, layout: RotaryLayout::Halves },
///     query: Some(Query::new(1, 2)),
///     key: None,
/// };
/// let q = [0x80, 0x3F].repeat(512); // one head of ones
/// let table = [[1f32; 32], [0f32; 32]].concat(); // cosine 1, sine 0: no rotation
/// let table: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
/// let inputs = Inputs { q: &q, positions: &[0; 8], cos_sin_cache: &table, ..Default::default() };
/// let mut q_out = [0xAA; 2 * 1024];
/// let outputs = Outputs { q_out: &mut q_out, kv_cache: &mut [] };
/// mla_prologue_reference::prologue(&spec.validate()?, &inputs, outputs)?;
/// assert_eq!(q_out[..2], [0x80, 0x3F]); // the norm of ones is ones
/// assert_eq!(q_out[1024..], [0; 1024]); // the added head
/// # Ok::<(), Invalid>(())
/// ```
pub fn prologue(problem: &Problem, inputs: &Inputs, outputs: Outputs) -> Result<()> {
    inputs.check(problem)?;
    outputs.check(problem)?;
    let angles = rope::angles(problem, inputs);
    if let Some(query) = &problem.query {
        prologue_q(problem, query, inputs.q, &angles, outputs.q_out);
    }
    if let Some(key) = &problem.key {
        prologue_kv(problem, key, inputs, &angles, outputs.kv_cache);
    }
    Ok(())
}

/// Queries: norm, rounding, RoPE, conversion, padding.
fn prologue_q(problem: &Problem, query: &Query, q: &[u8], angles: &[rope::Angles], out: &mut [u8]) {
    let mut x = decode_rows(q, problem.half, &Rows::of_q(problem.tokens, query));
    if query.norm {
        norm::rms_norm(&mut x, problem.eps, None);
        if query.rounding == Rounding::Half {
            numbers::round(&mut x, problem.half);
        }
    }
    if query.rope {
        rope::rotate(&mut x, |row| angles[row / query.heads]);
    }
    let live = match (query.scale, problem.fp8()) {
        (Some(scale), Some(fp8)) => quant::with_scale(&x, scale, fp8),
        _ => numbers::encode(&x, problem.half),
    };
    pad::pad_heads(problem.tokens, &live, query.heads, query.padded_heads, out);
}

/// Keys of the tokens that have a slot: norm, rounding, RoPE, quantization, insertion.
fn prologue_kv(
    problem: &Problem,
    key: &Key,
    inputs: &Inputs,
    angles: &[rope::Angles],
    cache: &mut [u8],
) {
    let inserted = cache::inserted(inputs.slots(problem));
    let tokens: Vec<usize> = inserted.iter().map(|&(token, _)| token).collect();
    let stride = key.row_stride.unwrap_or(HEAD_DIM);
    let mut x = decode_rows(inputs.kv, problem.half, &Rows::at(tokens.iter().map(|t| t * stride)));
    if let Some(rounding) = key.norm {
        let weight = decode_rows(inputs.kv_norm_weight, problem.half, &Rows::at([0]));
        norm::rms_norm(&mut x, problem.eps, Some(&weight));
        if rounding == Rounding::Half {
            numbers::round(&mut x, problem.half);
        }
    }
    rope::rotate(&mut x, |row| angles[tokens[row]]);
    let rounded = numbers::encode(&x, problem.half);
    if key.quant_from == QuantFrom::Half && key.cache.format.quant_block().is_some() {
        numbers::round(&mut x, problem.half);
    }
    let slots = inserted.iter().map(|&(_, slot)| slot);
    cache::insert(key, slots, &x, &rounded, cache);
}
