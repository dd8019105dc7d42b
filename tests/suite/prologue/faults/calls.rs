//! Memory, order and counts.

use super::ordinary;
use crate::support::{
    cache, edited, exact_devices, exact_executors, float16s, i64s, of_problem, reference,
    run_exact, shared, spec,
};
use mla_prologue::{
    kernel::{
        Device,
        prologue::{Buffers, launch, upload},
    },
    operator::prologue::{Call, Key, Query},
};
use mla_prologue_cases::Executor;
use rstest::rstest;

/// Launches on a cache of `stride * blocks` bytes that is only accessed where it must be, and
/// compares the slots' bytes with those in a small cache.
fn far_slots(device: &Device, block_stride: usize, num_blocks: usize) {
    let tokens = 8;
    let near = cache(4, 4);
    let small = ordinary(spec(tokens).key(Key::new(tokens, near)), 1);
    let want = reference(&small).into_tensors().kv_cache;
    let far = cache(4, num_blocks).with_stride(block_stride);
    let problem = small.problem().spec().key(Key::new(tokens, far)).validate().expect("valid");
    // Block b of the small cache is one of the last blocks of the large one.
    let moved = |slot: i64| slot + (4 * (num_blocks - 4)) as i64;
    let slots: Vec<i64> = small.slots().collect();
    let mut tensors = small.into_tensors();
    tensors.slot_mapping = i64s(slots.iter().map(|&slot| moved(slot)));
    let client = device.client();
    let handle = client.empty(far.bytes());
    let buffers = Buffers {
        q_out: Some(client.empty(problem.sizes().q_out)),
        kv_cache: Some(handle.clone()),
        ..upload(device, &problem, &tensors)
    };
    launch(device, &problem, &buffers).expect("the call is queued");
    for slot in slots {
        for (near, far) in [
            (near.data(slot as usize), far.data(moved(slot) as usize)),
            (near.scales(slot as usize), far.scales(moved(slot) as usize)),
        ] {
            let rest = (problem.sizes().kv_cache - far.end) as u64;
            let slice = handle.clone().offset_start(far.start as u64).offset_end(rest);
            let got = client.read_one(slice).expect("the device runs");
            assert!(got[..near.len()] == want[near], "slot {slot} on {}", device.name());
        }
    }
}

#[test]
fn fault_01_block_offsets_are_64_bits_wide() {
    let _guard = shared();
    for device in exact_devices() {
        // Past 2 and 4 GiB of bytes, with few blocks.
        far_slots(&device, 1_300_000_008, 4);
        let memory = device.client().properties().memory.max_memory().unwrap_or(0);
        if memory < 40 << 30 {
            println!("{}: a cache past 32 GiB left out, memory is {memory} bytes", device.name());
            continue;
        }
        // Past 32 GiB, where 32-bit indices of 8-byte words would wrap; and many pages of an engine's size.
        far_slots(&device, 8_700_000_000, 4);
        far_slots(&device, 1_310_720, 27_000);
    }
}

#[test]
fn fault_02_gap_bytes_stay() {
    let _guard = shared();
    let layout = cache(4, 4).with_stride(4 * 584 + 1000);
    let call = ordinary(spec(9).key(Key::new(9, layout)), 2);
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "gaps").kv_cache;
        for block in 0..4 {
            let gap = block * layout.block_stride + 4 * 584..(block + 1) * layout.block_stride;
            assert!(got[gap.clone()] == call.tensors().kv_cache[gap], "the gap of block {block}");
        }
    }
}

#[test]
fn fault_03_an_undersized_cache_is_refused() {
    let _guard = shared();
    let call = ordinary(spec(4), 3);
    for device in exact_devices() {
        let client = device.client();
        let buffers = Buffers {
            q_out: Some(client.empty(call.problem().sizes().q_out)),
            kv_cache: Some(client.empty(call.problem().sizes().kv_cache - 8)),
            ..upload(&device, call.problem(), call.tensors())
        };
        let error = launch(&device, call.problem(), &buffers).expect_err("8 bytes are missing");
        assert!(error.to_string().starts_with("the size of kv_cache is"), "{error}");
        let shifted = client.empty(call.problem().sizes().kv_cache + 8).offset_start(8);
        let error =
            launch(&device, call.problem(), &Buffers { kv_cache: Some(shifted), ..buffers });
        let error = error.expect_err("words would be misaligned");
        assert_eq!(
            error.to_string(),
            "the offset of kv_cache is 8; it must be a multiple of 16 bytes"
        );
    }
}

#[rstest]
fn fault_04_negative_slots_write_nothing(#[values(-1, -2, i64::MIN)] slot: i64) {
    let _guard = shared();
    let call = edited(ordinary(spec(6), 4), |tensors| {
        tensors.kv = float16s([0x7FC0; 6 * 512]);
        tensors.slot_mapping = i64s([slot; 6]);
    });
    for executor in exact_executors() {
        assert!(run_exact(&call, &executor, "negative slots").kv_cache == call.tensors().kv_cache);
    }
}

#[rstest]
fn fault_05_fewer_slots_than_tokens(#[values(0, 1, 5)] slots: usize) {
    let _guard = shared();
    let call = ordinary(spec(7).key(Key::new(slots, cache(4, 3))), 5);
    for executor in exact_executors() {
        let got = run_exact(&call, &executor, "fewer slots").kv_cache;
        let layout = cache(4, 3);
        let before = &call.tensors().kv_cache;
        let changed = |slot: &usize| got[layout.data(*slot)] != before[layout.data(*slot)];
        assert_eq!((0..12).filter(changed).count(), slots);
    }
}

#[test]
fn fault_06_every_row_is_written_and_live_heads_do_not_depend_on_the_padding() {
    let _guard = shared();
    let narrow = ordinary(spec(5).query(Query::new(3, 3)), 6);
    let padded = spec(5).query(Query::new(3, 11)).validate().expect("valid");
    // The output is poisoned.
    let wide = of_problem(narrow.clone(), padded, |tensors| {
        tensors.q_out = vec![0xAA; 5 * 11 * 1024];
    });
    for executor in exact_executors() {
        let tight = run_exact(&narrow, &executor, "no padding").q_out;
        let wide = run_exact(&wide, &executor, "padding").q_out;
        for (tight, wide) in tight.chunks(3 * 1024).zip(wide.chunks(11 * 1024)) {
            assert!(tight == &wide[..3 * 1024], "live heads");
            assert!(wide[3 * 1024..].iter().all(|&byte| byte == 0), "padding heads");
        }
    }
}

/// Each call reads what the one before it wrote, on one stream, without waiting.
#[test]
fn fault_07_a_chain_of_calls_is_in_order() {
    let _guard = shared();
    let chain = 24;
    let query_only = spec(16).query(Query::new(8, 8)).key(None);
    let first = ordinary(query_only, 7);
    let mut last = first.clone();
    for _ in 0..chain {
        let q_out = reference(&last).into_tensors().q_out;
        last = edited(last, |tensors| tensors.q = q_out);
    }
    let (problem, want) = (first.problem(), &last.tensors().q);
    for device in exact_devices() {
        let client = device.client();
        let start = upload(&device, problem, first.tensors());
        for round in 0..3 {
            let mut buffers = start.clone();
            for _ in 0..chain {
                buffers.q_out = Some(client.empty(problem.sizes().q_out));
                launch(&device, problem, &buffers).expect("the call is queued");
                buffers.q = buffers.q_out.take();
            }
            let got = device.read(&buffers.q.expect("set above"), want.len());
            assert!(got.expect("the device runs") == *want, "round {round} on {}", device.name());
        }
    }
}

#[test]
fn fault_08_runs_are_repeatable() {
    let _guard = shared();
    let call = ordinary(spec(33), 8);
    for executor in exact_executors() {
        let first = run_exact(&call, &executor, "first run");
        for _ in 0..20 {
            assert!(executor.result(&call).expect("the executor runs") == first);
        }
    }
}

#[test]
fn fault_13_the_caller_owns_the_output() {
    let _guard = shared();
    let call = ordinary(spec(24).query(Query::new(16, 64)).key(None), 13);
    let problem = *call.problem();
    assert_eq!(problem.sizes().q_out, 24 * 64 * 1024);
    for device in exact_devices() {
        let client = device.client();
        let mut buffers = upload(&device, &problem, call.tensors());
        let error = launch(&device, &problem, &buffers).expect_err("there is no output");
        assert!(error.to_string().contains("the size of q_out is 0 bytes"), "{error}");
        let out = client.empty(problem.sizes().q_out);
        buffers.q_out = Some(out.clone());
        launch(&device, &problem, &buffers).expect("the call is queued");
        let got = device.read(&out, problem.sizes().q_out).expect("the device runs");
        assert!(got == reference(&call).tensors().q_out);
    }
}

#[test]
fn fault_14_strided_rows_are_honoured_or_refused() {
    let _guard = shared();
    let strided = |row_stride| {
        let key = Key::new(6, cache(4, 3)).row_stride(Some(row_stride));
        spec(6).key(key)
    };
    let call = ordinary(strided(640), 14);
    assert_eq!(call.tensors().kv.len(), (5 * 640 + 512) * 2);
    for executor in exact_executors() {
        run_exact(&call, &executor, "strided rows");
    }
    let error = strided(516).validate().expect_err("rows of 16 bytes are needed");
    assert_eq!(
        error.to_string(),
        "the row stride of kv is 516; it must be a multiple of 8 values (16 bytes), below 2^35"
    );
    // A stride so large that the size of kv wraps.
    let far = Key::new(2, cache(4, 3)).row_stride(Some(1 << 34));
    let error = spec(6).tokens((1 << 29) + 1).query(None).key(far).validate();
    assert!(
        error
            .expect_err("bytes beyond counting")
            .to_string()
            .starts_with("the problem is too large")
    );
    // What is dense in the file but not in the problem does not fit.
    let dense = spec(6).key(Key::new(6, cache(4, 3))).validate().expect("valid");
    assert!(Call::new(dense, call.into_tensors()).is_err());
}

#[rstest]
fn fault_15_odd_head_counts_do_not_mix(#[values(1, 3, 5, 7, 40)] heads: usize) {
    let _guard = shared();
    let call = ordinary(spec(3).query(Query::new(heads, heads)), 15);
    let alone = spec(3).query(Query::new(1, 1)).validate().expect("valid");
    for executor in exact_executors() {
        let together = run_exact(&call, &executor, "all heads").q_out;
        for head in 0..heads {
            let one = of_problem(call.clone(), alone, |tensors| {
                let rows = tensors.q.chunks(heads * 1024);
                let rows = rows.flat_map(|token| &token[head * 1024..(head + 1) * 1024]);
                tensors.q = rows.copied().collect();
                tensors.q_out.truncate(3 * 1024);
            });
            let got = executor.result(&one).expect("the executor runs").q_out;
            for (token, row) in got.chunks(1024).enumerate() {
                let at = (token * heads + head) * 1024;
                assert!(row == &together[at..at + 1024], "head {head} of token {token}");
            }
        }
    }
}

#[test]
fn fault_16_no_tokens_change_nothing() {
    let _guard = shared();
    let call = ordinary(spec(0), 16);
    for executor in exact_executors().into_iter().chain([Executor::Reference]) {
        let got = executor.result(&call).expect("no tokens are valid");
        assert!(got.kv_cache == call.tensors().kv_cache);
    }
}
