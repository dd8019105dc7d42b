//! The unfused prologue.

use crate::{
    cache, norm,
    numbers::{self, Rows, decode_rows},
    pad, quant, rope,
};
use mla_prologue_operator::{
    HEAD_DIM, QuantFrom, Rounding,
    prologue::{Call, Key, Query, Spec, Tensors},
};

/// Runs the chain: fills `q_out`, and updates `kv_cache` in place.
///
/// ```
/// use mla_prologue_operator::{Invalid, prologue::{Call, Query, RotaryTable, Spec, Tensors}};
/// let problem = Spec::new(1, RotaryTable::new(1)).query(Query::new(1, 2)).validate()?;
/// let table = [[1f32; 32], [0f32; 32]].concat(); // cosine 1, sine 0: no rotation
/// let tensors = Tensors {
///     q: [0x80, 0x3F].repeat(512), // one head of ones
///     positions: vec![0; 8],
///     cos_sin_cache: table.iter().flat_map(|x| x.to_le_bytes()).collect(),
///     q_out: vec![0xAA; problem.sizes().q_out],
///     ..Tensors::default()
/// };
/// let mut call = Call::new(problem, tensors)?;
/// mla_prologue_reference::prologue::run(&mut call);
/// let q_out = &call.tensors().q_out;
/// assert_eq!(q_out[..2], [0x80, 0x3F]); // the norm of ones is ones
/// assert_eq!(q_out[1024..], [0; 1024]); // the padding head
/// # Ok::<(), Invalid>(())
/// ```
pub fn run(call: &mut Call) {
    let (problem, read, written) = call.split_mut();
    let spec = problem.spec();
    let angles = rope::angles(&spec.table, read.cos_sin_cache, problem.positions(read.positions));
    if let Some(query) = &spec.query {
        queries(spec, query, read.q, &angles, written.q_out);
    }
    if let Some(key) = &spec.key {
        let slots = problem.slots(read.slot_mapping);
        keys(spec, key, &read, slots, &angles, written.kv_cache);
    }
}

/// Queries: norm, rounding, RoPE, conversion, padding.
fn queries(spec: &Spec, query: &Query, q: &[u8], angles: &[rope::Angles], out: &mut [u8]) {
    let mut x = decode_rows(q, spec.dtype, &Rows::of_q(spec.tokens, query));
    if query.norm {
        norm::rms_norm(&mut x, spec.eps, None);
        if query.rounding == Rounding::To16Bit {
            numbers::round(&mut x, spec.dtype);
        }
    }
    if query.rope {
        rope::rotate(&mut x, |row| angles[row / query.heads]);
    }
    let live = match (query.scale, spec.fp8()) {
        (Some(scale), Some(fp8)) => quant::with_scale(&x, scale, fp8),
        _ => numbers::encode(&x, spec.dtype),
    };
    pad::pad_heads(spec.tokens, &live, query.heads, query.padded_heads, out);
}

/// Keys of the tokens that have a slot: norm, rounding, RoPE, quantization, insertion.
fn keys(
    spec: &Spec,
    key: &Key,
    tensors: &Tensors<&[u8]>,
    slots: impl Iterator<Item = i64>,
    angles: &[rope::Angles],
    cache: &mut [u8],
) {
    let inserted = cache::inserted(slots);
    let tokens: Vec<usize> = inserted.iter().map(|&(token, _)| token).collect();
    let stride = key.row_stride.unwrap_or(HEAD_DIM);
    let mut x = decode_rows(tensors.kv, spec.dtype, &Rows::at(tokens.iter().map(|t| t * stride)));
    if let Some(rounding) = key.norm {
        let weight = decode_rows(tensors.kv_norm_weight, spec.dtype, &Rows::at([0]));
        norm::rms_norm(&mut x, spec.eps, Some(&weight));
        if rounding == Rounding::To16Bit {
            numbers::round(&mut x, spec.dtype);
        }
    }
    rope::rotate(&mut x, |row| angles[tokens[row]]);
    let rounded = numbers::encode(&x, spec.dtype);
    if key.quant_from == QuantFrom::Rounded && key.cache.format.quant_block().is_some() {
        numbers::round(&mut x, spec.dtype);
    }
    let slots = inserted.iter().map(|&(_, slot)| slot);
    cache::insert(key, slots, &x, &rounded, cache);
}
