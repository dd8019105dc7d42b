//! Unfused attention over the paged cache.

mod partial;

pub use partial::Partial;

use crate::{
    cache,
    numbers::{self, Rows, decode_rows},
    pad, rope,
};
use mla_prologue_operator::{
    CacheLayout, HEAD_DIM,
    attend::{CHUNK, Call, Problem, Spec, Tensors},
};
use rayon::prelude::*;

/// Attends: fills `out` and, where they are asked for, `max` and `sum`.
///
/// ```
/// use mla_prologue_operator::{CacheFormat, CacheLayout, Invalid};
/// use mla_prologue_operator::attend::{Call, Entries, SlotList, Spec, Tensors};
/// let cache = CacheLayout::new(CacheFormat::Rows16Bit, 1, 2);
/// let problem = Spec::new(1, 1, cache, Entries::Slots(SlotList::new(2))).validate()?;
/// let tensors = Tensors {
///     q: vec![0; 1024], // no direction: every entry has the same weight
///     kv_cache: [[0x80, 0x3F].repeat(512), [0x40, 0x40].repeat(512)].concat(), // ones and threes
///     slots: [1i32, 0].map(i32::to_le_bytes).concat(),
///     out: vec![0xAA; problem.sizes().out],
///     ..Tensors::default()
/// };
/// let mut call = Call::new(problem, tensors)?;
/// mla_prologue_reference::attend::run(&mut call);
/// assert_eq!(call.tensors().out[..2], [0x00, 0x40]); // two
/// # Ok::<(), Invalid>(())
/// ```
pub fn run(call: &mut Call) {
    let (problem, read, written) = call.split_mut();
    let spec = problem.spec();
    let heads = attend(problem, &read);
    let sinks = numbers::from_f32_bytes(read.sinks);
    let sink = |row: usize| sinks.get(row % spec.heads).copied();
    if spec.stats {
        let none = (f32::NEG_INFINITY, 0.0);
        let stats =
            heads.iter().map(|head| head.as_ref().map_or(none, |head| (head.max, head.sum)));
        let (max, sum): (Vec<f32>, Vec<f32>) = stats.unzip();
        written.max.copy_from_slice(&numbers::to_f32_bytes(&max));
        written.sum.copy_from_slice(&numbers::to_f32_bytes(&sum));
    }
    let output =
        |(row, head): (usize, Option<Partial>)| head.and_then(|head| head.output(sink(row)));
    let rows: Vec<_> = heads.into_par_iter().enumerate().map(output).collect();
    let zero = vec![0.0; HEAD_DIM];
    let values = |row: &Option<Vec<f32>>| row.clone().unwrap_or_else(|| zero.clone());
    let mut x: Vec<f32> = rows.par_iter().flat_map_iter(values).collect();
    if let Some(table) = &spec.rotary {
        let angles = rope::angles(table, read.cos_sin_cache, problem.positions(read.positions));
        rope::rotate(&mut x, |row| match &rows[row] {
            Some(_) => angles[row / spec.heads].map(|(cosine, sine)| (cosine, -sine)),
            None => rope::NO_ROTATION,
        });
    }
    let live = numbers::encode(&x, spec.dtype);
    pad::pad_heads(spec.tokens, &live, spec.heads, spec.padded_heads, written.out);
}

/// Each head of each token over its entries; `None` where none counts.
fn attend(problem: &Problem, read: &Tensors<&[u8]>) -> Vec<Option<Partial>> {
    let spec = problem.spec();
    let starts = (0..spec.tokens * spec.heads)
        .map(|row| row / spec.heads * spec.stride() + row % spec.heads * HEAD_DIM);
    let q = decode_rows(read.q, spec.dtype, &Rows::at(starts));
    let (slots, extra) = (problem.slots(read), problem.extra_slots(read));
    let extra_cache = spec.extra.map_or(spec.cache, |extra| extra.cache);
    let token = |(token, q): (usize, &[f32])| {
        let list = |slots: &[Option<usize>], count| -> Vec<Option<usize>> {
            slots[token * count..(token + 1) * count].to_vec()
        };
        let first = chunks(spec, &spec.cache, read.kv_cache, &list(&slots, spec.count()));
        let entries = list(&extra, spec.extra_count());
        let second = chunks(spec, &extra_cache, read.extra_kv_cache, &entries);
        let chunks = [first, second].concat();
        let heads = q.chunks_exact(HEAD_DIM);
        heads.map(|q| merge(&chunks, q, spec.scale)).collect::<Vec<_>>()
    };
    let tokens = q.par_chunks_exact(spec.heads * HEAD_DIM).enumerate();
    tokens.flat_map_iter(token).collect()
}

/// The values of the entries that count, chunk by chunk.
fn chunks(
    spec: &Spec,
    layout: &CacheLayout,
    cache: &[u8],
    slots: &[Option<usize>],
) -> Vec<Vec<Vec<f32>>> {
    let read = |slot: &usize| cache::read(layout, spec.dtype, spec.kv_scale, cache, *slot);
    let chunk = |slots: &[Option<usize>]| slots.iter().flatten().map(read).collect();
    slots.chunks(CHUNK).map(chunk).collect()
}

/// One head over the chunks of its token that are not empty.
fn merge(chunks: &[Vec<Vec<f32>>], q: &[f32], scale: f32) -> Option<Partial> {
    let parts = chunks.iter().filter(|chunk| !chunk.is_empty()).map(|values| {
        let scores: Vec<f32> = values.iter().map(|value| dot(q, value) * scale).collect();
        Partial::of_chunk(&scores, values)
    });
    parts.reduce(|mut merged, next| {
        merged.merge(&next);
        merged
    })
}

fn dot(q: &[f32], value: &[f32]) -> f32 {
    q.iter().zip(value).fold(0.0, |sum, (q, value)| q.mul_add(*value, sum))
}
