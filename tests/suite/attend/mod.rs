//! Attention over the paged cache: the kernel against the reference, and the reference against the truth.

#[cfg(feature = "burn")]
mod burn;
mod hostile;

use crate::support::{exact_executors, file, float16s, i64s, reference, run_exact, shared};
use mla_prologue::{
    kernel::attend::{Call, Entries, Problem, SlotList, Spec, Tensors},
    operator::{CacheFormat, CacheLayout, Float16, HEAD_DIM, Index},
    reference::numbers::to_float16,
};
use mla_prologue_cases::{
    Executor, Rule,
    attend::{self, Case, Data, SlotPattern, catalogue, compare},
};
use rstest::rstest;
use safetensors::SafeTensors;
use std::fs;

#[test]
fn the_modes_are_equal_bit_for_bit() {
    let _guard = shared();
    for executor in exact_executors() {
        for case in catalogue::modes() {
            run_exact(&case.call().expect("a valid case"), &executor, &case.to_string());
        }
    }
}

/// A mistake in the reference itself would be none to the kernel.
#[test]
fn the_reference_is_within_the_bound_of_the_truth() {
    let mut worst = 0f64;
    for case in catalogue::modes() {
        let call = reference(&case.call().expect("a valid case"));
        let found = compare(&call, call.tensors(), Rule::Bound);
        assert!(found.holds(), "{case}: {:?}", found.first);
        worst = worst.max(found.worst);
    }
    // One rounding of the output takes about a third of the bound.
    assert!((0.2..0.6).contains(&worst), "the worst error is {worst} of the bound");
}

/// What the bound is for: an entry that is left out, or a scale that is a bit wrong, is beyond it.
#[rstest]
#[case::an_entry_left_out(|tensors: &mut Tensors<Vec<u8>>, spec: &Spec| {
    let capacity = spec.cache.capacity() as i32;
    let slots = tensors.slots.chunks_exact_mut(4);
    let mut counted = slots.filter(|slot| {
        let slot = i32::from_le_bytes((&**slot).try_into().expect("4 bytes"));
        (0..capacity).contains(&slot)
    });
    counted.next().expect("one counts").copy_from_slice(&(-1i32).to_le_bytes());
})]
#[case::two_entries_that_are_another(|tensors: &mut Tensors<Vec<u8>>, _: &Spec| {
    let other: Vec<u8> = tensors.slots[8..16].to_vec();
    tensors.slots[..8].copy_from_slice(&other);
})]
#[case::queries_of_another_head(|tensors: &mut Tensors<Vec<u8>>, _: &Spec| {
    tensors.q[..2 * HEAD_DIM].reverse();
})]
fn the_bound_sees(#[case] fault: fn(&mut Tensors<Vec<u8>>, &Spec)) {
    let call = list(2, 3, 40);
    let mut wrong = edited(&call, |tensors| fault(tensors, call.problem().spec()));
    let right = reference(&call);
    wrong = reference(&wrong);
    assert!(!compare(&right, wrong.tensors(), Rule::Bound).holds());
    assert!(compare(&right, right.tensors(), Rule::Bound).holds());
}

#[test]
fn the_bound_sees_a_scale_that_is_a_bit_wrong() {
    let call = list(2, 3, 40);
    let scaled = call.problem().spec().scale(call.problem().spec().scale * 1.05);
    let wrong = Call::new(scaled.validate().expect("valid"), call.tensors().clone());
    let wrong = reference(&wrong.expect("the same tensors"));
    assert!(!compare(&reference(&call), wrong.tensors(), Rule::Bound).holds());
}

/// Results of an independent evaluation of the definition, in numpy.
#[rstest]
#[case("examples/attend.safetensors", "attend")]
#[case("tests/data/attend_window.safetensors", "attend_window")]
fn golden_files_are_reproduced(#[case] input: &str, #[case] name: &str) {
    let _guard = shared();
    let call = attend::read(&file(input)).expect("a readable example");
    let expected =
        fs::read(file(&format!("tests/data/{name}.expect.safetensors"))).expect("golden data");
    let expected = SafeTensors::deserialize(&expected).expect("golden data");
    let tensor = |name| expected.tensor(name).expect("a golden tensor").data();
    for executor in exact_executors().into_iter().chain([Executor::Reference]) {
        let got = executor.result(&call).expect("the executor runs");
        for (name, got) in [("out", &got.out), ("max", &got.max), ("sum", &got.sum)] {
            assert!(got == tensor(name), "{name} on {}", executor.describe());
        }
    }
}

/// A token alone, in every batch around it and at any place in it, beside tokens with other lists, has the same bits.
#[rstest]
#[case(1, 3)]
#[case(5, 64)]
#[case(16, 65)]
#[case(17, 130)]
fn a_token_is_the_same_in_every_batch(#[case] heads: usize, #[case] count: usize) {
    let _guard = shared();
    let tokens = 7;
    let call = list(tokens, heads, count);
    for executor in exact_executors() {
        let whole = run_exact(&call, &executor, "the whole batch");
        for first in 0..tokens {
            for end in first + 1..=tokens {
                let got = executor.result(&part(&call, first, end)).expect("the executor runs");
                let rows = first * heads * HEAD_DIM * 2..end * heads * HEAD_DIM * 2;
                assert!(got.out == whole.out[rows], "tokens {first} to {end}");
            }
        }
        let reversed = executor.result(&reversed(&call)).expect("the executor runs");
        let rows: Vec<&[u8]> = whole.out.chunks(heads * HEAD_DIM * 2).rev().collect();
        assert!(reversed.out == rows.concat(), "in the opposite order");
    }
}

/// Entries that do not count leave a -0 as it is, which adding +0 would not.
#[test]
fn minus_zero_is_kept() {
    let _guard = shared();
    let call = minus_zero();
    let want = reference(&call);
    let negative = |bytes: &&[u8]| *bytes == [0, 0x80];
    assert_eq!(want.tensors().out.chunks(2).filter(negative).count(), HEAD_DIM - 1);
    for executor in exact_executors() {
        run_exact(&call, &executor, "a product that vanishes");
    }
}

/// One head over three slots, of which the last does not count; the second's weight times its values is a negative number so small
/// that it becomes -0.
pub fn minus_zero() -> Call {
    let cache = CacheLayout::new(CacheFormat::Rows16Bit, 4, 1);
    let list = SlotList::new(3).index_type(Index::I32);
    let problem = Spec::new(1, 1, cache, Entries::Slots(list)).validate().expect("valid");
    let row = |first: f32, rest: f32| {
        let values = (0..HEAD_DIM).map(|i| if i == 0 { first } else { rest });
        float16s(values.map(|value| to_float16(value, Float16::Bf16)))
    };
    let tiny = -2f32.powi(-130);
    let tensors = Tensors {
        q: row(10.0, 0.0),
        kv_cache: [row(100.0, 0.0), row(0.0, tiny), row(0.0, 0.0), row(0.0, 0.0)].concat(),
        slots: [0i32, 1, -1].into_iter().flat_map(i32::to_le_bytes).collect(),
        out: vec![0; problem.sizes().out],
        ..Tensors::default()
    };
    Call::new(problem, tensors).expect("tensors that fit")
}

/// Where a list ends, the chunks of the next are not moved, and entries that do not count may be anywhere.
#[test]
fn a_window_is_the_list_of_its_tokens() {
    let _guard = shared();
    let by_table = windowed();
    let spec = *by_table.problem().spec();
    let tensors = by_table.tensors().as_ref().map(Vec::as_slice);
    let slots = by_table.problem().slots(&tensors);
    let slots = i64s(slots.into_iter().map(|slot| slot.map_or(-1, |slot| slot as i64)));
    let entries = Entries::Slots(SlotList::new(spec.count()).index_type(Index::I64));
    let by_list = spec.entries(entries).validate().expect("valid");
    let tensors = Tensors { slots, block_table: Vec::new(), ..by_table.tensors().clone() };
    let by_list = Call::new(by_list, tensors).expect("tensors that fit");
    for executor in exact_executors().into_iter().chain([Executor::Reference]) {
        let table = executor.result(&by_table).expect("the executor runs");
        let list = executor.result(&by_list).expect("the executor runs");
        assert!((table.out, table.max, table.sum) == (list.out, list.max, list.sum));
    }
}

/// A call over windows of sequences.
pub fn windowed() -> Call {
    attend::read(&file("tests/data/attend_window.safetensors")).expect("an example")
}

/// A call over a list of slots, some of which do not count.
pub fn list(tokens: usize, heads: usize, count: usize) -> Call {
    let cache = CacheLayout::new(CacheFormat::default(), 16, 12);
    let spec = Spec::new(tokens, heads, cache, Entries::Slots(SlotList::new(count)));
    let spec = spec.sinks(true).stats(true);
    let case = Case { spec, data: Data::Ordinary, slots: SlotPattern::Outside, seed: 7 };
    case.call().expect("a valid case")
}

/// The call with other tensors.
pub fn edited(call: &Call, edit: impl FnOnce(&mut Tensors<Vec<u8>>)) -> Call {
    let mut tensors = call.tensors().clone();
    edit(&mut tensors);
    Call::new(*call.problem(), tensors).expect("tensors that fit")
}

/// Some of the tokens of a call over a list.
fn part(call: &Call, first: usize, end: usize) -> Call {
    let spec = call.problem().spec();
    let problem: Problem = spec.tokens(end - first).validate().expect("valid");
    let rows = |bytes: &Vec<u8>| {
        let row = bytes.len() / spec.tokens;
        bytes[first * row..end * row].to_vec()
    };
    let tensors = call.tensors();
    let tensors = Tensors {
        q: rows(&tensors.q),
        slots: rows(&tensors.slots),
        out: rows(&tensors.out),
        max: rows(&tensors.max),
        sum: rows(&tensors.sum),
        ..tensors.clone()
    };
    Call::new(problem, tensors).expect("tensors that fit")
}

/// The tokens of a call over a list in the opposite order.
fn reversed(call: &Call) -> Call {
    let tokens = call.problem().spec().tokens;
    edited(call, |tensors| {
        for bytes in [&mut tensors.q, &mut tensors.slots] {
            let row = bytes.len() / tokens;
            *bytes = bytes.chunks(row).rev().flatten().copied().collect();
        }
    })
}
