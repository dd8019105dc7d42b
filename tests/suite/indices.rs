//! What the unchecked form does with indices that are wrong, and the checked one says of them.

use crate::support::{exact_devices, i64s, shared, spec};
use mla_prologue::{
    Call,
    catalogue::{Case, Data, Slots},
    kernel::{Buffers, launch},
};
use rstest::rstest;

fn call(tokens: usize) -> Call {
    let case = Case { spec: spec(tokens), data: Data::Ordinary, slots: Slots::Shuffled, seed: 3 };
    case.call().expect("a sensible case")
}

#[rstest]
#[case::past_the_end(8 * 4 + 4)]
#[case::far(1 << 40)]
#[case::largest(i64::MAX)]
fn a_slot_past_the_cache_is_not_inserted(#[case] slot: i64) {
    let _guard = shared();
    let mut call = call(32);
    call.slot_mapping = i64s([slot; 32]);
    for device in exact_devices() {
        let cache = device.client().create_from_slice(&call.kv_cache);
        let q_out = device.client().create_from_slice(&vec![0xAA; call.problem.q_out_bytes()]);
        let buffers = Buffers {
            q_out: Some(q_out),
            kv_cache: Some(cache.clone()),
            ..Buffers::upload(&device, &call.problem, &call.inputs())
        };
        launch(&device, &call.problem, &buffers).expect("the indices are not looked at");
        let got = device.client().read_one(cache).expect("the device runs");
        assert!(
            got[..call.kv_cache.len()] == call.kv_cache,
            "the cache changed on {}",
            device.name()
        );
        let error = call.inputs().check(&call.problem).expect_err("the checked form looks");
        assert_eq!(error.argument, "slot_mapping[0]");
    }
}

/// Such a token is not inserted, and its heads are normalized but not rotated.
#[rstest]
#[case::past_the_end(32)]
#[case::negative(-1)]
#[case::far(1 << 33)]
fn a_position_outside_the_table_is_not_rotated(#[case] position: i64) {
    let _guard = shared();
    let mut call = call(4);
    call.positions = i64s([position; 4]);
    let mut unrotated = call.clone();
    let mut plain = *call.problem;
    plain.query.as_mut().expect("a query").rope = false;
    plain.key = None;
    unrotated.problem = plain.validate().expect("sensible");
    unrotated.positions = i64s([0; 4]);
    (unrotated.kv, unrotated.slot_mapping, unrotated.kv_cache) = Default::default();
    let want = unrotated.run(&mla_prologue::Target::Reference).expect("the reference runs");
    for device in exact_devices() {
        let client = device.client();
        let [q_out, cache] = [vec![0xAA; call.problem.q_out_bytes()], call.kv_cache.clone()]
            .map(|bytes| client.create_from_slice(&bytes));
        let buffers = Buffers {
            q_out: Some(q_out.clone()),
            kv_cache: Some(cache.clone()),
            ..Buffers::upload(&device, &call.problem, &call.inputs())
        };
        launch(&device, &call.problem, &buffers).expect("the indices are not looked at");
        let [got, cache] =
            [q_out, cache].map(|handle| client.read_one(handle).expect("the device runs"));
        assert!(got[..want.q_out.len()] == want.q_out, "q_out on {}", device.name());
        assert!(cache[..call.kv_cache.len()] == call.kv_cache, "the cache on {}", device.name());
        let error = call.inputs().check(&call.problem).expect_err("the checked form looks");
        assert_eq!(error.argument, "positions[0]");
    }
}

#[test]
fn a_slot_used_twice_is_refused() {
    let mut call = call(4);
    call.slot_mapping = i64s([5, -1, 6, 5]);
    let error = call.inputs().check(&call.problem).expect_err("5 is there twice");
    assert_eq!(
        error.to_string(),
        "slot_mapping[3] is 5; it must be a slot of its own: slot_mapping[0] is the same"
    );
}
