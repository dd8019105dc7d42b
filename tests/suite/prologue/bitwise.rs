//! The catalogue, and golden files of others.

use crate::support::{exact_executors, file, half_of_the_smallest, reference, run_exact, shared};
use mla_prologue::{
    operator::prologue::{Call, Tensors},
    reference::{cache, numbers, quant},
};
use mla_prologue_cases::{
    Executor,
    prologue::{self, Case, Data, catalogue},
};
use rstest::rstest;
use safetensors::SafeTensors;
use std::fs;

#[rstest]
fn the_matrix_is_equal_bit_for_bit(#[values(1, 3, 5, 7, 8, 16, 24, 40, 64, 96, 128)] heads: usize) {
    let _guard = shared();
    for executor in exact_executors() {
        let cases = catalogue::matrix().into_iter();
        let cases = cases.filter(|case| case.spec.query.is_some_and(|query| query.heads == heads));
        let mut count = 0;
        for case in cases {
            run_exact(&case.call().expect("a valid case"), &executor, &case.to_string());
            count += 1;
        }
        assert!(count > 0, "no case with {heads} heads");
    }
}

#[test]
fn the_modes_are_equal_bit_for_bit() {
    let _guard = shared();
    for executor in exact_executors() {
        for case in catalogue::modes() {
            run_exact(&case.call().expect("a valid case"), &executor, &case.to_string());
        }
    }
}

/// A compiler that makes the division by 512 and the addition of `eps` one operation rounds once.
#[test]
fn the_mean_is_rounded_before_eps_is_added() {
    let _guard = shared();
    for executor in exact_executors() {
        run_exact(&half_of_the_smallest(), &executor, "half of the smallest number");
    }
}

/// Every value of every dimension that the matrix promises is in it.
#[test]
fn the_matrix_is_complete() {
    let cases = catalogue::matrix();
    let count = |holds: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| holds(case)).count();
    for tokens in [0, 1, 4, 17, 33, 64, 129] {
        assert!(count(&|case| case.spec.tokens == tokens) >= 50, "{tokens} tokens");
        for block_size in [1, 2, 16, 64, 256] {
            let with = |case: &Case| {
                case.spec.tokens == tokens
                    && case.spec.key.is_some_and(|key| key.cache.block_size == block_size)
            };
            assert!(count(&with) > 0, "{tokens} tokens in blocks of {block_size}");
        }
        for data in Data::ALL {
            assert!(
                count(&|case| case.spec.tokens == tokens && case.data == data) > 0,
                "{tokens} tokens, {data}"
            );
        }
    }
    let key = |case: &Case| case.spec.key.expect("a key");
    assert!(count(&|case| key(case).cache.block_stride > 1 << 20) > 20, "megabyte strides");
    assert!(count(&|case| key(case).slot_count == 0 && case.spec.tokens > 0) > 20, "no slots");
    assert!(
        count(&|case| key(case).slot_count < case.spec.tokens) > 100,
        "fewer slots than tokens"
    );
    assert!(count(&|case| !case.spec.query.expect("a query").norm) > 100, "no norm");
}

/// Results of an independent evaluation of the reference, in numpy.
#[rstest]
#[case("examples/basic.safetensors", "basic")]
#[case("examples/f16.safetensors", "f16")]
#[case("tests/data/scale_edges.safetensors", "scale_edges")]
#[case("tests/data/zero_and_tiny_kv.safetensors", "zero_and_tiny_kv")]
fn golden_files_are_reproduced(#[case] input: &str, #[case] name: &str) {
    let _guard = shared();
    let call = prologue::read(&file(input)).expect("a readable example");
    let expected =
        fs::read(file(&format!("tests/data/{name}.expect.safetensors"))).expect("golden data");
    let expected = SafeTensors::deserialize(&expected).expect("golden data");
    for executor in exact_executors().into_iter().chain([Executor::Reference]) {
        let got = executor.result(&call).expect("the executor runs");
        check_golden(&call, &got, &expected, &executor.describe());
    }
}

fn check_golden(call: &Call, got: &Tensors<Vec<u8>>, expected: &SafeTensors, executor: &str) {
    let tensor = |name| expected.tensor(name).expect("a golden tensor").data();
    assert!(got.q_out == tensor("q_out"), "q_out on {executor}");
    let cache = call.problem().spec().key.expect("a key").cache;
    let slots = tensor("slots")
        .chunks_exact(8)
        .map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8")));
    let rows = tensor("data").chunks_exact(576).zip(tensor("scales").chunks_exact(8));
    let mut count = 0;
    for (slot, (data, scales)) in slots.zip(rows) {
        assert!(&got.kv_cache[cache.data(slot as usize)] == data, "slot {slot} on {executor}");
        assert!(
            &got.kv_cache[cache.scales(slot as usize)] == scales,
            "scales of slot {slot} on {executor}"
        );
        count += 1;
    }
    assert!(count > 0, "no slot in the golden data");
}

/// Reading a slot back gives the values that were stored, within half a step of FP8.
#[test]
fn a_slot_reads_back() {
    let call = prologue::read(&file("examples/basic.safetensors")).expect("a readable example");
    let output = reference(&call);
    let (spec, Tensors { kv, .. }) = (call.problem().spec(), call.tensors());
    let key = spec.key.expect("a key");
    let kv_cache = &output.tensors().kv_cache;
    for (token, slot) in cache::inserted(call.slots()) {
        let read = cache::read(&key.cache, spec.dtype, None, kv_cache, slot);
        for (i, value) in read.iter().enumerate().take(448) {
            let at = (token * 512 + i) * 2;
            let x = numbers::from_float16(u16::from_le_bytes([kv[at], kv[at + 1]]), spec.dtype);
            let scale = quant::decode_scale(kv_cache[key.cache.scales(slot)][i / 64]);
            let step = (x.abs() / scale).max(1.0 / 64.0).log2().floor().exp2() / 8.0 * scale;
            assert!(
                (value - x).abs() <= step / 2.0,
                "token {token}, value {i}: {x} reads back as {value}"
            );
        }
    }
}
