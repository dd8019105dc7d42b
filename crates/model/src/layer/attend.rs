//! Attention over the paged cache, in Burn's tensor operations: each token gathers its own window into
//! memory, which a fused kernel would not.

use super::{StepMetadata, product::batched};
use burn::tensor::{Bool, DType, Int, Tensor, activation::softmax};
use mla_prologue_burn::{Gather, KvCache, widen};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{HEAD_DIM, Invalid, NOPE_DIM, ROPE_DIM};
use std::ops::Range;

/// Tokens whose windows are gathered at once, which bounds the memory that it takes.
const CHUNK: usize = 64;

/// `q` `[tokens, heads, 512]` in 16 bits attends to the last `window` tokens of its sequence up to its own; each
/// head has a logit in `sinks` `[heads]` that takes its share of the attention and gives nothing. Returns
/// `[tokens, heads, 512]` f32.
pub fn attend(
    q: Tensor<3>,
    kv_cache: &KvCache,
    step: &StepMetadata,
    window: usize,
    sinks: Tensor<1>,
) -> Result<Tensor<3>> {
    let [tokens, heads, _] = q.dims();
    let [sequences, blocks] = step.block_table.dims();
    if sequences == 0 || !tokens.is_multiple_of(sequences) {
        let must = format_args!("a divisor of the {tokens} tokens");
        return Err(Invalid::new("the row count of block_table", sequences, must).into());
    }
    let each = tokens / sequences;
    let mut outputs = Vec::new();
    for chunk in chunks(tokens, each) {
        let count = chunk.len();
        let positions = step.tokens.positions.clone().slice(chunk.clone());
        let owners = chunk.start / each..(chunk.end - 1) / each + 1;
        let block_table = step.block_table.clone().slice([owners, 0..blocks]);
        let seen = windows(positions, window);
        let keys = Gather::new().tokens(kv_cache, seen.clone().flatten(0, 1), block_table)?;
        let keys: Tensor<3> = keys.reshape([count, window, HEAD_DIM]);
        let q = widen(q.clone().slice(chunk))?;
        let scores = batched(q, keys.clone().swap_dims(1, 2)) / (HEAD_DIM as f64).sqrt();
        let hidden: Tensor<3, Bool> = seen.lower_elem(0).unsqueeze_dim(1);
        let scores = scores.mask_fill(hidden.expand([count, heads, window]), f32::NEG_INFINITY);
        let sinks: Tensor<3> = sinks.clone().reshape([1, heads, 1]).expand([count, heads, 1]);
        let shares = softmax(Tensor::cat(vec![scores, sinks], 2), 2);
        outputs.push(batched(shares.slice([0..count, 0..heads, 0..window]), keys));
    }
    Ok(Tensor::cat(outputs, 0))
}

/// Tokens that are attended to at once: some of one sequence or, where each sequence has one, one of each of
/// some sequences.
fn chunks(tokens: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let span = if each == 1 { tokens } else { each };
    (0..tokens).step_by(span).flat_map(move |start| {
        let end = start + span;
        (start..end).step_by(CHUNK).map(move |first| first..(first + CHUNK).min(end))
    })
}

/// The tokens that each token sees, `[tokens, window]`, oldest first; negative before the first of the sequence.
fn windows(positions: Tensor<1, Int>, window: usize) -> Tensor<2, Int> {
    let options = (&positions.device(), positions.dtype());
    let offsets = Tensor::<1, Int>::arange(1 - window as i64..1, options);
    positions.unsqueeze_dim::<2>(1) + offsets.unsqueeze_dim::<2>(0)
}

/// Undoes the rotation of the tokens' positions on the last 64 values of each head.
pub fn rotate_back(x: Tensor<3>, step: &StepMetadata) -> Tensor<3> {
    let [tokens, heads, _] = x.dims();
    let pairs = ROPE_DIM / 2;
    let angles = step.tokens.cos_sin_cache.clone().select(0, step.tokens.positions.clone());
    let angles = angles.cast(DType::F32);
    let part = |from: usize| -> Tensor<3> {
        angles.clone().slice([0..tokens, from..from + pairs]).unsqueeze_dim(1)
    };
    let (cos, sin) = (part(0), part(pairs));
    let rotated = x.clone().slice([0..tokens, 0..heads, NOPE_DIM..HEAD_DIM]);
    let rotated: Tensor<4> = rotated.reshape([tokens, heads, pairs, 2]);
    let half = |i: usize| -> Tensor<3> {
        rotated.clone().slice([0..tokens, 0..heads, 0..pairs, i..i + 1]).squeeze_dim(3)
    };
    let (even, odd) = (half(0), half(1));
    let pairs = Tensor::stack::<4>(
        vec![even.clone() * cos.clone() + odd.clone() * sin.clone(), odd * cos - even * sin],
        3,
    );
    let nope = x.slice([0..tokens, 0..heads, 0..NOPE_DIM]);
    Tensor::cat(vec![nope, pairs.reshape([tokens, heads, ROPE_DIM])], 2)
}
