//! Memory, order and counts.

use super::ordinary;
use crate::support::{cache, exact_devices, exact_targets, halves, i64s, run_exact, shared, spec};
use mla_prologue::{
    Call, Target,
    kernel::{Buffers, Device, launch},
    operator::{CacheLayout, Key, Outputs, Query, Spec},
};
use rstest::rstest;

/// Launches on a cache of `stride * blocks` bytes that is only ever touched where it must be, and
/// compares the slots' bytes with those in a small cache.
fn far_slots(device: &Device, block_stride: usize, num_blocks: usize) {
    let tokens = 8;
    let near = cache(4, 4);
    let small = ordinary(Spec { key: Some(Key::new(tokens, near)), ..spec(tokens) }, 1);
    let want = small.run(&Target::Reference).expect("the reference runs").kv_cache;
    let far = CacheLayout { block_stride, num_blocks, ..near };
    let mut call = small.clone();
    call.problem =
        Spec { key: Some(Key::new(tokens, far)), ..*small.problem }.validate().expect("sensible");
    // Block b of the small cache is one of the last blocks of the large one.
    let moved = |slot: i64| slot + (4 * (num_blocks - 4)) as i64;
    let slots: Vec<i64> = small.inputs().slots(&small.problem).collect();
    call.slot_mapping = i64s(slots.iter().map(|&slot| moved(slot)));
    let client = device.client();
    let handle = client.empty(far.bytes());
    let buffers = Buffers {
        q_out: Some(client.empty(call.problem.q_out_bytes())),
        kv_cache: Some(handle.clone()),
        ..Buffers::upload(device, &call.problem, &call.inputs())
    };
    launch(device, &call.problem, &buffers).expect("the call is queued");
    for slot in slots {
        for (near, far) in [
            (near.data(slot as usize), far.data(moved(slot) as usize)),
            (near.scales(slot as usize), far.scales(moved(slot) as usize)),
        ] {
            let rest = (call.problem.cache_bytes() - far.end) as u64;
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
    let layout = CacheLayout { block_stride: 4 * 584 + 1000, ..cache(4, 4) };
    let call = ordinary(Spec { key: Some(Key::new(9, layout)), ..spec(9) }, 2);
    for target in exact_targets() {
        let got = run_exact(&call, &target, "gaps").kv_cache;
        for block in 0..4 {
            let gap = block * layout.block_stride + 4 * 584..(block + 1) * layout.block_stride;
            assert!(got[gap.clone()] == call.kv_cache[gap], "the gap of block {block}");
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
            q_out: Some(client.empty(call.problem.q_out_bytes())),
            kv_cache: Some(client.empty(call.problem.cache_bytes() - 8)),
            ..Buffers::upload(&device, &call.problem, &call.inputs())
        };
        let error = launch(&device, &call.problem, &buffers).expect_err("8 bytes are missing");
        assert!(error.to_string().starts_with("the size of kv_cache is"), "{error}");
        let shifted = client.empty(call.problem.cache_bytes() + 8).offset_start(8);
        let error = launch(&device, &call.problem, &Buffers { kv_cache: Some(shifted), ..buffers });
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
    let mut call = ordinary(spec(6), 4);
    call.kv = halves([0x7FC0; 6 * 512]);
    call.slot_mapping = i64s([slot; 6]);
    for target in exact_targets() {
        assert!(run_exact(&call, &target, "negative slots").kv_cache == call.kv_cache);
    }
}

#[rstest]
fn fault_05_fewer_slots_than_tokens(#[values(0, 1, 5)] slots: usize) {
    let _guard = shared();
    let call = ordinary(Spec { key: Some(Key::new(slots, cache(4, 3))), ..spec(7) }, 5);
    for target in exact_targets() {
        let got = run_exact(&call, &target, "fewer slots").kv_cache;
        let layout = cache(4, 3);
        let changed = |slot: &usize| got[layout.data(*slot)] != call.kv_cache[layout.data(*slot)];
        assert_eq!((0..12).filter(changed).count(), slots);
    }
}

#[test]
fn fault_06_every_row_is_written_and_live_heads_do_not_depend_on_the_padding() {
    let _guard = shared();
    let padded = |heads| Spec { query: Some(Query::new(3, heads)), ..spec(5) };
    let mut call = ordinary(padded(3), 6);
    for target in exact_targets() {
        call.problem = padded(3).validate().expect("sensible");
        let tight = run_exact(&call, &target, "no padding").q_out;
        call.problem = padded(11).validate().expect("sensible");
        // The output is poisoned before each run.
        let wide = run_exact(&call, &target, "padding").q_out;
        for (tight, wide) in tight.chunks(3 * 1024).zip(wide.chunks(11 * 1024)) {
            assert!(tight == &wide[..3 * 1024], "live heads");
            assert!(wide[3 * 1024..].iter().all(|&byte| byte == 0), "added heads");
        }
    }
}

/// Each call reads what the one before it wrote, on one stream, without waiting.
#[test]
fn fault_07_a_chain_of_calls_is_in_order() {
    let _guard = shared();
    let chain = 24;
    let query_only = Spec { query: Some(Query::new(8, 8)), key: None, ..spec(16) };
    let mut call = ordinary(query_only, 7);
    let first = call.clone();
    for _ in 0..chain {
        call.q = call.run(&Target::Reference).expect("the reference runs").q_out;
    }
    for device in exact_devices() {
        let client = device.client();
        let start = Buffers::upload(&device, &first.problem, &first.inputs());
        for round in 0..3 {
            let mut buffers = start.clone();
            for _ in 0..chain {
                buffers.q_out = Some(client.empty(first.problem.q_out_bytes()));
                launch(&device, &first.problem, &buffers).expect("the call is queued");
                buffers.q = buffers.q_out.take();
            }
            let got = client.read_one(buffers.q.expect("set above")).expect("the device runs");
            assert!(got[..call.q.len()] == call.q, "round {round} on {}", device.name());
        }
    }
}

#[test]
fn fault_08_runs_are_repeatable() {
    let _guard = shared();
    let call = ordinary(spec(33), 8);
    for target in exact_targets() {
        let first = run_exact(&call, &target, "first run");
        for _ in 0..20 {
            assert!(call.run(&target).expect("the target runs") == first);
        }
    }
}

#[test]
fn fault_13_the_caller_owns_the_output() {
    let _guard = shared();
    let problem = Spec { query: Some(Query::new(16, 64)), key: None, ..spec(24) }
        .validate()
        .expect("sensible");
    assert_eq!(problem.q_out_bytes(), 24 * 64 * 1024);
    let call = ordinary(*problem, 13);
    for device in exact_devices() {
        let client = device.client();
        let mut buffers = Buffers::upload(&device, &call.problem, &call.inputs());
        let error = launch(&device, &problem, &buffers).expect_err("there is no output");
        assert!(error.to_string().contains("the size of q_out is 0 bytes"), "{error}");
        let out = client.empty(problem.q_out_bytes());
        buffers.q_out = Some(out.clone());
        launch(&device, &problem, &buffers).expect("the call is queued");
        let want = call.run(&Target::Reference).expect("the reference runs").q_out;
        assert!(client.read_one(out).expect("the device runs")[..want.len()] == want);
    }
}

#[test]
fn fault_14_strided_rows_are_honoured_or_refused() {
    let _guard = shared();
    let strided = |row_stride| {
        let key = Key { row_stride: Some(row_stride), ..Key::new(6, cache(4, 3)) };
        Spec { key: Some(key), ..spec(6) }
    };
    let call = ordinary(strided(640), 14);
    assert_eq!(call.kv.len(), (5 * 640 + 512) * 2);
    for target in exact_targets() {
        run_exact(&call, &target, "strided rows");
    }
    let error = strided(516).validate().expect_err("rows of 16 bytes are needed");
    assert_eq!(
        error.to_string(),
        "the row stride of kv is 516; it must be a multiple of 8 values (16 bytes), below 2^35"
    );
    // A stride so large that the size of kv wraps.
    let far = Key { row_stride: Some(1 << 34), ..Key::new(2, cache(4, 3)) };
    let error = Spec { tokens: (1 << 29) + 1, query: None, key: Some(far), ..spec(6) }.validate();
    assert!(
        error
            .expect_err("bytes beyond counting")
            .to_string()
            .starts_with("the problem is too large")
    );
    // What is dense in the file but not in the problem does not fit.
    let dense =
        Spec { key: Some(Key::new(6, cache(4, 3))), ..spec(6) }.validate().expect("sensible");
    assert!(call.inputs().check(&dense).is_err());
}

#[rstest]
fn fault_15_odd_head_counts_do_not_mix(#[values(1, 3, 5, 7, 40)] heads: usize) {
    let _guard = shared();
    let call = ordinary(Spec { query: Some(Query::new(heads, heads)), ..spec(3) }, 15);
    let alone = Spec { query: Some(Query::new(1, 1)), ..spec(3) }.validate().expect("sensible");
    for target in exact_targets() {
        let together = run_exact(&call, &target, "all heads").q_out;
        for head in 0..heads {
            let rows = call
                .q
                .chunks(heads * 1024)
                .flat_map(|token| &token[head * 1024..(head + 1) * 1024]);
            let one = Call { problem: alone, q: rows.copied().collect(), ..call.clone() };
            let got = one.run(&target).expect("the target runs").q_out;
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
    for target in exact_targets().into_iter().chain([Target::Reference]) {
        let mut cache = call.kv_cache.clone();
        let outputs = Outputs { q_out: &mut [], kv_cache: &mut cache };
        target.run(&call.problem, &call.inputs(), outputs).expect("no tokens are fine");
        assert!(cache == call.kv_cache);
    }
}
