//! The output that remembers its zeros: after whatever calls, it holds what a fresh output would.

use crate::{
    prologue::faults::ordinary,
    support::{buffers, exact_devices, reference, shared, spec},
};
use mla_prologue::{
    kernel::prologue::Workspace,
    operator::{
        CacheFormat, CacheLayout, Fp8,
        prologue::{Key, Query, Spec},
    },
};
use proptest::prelude::*;

/// Tokens, live heads, ppadding heads, and whether the output is FP8.
type Step = (usize, usize, usize, bool);

fn problem((tokens, heads, padded_heads, fp8): Step) -> Spec {
    let cache = CacheLayout::new(CacheFormat::RowsFp8 { fp8: Fp8::E4m3fn }, 1, tokens + 1);
    let key = Key::new(tokens, cache).scale(Some(1.0));
    let query = Query::new(heads.min(padded_heads), padded_heads).scale(fp8.then_some(0.5));
    spec(tokens).query(query).key(key)
}

fn bytes(step: Step) -> usize {
    problem(step).validate().expect("valid").sizes().q_out
}

fn check(steps: &[Step]) {
    for device in exact_devices() {
        let largest = steps.iter().map(|&step| bytes(step)).max().unwrap_or(0);
        let mut workspace = Workspace::new(&device, largest);
        for (seed, &step) in steps.iter().enumerate() {
            let call = ordinary(problem(step), seed as u64);
            let buffers = buffers(&device, call.problem(), call.tensors());
            workspace.launch(&device, call.problem(), &buffers).expect("the call is queued");
            let got = workspace.read(&device).expect("the device runs");
            assert!(
                got == reference(&call).tensors().q_out,
                "step {seed} of {steps:?} on {}",
                device.name()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_calls_gives_what_fresh_outputs_would(
        steps in prop::collection::vec((0usize..6, 1usize..9, prop::sample::select(vec![8usize, 9]), any::<bool>()), 1..10)
    ) {
        let _guard = shared();
        check(&steps);
    }
}

#[test]
fn growing_and_shrinking_heads_and_tokens() {
    let _guard = shared();
    check(&[
        (5, 2, 8, false),
        (5, 2, 8, false),
        (5, 6, 8, false),
        (3, 2, 8, false),
        (5, 2, 8, false),
        (5, 7, 8, false),
    ]);
}

#[test]
fn a_call_finds_its_zeros_only_where_they_are() {
    let _guard = shared();
    for device in exact_devices() {
        let mut workspace = Workspace::new(&device, bytes((6, 1, 9, false)));
        let expected = [
            ((4, 2, 8, false), false), // fresh
            ((4, 2, 8, false), true),
            ((3, 2, 8, false), true),  // fewer tokens
            ((4, 3, 8, false), true),  // more live heads
            ((4, 2, 8, false), false), // fewer live heads
            ((5, 2, 8, false), false), // more tokens
            ((5, 2, 9, false), false), // another padding
            ((5, 2, 9, true), false),  // another type
        ];
        for (step, zero) in expected {
            let call = ordinary(problem(step), 0);
            assert_eq!(workspace.padding_is_zero(call.problem()), zero, "{step:?}");
            let buffers = buffers(&device, call.problem(), call.tensors());
            workspace.launch(&device, call.problem(), &buffers).expect("the call is queued");
        }
    }
}

#[test]
fn a_workspace_that_is_too_small_is_refused() {
    let _guard = shared();
    for device in exact_devices() {
        let call = ordinary(spec(4), 0);
        let mut workspace = Workspace::new(&device, call.problem().sizes().q_out - 1);
        let buffers = buffers(&device, call.problem(), call.tensors());
        let error =
            workspace.launch(&device, call.problem(), &buffers).expect_err("one byte is missing");
        assert!(error.to_string().contains("at least the 32768 bytes of q_out"), "{error}");
    }
}
