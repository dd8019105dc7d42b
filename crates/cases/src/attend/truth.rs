//! The exact value of attention, in f64 with the true exponential: what the bound is about.

use mla_prologue_operator::{
    CacheLayout, HEAD_DIM, NOPE_DIM,
    attend::{Call, Spec},
};
use mla_prologue_reference::{
    cache,
    numbers::{Rows, decode_rows, from_f32_bytes},
    rope::{self, Angles},
};
use rayon::prelude::*;

/// One head's exact values, and how far its entries are spread.
pub struct Truth {
    /// The output.
    pub out: Vec<f64>,
    /// The sum of the entries' magnitudes by their weights, those that are almost nothing taken as a bit more.
    pub spread: Vec<f64>,
}

/// A head of a token.
pub struct Head {
    /// Its values; `None` where no entry counts or the sink takes everything.
    pub head: Option<Truth>,
    /// The logarithm of the sum of the exponentials of its scores, the sink left out.
    pub lse: f64,
}

/// Weights below this share of the largest count as it.
const LEAST_WEIGHT: f64 = 1.0 / 65536.0;

/// Every head of every token.
pub fn truths(call: &Call) -> Vec<Head> {
    let (problem, tensors) = (call.problem(), call.tensors().as_ref().map(Vec::as_slice));
    let spec = problem.spec();
    let (slots, extra) = (problem.slots(&tensors), problem.extra_slots(&tensors));
    let sinks = from_f32_bytes(tensors.sinks);
    let angles = spec.rotary.as_ref().map(|table| {
        rope::angles(table, tensors.cos_sin_cache, problem.positions(tensors.positions))
    });
    let token = |token: usize| {
        let read = |layout: &CacheLayout, bytes: &[u8], slots: &[Option<usize>], count: usize| {
            let slots = slots[token * count..(token + 1) * count].iter().flatten();
            slots
                .map(|slot| cache::read(layout, spec.dtype, spec.kv_scale, bytes, *slot))
                .collect::<Vec<_>>()
        };
        let mut entries = read(&spec.cache, tensors.kv_cache, &slots, spec.count());
        if let Some(second) = &spec.extra {
            let bytes = tensors.extra_kv_cache;
            entries.extend(read(&second.cache, bytes, &extra, spec.extra_count()));
        }
        let starts = (0..spec.heads).map(|head| token * spec.stride() + head * HEAD_DIM);
        let q = decode_rows(tensors.q, spec.dtype, &Rows::at(starts));
        let angles = angles.as_ref().map(|angles| angles[token]);
        let heads = q.chunks_exact(HEAD_DIM).enumerate();
        heads.map(|(head, q)| truth(spec, q, &entries, sinks.get(head), angles)).collect::<Vec<_>>()
    };
    (0..spec.tokens).into_par_iter().flat_map_iter(token).collect()
}

fn truth(
    spec: &Spec,
    q: &[f32],
    entries: &[Vec<f32>],
    sink: Option<&f32>,
    angles: Option<Angles>,
) -> Head {
    let dot =
        |v: &Vec<f32>| -> f64 { q.iter().zip(v).map(|(q, v)| f64::from(*q) * f64::from(*v)).sum() };
    let scores: Vec<f64> = entries.iter().map(|v| dot(v) * f64::from(spec.scale)).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let lse = if entries.is_empty() { f64::NEG_INFINITY } else { max + sum.ln() };
    let sink = sink.map_or(f64::NEG_INFINITY, |sink| f64::from(*sink));
    if entries.is_empty() || (sink == f64::INFINITY && !sum.is_nan()) {
        return Head { head: None, lse };
    }
    let whole = sum + (sink - max).exp();
    let (mut out, mut spread) = (vec![0.0; HEAD_DIM], vec![0.0; HEAD_DIM]);
    let least = LEAST_WEIGHT * weights.iter().copied().fold(0.0, f64::max);
    for (weight, v) in weights.iter().zip(entries) {
        for (i, v) in v.iter().enumerate() {
            out[i] += weight / whole * f64::from(*v);
            spread[i] += weight.max(least) / whole * f64::from(v.abs());
        }
    }
    for (pair, (cosine, sine)) in angles.into_iter().flatten().enumerate() {
        let (cosine, sine, at) = (f64::from(cosine), f64::from(sine), NOPE_DIM + 2 * pair);
        turn(&mut out[at..at + 2], cosine, -sine, -1.0);
        turn(&mut spread[at..at + 2], cosine.abs(), sine.abs(), 1.0);
    }
    Head { head: Some(Truth { out, spread }), lse }
}

/// Turns a pair of values; magnitudes add up, with a `sign` of 1.
fn turn(pair: &mut [f64], cosine: f64, sine: f64, sign: f64) {
    let (even, odd) = (pair[0], pair[1]);
    pair[0] = even * cosine + sign * odd * sine;
    pair[1] = even * sine + odd * cosine;
}
