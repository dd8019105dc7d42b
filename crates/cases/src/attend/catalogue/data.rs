//! Tensors drawn from a seed.

use super::Case;
use crate::{Result, attend::file::unwritten, draw};
use fastrand::Rng;
use mla_prologue_operator::{
    CacheLayout, Float16, HEAD_DIM, Index, NOPE_DIM,
    attend::{Call, Entries, Problem, SlotList, Spec, Tensors},
    prologue::Key,
};
use mla_prologue_reference::{
    cache,
    numbers::{encode, to_f32_bytes, to_float16},
};
use std::fmt;

/// What kind of numbers a case holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Data {
    /// Bell-shaped, with scores of about 1.
    #[default]
    Ordinary,
    /// Scores that are far apart: most weights are tiny or nothing.
    Wide,
    /// Values of which many are zero, of either sign.
    Zeros,
    /// Ordinary, with NaNs and infinities strewn in.
    NonFinite,
}

impl Data {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Ordinary, Self::Wide, Self::Zeros, Self::NonFinite];
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ordinary => "ordinary",
            Self::Wide => "wide",
            Self::Zeros => "zeros",
            Self::NonFinite => "non-finite",
        })
    }
}

/// Which entries of a list count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SlotPattern {
    /// All of them.
    #[default]
    All,
    /// Two thirds of them.
    Some,
    /// Those of every other chunk.
    Chunks,
    /// None of them.
    None,
    /// Two thirds; the others are far outside the cache.
    Outside,
}

impl SlotPattern {
    /// Every pattern.
    pub const ALL: [Self; 5] = [Self::All, Self::Some, Self::Chunks, Self::None, Self::Outside];
}

impl fmt::Display for SlotPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::All => "all",
            Self::Some => "some",
            Self::Chunks => "every other chunk",
            Self::None => "none",
            Self::Outside => "some outside",
        })
    }
}

/// Draws the tensors of a case.
pub fn draw(case: &Case, problem: Problem) -> Result<Call> {
    let rng = &mut Rng::with_seed(case.seed);
    let spec = problem.spec();
    let (slots, lens) = match &spec.entries {
        Entries::Slots(list) => entries(rng, spec, list, &spec.cache, case.slots),
        Entries::Window(_) => (Vec::new(), Vec::new()),
    };
    let (block_table, sequence_ids, limit) = match &spec.entries {
        Entries::Slots(_) => (Vec::new(), Vec::new(), usize::MAX),
        Entries::Window(window) => {
            let table = window.table;
            let block = |rng: &mut Rng| rng.i64(-1..spec.cache.num_blocks as i64);
            let blocks = (0..table.sequences * table.blocks).map(|_| block(rng)).collect();
            let ids = (0..spec.tokens).map(|_| rng.i64(0..table.sequences as i64)).collect();
            let ids = window.sequence_ids.map(|index| draw::indices(ids, index));
            let tokens = table.blocks * spec.cache.block_size;
            (draw::indices(blocks, table.index_type), ids.unwrap_or_default(), tokens)
        }
    };
    let limit = limit.min(spec.rotary.map_or(usize::MAX, |table| table.rows)).min(1 << 20);
    let positions = spec.has_positions().then(|| {
        let positions = (0..spec.tokens).map(|_| rng.usize(..limit) as i64).collect();
        draw::indices(positions, spec.position_type)
    });
    let extra = spec.extra.map(|extra| {
        let (slots, lens) = entries(rng, spec, &extra.slots, &extra.cache, case.slots);
        (slots, lens, keys(rng, spec, &extra.cache, case.data))
    });
    let (extra_slots, extra_lens, extra_kv_cache) = extra.unwrap_or_default();
    let sinks = if spec.sinks { spec.heads } else { 0 };
    let sinks: Vec<f32> = (0..sinks).map(|_| sink(rng, case.data)).collect();
    let tensors = Tensors {
        q: queries(rng, problem.sizes().q / 2, spec.dtype, case.data),
        slots,
        lens,
        block_table,
        sequence_ids,
        extra_kv_cache,
        extra_slots,
        extra_lens,
        sinks: to_f32_bytes(&sinks),
        positions: positions.unwrap_or_default(),
        cos_sin_cache: spec
            .rotary
            .map(|table| draw::table(&mut Rng::with_seed(case.seed), &table, false))
            .unwrap_or_default(),
        kv_cache: keys(rng, spec, &spec.cache, case.data),
        ..Tensors::default()
    };
    Ok(Call::new(problem, unwritten(tensors, &problem)?)?)
}

fn queries(rng: &mut Rng, values: usize, dtype: Float16, data: Data) -> Vec<u8> {
    let scale = if data == Data::Wide { 30.0 } else { 1.0 };
    let value = |_| to_float16(scale * draw::bell(rng), dtype).to_le_bytes();
    (0..values).flat_map(value).collect()
}

/// A cache, each of whose slots holds a key.
fn keys(rng: &mut Rng, spec: &Spec, layout: &CacheLayout, data: Data) -> Vec<u8> {
    let slots = layout.capacity();
    let mut bytes = vec![0; layout.bytes()];
    rng.fill(&mut bytes);
    let mut x: Vec<f32> = (0..slots * HEAD_DIM).map(|_| draw::bell(rng)).collect();
    match data {
        Data::Ordinary | Data::Wide => {}
        Data::Zeros => x.iter_mut().for_each(|x| *x *= [0.0, -0.0, 1.0][rng.usize(..3)]),
        Data::NonFinite => {
            for _ in 0..slots / 64 {
                let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
                x[rng.usize(..slots * HEAD_DIM)] = special[rng.usize(..3)];
            }
        }
    }
    let key = Key::new(slots, *layout).scale(spec.kv_scale);
    let rounded = encode(&x, spec.dtype);
    cache::insert(&key, 0..slots, &x, &rounded, &mut bytes);
    if data == Data::Zeros {
        extremes(rng, layout, &mut bytes);
    }
    bytes
}

/// Gives a few slots the largest and smallest scales, and FP8 subnormals.
fn extremes(rng: &mut Rng, layout: &CacheLayout, bytes: &mut [u8]) {
    for _ in 0..layout.capacity() / 16 {
        let slot = rng.usize(..layout.capacity());
        let scale = [0, 1, 127, 134][rng.usize(..4)];
        bytes[layout.scales(slot)].fill(scale);
        if layout.format.fp8().is_some() {
            let data = layout.data(slot);
            bytes[data.start..data.start + NOPE_DIM].fill(rng.u8(..8));
        }
    }
}

fn sink(rng: &mut Rng, data: Data) -> f32 {
    match (data, rng.usize(..4)) {
        (Data::NonFinite, 0) => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.usize(..3)],
        (Data::Wide, _) => 40.0 * draw::bell(rng),
        _ => draw::bell(rng),
    }
}

/// Slots and lengths of a list.
fn entries(
    rng: &mut Rng,
    spec: &Spec,
    list: &SlotList,
    cache: &CacheLayout,
    pattern: SlotPattern,
) -> (Vec<u8>, Vec<u8>) {
    let (low, high) = match list.index_type {
        Index::I64 => (i64::MIN, i64::MAX),
        Index::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let capacity = cache.capacity() as i64;
    let slot = |entry: usize| {
        let slot = rng.i64(0..capacity);
        let third = entry.is_multiple_of(3);
        match pattern {
            SlotPattern::Some if third => [-1, -2, low][entry / 3 % 3],
            SlotPattern::Outside if third => [capacity, high, low][entry / 3 % 3],
            SlotPattern::Chunks if (entry % list.count / 64).is_multiple_of(2) => -1,
            SlotPattern::None => -1,
            _ => slot,
        }
    };
    let slots: Vec<i64> = (0..spec.tokens * list.count).map(slot).collect();
    let lens = (0..spec.tokens).map(|_| rng.usize(..=list.count) as i64).collect();
    let lens = list.lens.map(|index| draw::indices(lens, index));
    (draw::indices(slots, list.index_type), lens.unwrap_or_default())
}
