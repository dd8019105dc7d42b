//! Comparison of what a call wrote with what the reference gives.

use mla_prologue_kernel::Runtime;
use mla_prologue_operator::{
    CacheFormat, Float16, HEAD_DIM, NOPE_DIM,
    prologue::{Call, Tensors},
};
use mla_prologue_reference::numbers::from_float16;
use std::ops::Range;

/// How alike two outputs must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every bit; only the payload of a 16-bit NaN is free.
    Exact,
    /// What rounding of division and square root reaches may be one unit in the last place off, in at
    /// most one value of a hundred: queries and RoPE values. Everything else is exact.
    Band,
}

impl Rule {
    /// The rule for a device of this runtime.
    pub fn of(runtime: Runtime) -> Self {
        if runtime.is_exact() { Self::Exact } else { Self::Band }
    }
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Values compared.
    pub values: usize,
    /// Values that differ in a way that the rule allows.
    pub near: usize,
    /// Values that are wrong.
    pub wrong: usize,
    /// The first of these, in words.
    pub first: Option<String>,
}

impl Comparison {
    /// Is nothing wrong?
    pub fn holds(&self) -> bool {
        self.wrong == 0
    }

    fn wrong(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first.get_or_insert_with(describe);
    }
}

/// Compares what a call wrote with what the reference wrote: `want` after it was run.
pub fn compare(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule) -> Comparison {
    let mut found = Comparison::default();
    compare_q(want, got, rule, &mut found);
    compare_cache(want, got, rule, &mut found);
    // Not more than one in a hundred, but two in small tensors.
    if found.near > (found.values / 100).max(2) {
        let (near, values) = (found.near, found.values);
        found.wrong(|| format!("{near} of {values} values are one unit in the last place off"));
    }
    found
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
            judge(want, got, spec.dtype, rule, at, found);
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
            judge(want, got, spec.dtype, rule, at, found);
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

/// Judges one value of 16 bits, or of 8, which must be equal.
fn judge(
    want: &[u8],
    got: &[u8],
    dtype: Float16,
    rule: Rule,
    at: impl Fn() -> String,
    found: &mut Comparison,
) {
    let (&[want_low, want_high], &[got_low, got_high]) = (want, got) else {
        if want != got {
            found.wrong(|| format!("{} is {got:02x?}, must be {want:02x?}", at()));
        }
        return;
    };
    let [want, got] = [[want_low, want_high], [got_low, got_high]].map(u16::from_le_bytes);
    let [want_value, got_value] = [want, got].map(|bits| from_float16(bits, dtype));
    if want == got || (want_value.is_nan() && got_value.is_nan()) {
        return;
    }
    let finite = !want_value.is_nan() && !got_value.is_nan();
    if rule == Rule::Band && finite && ordinal(want).abs_diff(ordinal(got)) <= 1 {
        found.near += 1;
        return;
    }
    found.wrong(|| {
        format!("{} is {got:#06x} ({got_value:e}), must be {want:#06x} ({want_value:e})", at())
    });
}

/// Integers in the order of the 16-bit values; both zeros are 0.
fn ordinal(bits: u16) -> i32 {
    let magnitude = i32::from(bits & 0x7FFF);
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}
