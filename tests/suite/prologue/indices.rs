//! What the unchecked form does with indices that are wrong, and the checked one says of them.

use crate::{
    prologue::faults::ordinary,
    support::{buffers, exact_devices, i64s, of_problem, reference, shared, spec},
};
use mla_prologue::{
    kernel::{Device, prologue::launch},
    operator::{
        Kind,
        prologue::{Call, Problem, Tensors},
    },
};
use rstest::rstest;

/// Launches without a check; what the call wrote.
fn unchecked(device: &Device, problem: &Problem, tensors: &Tensors<Vec<u8>>) -> [Vec<u8>; 2] {
    let buffers = buffers(device, problem, tensors);
    launch(device, problem, &buffers).expect("the indices are not checked");
    let sizes = problem.sizes();
    [(buffers.q_out, sizes.q_out), (buffers.kv_cache, sizes.kv_cache)].map(|(buffer, bytes)| {
        device.read(&buffer.expect("it is used"), bytes).expect("the device runs")
    })
}

#[rstest]
#[case::past_the_end(8 * 4 + 4)]
#[case::far(1 << 40)]
#[case::largest(i64::MAX)]
fn a_slot_past_the_cache_is_not_inserted(#[case] slot: i64) {
    let _guard = shared();
    let call = ordinary(spec(32), 3);
    let (problem, mut tensors) = (*call.problem(), call.into_tensors());
    tensors.slot_mapping = i64s([slot; 32]);
    for device in exact_devices() {
        let [_, cache] = unchecked(&device, &problem, &tensors);
        assert!(cache == tensors.kv_cache, "the cache changed on {}", device.name());
    }
    let error = Call::new(problem, tensors).expect_err("the checked form looks");
    assert_eq!((error.argument.as_str(), error.kind), ("slot_mapping[0]", Kind::Index));
}

/// Such a token is not inserted, and its heads are normalized but not rotated.
#[rstest]
#[case::past_the_end(32)]
#[case::negative(-1)]
#[case::far(1 << 33)]
fn a_position_outside_the_table_is_not_rotated(#[case] position: i64) {
    let _guard = shared();
    let call = ordinary(spec(4), 3);
    let problem = *call.problem();
    let plain = spec(4).query(problem.spec().query.map(|query| query.rope(false))).key(None);
    let unrotated = of_problem(call.clone(), plain.validate().expect("valid"), |tensors| {
        tensors.positions = i64s([0; 4]);
        (tensors.kv, tensors.slot_mapping, tensors.kv_cache) = Default::default();
    });
    let want = reference(&unrotated);
    let mut tensors = call.into_tensors();
    tensors.positions = i64s([position; 4]);
    for device in exact_devices() {
        let [q_out, cache] = unchecked(&device, &problem, &tensors);
        assert!(q_out == want.tensors().q_out, "q_out on {}", device.name());
        assert!(cache == tensors.kv_cache, "the cache on {}", device.name());
    }
    let error = Call::new(problem, tensors).expect_err("the checked form looks");
    assert_eq!((error.argument.as_str(), error.kind), ("positions[0]", Kind::Index));
}

#[test]
fn a_slot_used_twice_is_refused() {
    let call = ordinary(spec(4), 3);
    let (problem, mut tensors) = (*call.problem(), call.into_tensors());
    tensors.slot_mapping = i64s([5, -1, 6, 5]);
    let error = Call::new(problem, tensors).expect_err("5 is there twice");
    assert_eq!(
        error.to_string(),
        "slot_mapping[3] is 5; it must be a slot of its own: slot_mapping[0] is the same"
    );
}
