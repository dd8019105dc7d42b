//! Comparison of what a call wrote with what the reference gives.

use super::truth::{Truth, truths};
use crate::{Comparison, Rule};
use mla_prologue_operator::{
    Float16, HEAD_DIM,
    attend::{Call, Tensors},
};
use mla_prologue_reference::numbers::{Rows, decode_rows, from_f32_bytes};

/// Compares what a call wrote with what the reference wrote: `want` after it was run.
pub fn compare(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule) -> Comparison {
    let mut found = Comparison::default();
    compare_pads(want, got, &mut found);
    match rule {
        Rule::Exact | Rule::Band => {
            compare_out(want, got, rule, &mut found);
            compare_stats(want, got, rule, &mut found);
            found.limit_near()
        }
        Rule::Bound => {
            compare_bound(want, got, &mut found);
            found
        }
    }
}

/// The rows of heads, with their token and head.
fn rows<'a>(
    want: &Call,
    want_out: &'a [u8],
    got_out: &'a [u8],
) -> impl Iterator<Item = (usize, usize, &'a [u8], &'a [u8])> + use<'a> {
    let heads = want.problem().spec().padded_heads;
    let rows = want_out.chunks_exact(2 * HEAD_DIM).zip(got_out.chunks_exact(2 * HEAD_DIM));
    rows.enumerate().map(move |(row, (want, got))| (row / heads, row % heads, want, got))
}

/// Padding heads are +0 by every rule.
fn compare_pads(want: &Call, got: &Tensors<Vec<u8>>, found: &mut Comparison) {
    let heads = want.problem().spec().heads;
    let all = rows(want, &want.tensors().out, &got.out).filter(|(_, head, ..)| *head >= heads);
    for (token, head, _, got) in all {
        found.values += HEAD_DIM;
        if got.iter().any(|byte| *byte != 0) {
            found.wrong(|| format!("out[{token}, {head}] is not zero, and is a padding head"));
        }
    }
}

fn compare_out(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule, found: &mut Comparison) {
    let spec = want.problem().spec();
    let all = rows(want, &want.tensors().out, &got.out).filter(|(_, head, ..)| *head < spec.heads);
    for (token, head, want, got) in all {
        found.values += HEAD_DIM;
        for (i, (want, got)) in want.chunks_exact(2).zip(got.chunks_exact(2)).enumerate() {
            found.judge(want, got, spec.dtype, rule, || format!("out[{token}, {head}, {i}]"));
        }
    }
}

/// Units in the last place that `max` and `sum` may be off in band.
const STATS_BAND: u32 = 2;

fn compare_stats(want: &Call, got: &Tensors<Vec<u8>>, rule: Rule, found: &mut Comparison) {
    let spec = want.problem().spec();
    let tensors = want.tensors();
    let nan = |row: usize| {
        let at = (row / spec.heads * spec.padded_heads + row % spec.heads) * 2 * HEAD_DIM;
        let first = decode_rows(&tensors.out[at..at + 2 * HEAD_DIM], spec.dtype, &Rows::at([0]));
        first.iter().all(|x| x.is_nan())
    };
    let pairs = [("max", &tensors.max, &got.max), ("sum", &tensors.sum, &got.sum)];
    for (name, want, got) in pairs {
        let values = from_f32_bytes(want).into_iter().zip(from_f32_bytes(got)).enumerate();
        for (row, (want, got)) in values {
            found.values += 1;
            let zero = name == "max" && want == 0.0 && got == 0.0;
            let off = want.to_bits().abs_diff(got.to_bits());
            if off == 0 || zero || want.is_nan() || nan(row) {
                continue;
            }
            let at = format!("{name}[{}, {}]", row / spec.heads, row % spec.heads);
            match rule == Rule::Band && off <= STATS_BAND {
                true => found.near += 1,
                false => found.wrong(|| format!("{at} is {got:e}, must be {want:e}")),
            }
        }
    }
}

/// The unit of rounding and the least magnitude that it is a share of.
const fn unit(dtype: Float16) -> (f64, f64) {
    match dtype {
        Float16::Bf16 => (1.0 / 256.0, 1.0 / (1u128 << 100) as f64),
        Float16::F16 => (1.0 / 1024.0, 1.0 / 8192.0),
    }
}
/// What the weights may be off, for weights in 16 bits.
const WEIGHT: f64 = 1.0 / 128.0;
/// What max + ln(sum) may be off.
const LSE: f64 = 1.0 / 16384.0;

fn compare_bound(call: &Call, got: &Tensors<Vec<u8>>, found: &mut Comparison) {
    let spec = call.problem().spec();
    let (unit, least) = unit(spec.dtype);
    let (max, sum) = (from_f32_bytes(&got.max), from_f32_bytes(&got.sum));
    let truths = truths(call);
    let all = rows(call, &call.tensors().out, &got.out).filter(|(_, head, ..)| *head < spec.heads);
    for (token, head, want, got) in all {
        found.values += HEAD_DIM;
        let at = |i: usize| format!("out[{token}, {head}, {i}]");
        let row = token * spec.heads + head;
        let truth = &truths[row];
        let (max, sum) = (f64::from(max[row]), f64::from(sum[row]));
        let lse = if sum == 0.0 { f64::NEG_INFINITY } else { max + sum.ln() };
        let [want, got] = [want, got].map(|row| decode_rows(row, spec.dtype, &Rows::at([0])));
        let Some(Truth { out, spread, .. }) = truth.head.as_ref() else {
            // No entries, or a sink that takes everything.
            if let Some(i) = got.iter().position(|x| x.to_bits() != 0) {
                found.wrong(|| format!("{} is {:e}, must be 0", at(i), got[i]));
            }
            judge_lse(truth.lse, lse, token, head, found);
            continue;
        };
        let nan = want.iter().all(|x| x.is_nan());
        for (i, got) in got.iter().enumerate() {
            let (got, exact) = (f64::from(*got), if nan { f64::NAN } else { out[i] });
            let bound = unit * exact.abs().max(least) + WEIGHT * spread[i];
            judge_share((got - exact).abs() / bound, (got, exact), || at(i), found);
        }
        if !nan {
            judge_lse(truth.lse, lse, token, head, found);
        }
    }
}

fn judge_lse(want: f64, got: f64, token: usize, head: usize, found: &mut Comparison) {
    let share = (got - want).abs() / (LSE * want.abs().max(1.0));
    judge_share(share, (got, want), || format!("max + ln(sum) of [{token}, {head}]"), found);
}

/// Judges an error by its share of the bound; what is not finite must be the same.
fn judge_share(
    share: f64,
    (got, want): (f64, f64),
    at: impl Fn() -> String,
    found: &mut Comparison,
) {
    if !(got.is_finite() && want.is_finite()) {
        if got != want && !(got.is_nan() && want.is_nan()) {
            found.wrong(|| format!("{} is {got:e}, must be {want:e}", at()));
        }
        return;
    }
    found.worst = found.worst.max(share);
    if share > 1.0 {
        found.wrong(|| format!("{} is {got:e}, must be {want:e} within 1 of {share:.2}", at()));
    }
}
