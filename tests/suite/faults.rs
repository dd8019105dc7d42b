//! Faults that engines have had in this op, each ruled out. Number 17 is in `graph`.

use crate::support::{
    cache, exact_devices, exact_targets, halves, i64s, identity_table, run_exact, shared, spec,
};
use mla_prologue::{
    Call, Target,
    catalogue::{Case, Data, Slots},
    kernel::{Buffers, Device, launch},
    operator::{CacheFormat, CacheLayout, Fp8, Half, Key, Outputs, Query, Spec},
    reference::numbers::{from_half, to_half},
};
use rstest::rstest;

fn ordinary(spec: Spec, seed: u64) -> Call {
    let case = Case { spec, data: Data::Ordinary, slots: Slots::Shuffled, seed };
    case.call().expect("a sensible case")
}

/// A call for one key of these values, in one block of one token.
fn one_key(values: &[u16], half: Half, key: Key) -> Call {
    let spec = Spec { half, query: None, key: Some(key), ..spec(1) };
    let mut call = ordinary(spec, 0);
    call.kv = halves(values.iter().copied().cycle().take(512));
    call.cos_sin_cache = identity_table(32);
    call.slot_mapping = i64s([0]);
    call
}

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
        ..Buffers::upload(client, &call.problem, &call.inputs())
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
            ..Buffers::upload(client, &call.problem, &call.inputs())
        };
        let error = launch(&device, &call.problem, &buffers).expect_err("8 bytes are missing");
        assert!(error.to_string().starts_with("the size of kv_cache is"), "{error}");
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
        let start = Buffers::upload(client, &first.problem, &first.inputs());
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

/// Blocks whose scale is 1: the values stay as they are. Every pattern is in the module `encoders`.
#[test]
fn fault_09_fp8_values_from_256_up_are_exact_and_ties_go_to_even() {
    let _guard = shared();
    let table = [
        (256.0, 0x78),
        (288.0, 0x79),
        (416.0, 0x7D),
        (448.0, 0x7E), // exact
        (272.0, 0x78),
        (304.0, 0x7A),
        (432.0, 0x7E), // ties
        (0.001953125, 0x01),
        (0.0009765625, 0x00),
        (0.0029296875, 0x02),
        (-0.0, 0x80), // subnormal
    ];
    let values: Vec<u16> =
        table.iter().map(|(x, _)| to_half(*x, Half::Bf16)).chain([0; 53]).collect();
    let call = one_key(&values, Half::Bf16, Key::new(1, cache(1, 1)));
    for target in exact_targets() {
        let got = run_exact(&call, &target, "from 256 up").kv_cache;
        for (i, (x, byte)) in table.iter().enumerate() {
            assert_eq!(got[i], *byte, "{x} on {}", target.describe());
        }
        assert_eq!(got[576], 127, "the scale is 1");
    }
}

#[rstest]
fn fault_10_scales_next_to_448_times_a_power_of_two(#[values(Half::Bf16, Half::F16)] half: Half) {
    let _guard = shared();
    let exponents = if half == Half::Bf16 { -21..=119 } else { -21..=7 };
    for target in exact_targets() {
        for k in exponents.clone() {
            let limit = to_half(448.0 * 2f32.powi(k), half);
            for bits in [limit - 1, limit, limit + 1] {
                let call = one_key(&[bits], half, Key::new(1, cache(1, 1)));
                let got = run_exact(&call, &target, "next to a limit").kv_cache;
                let above = i32::from(bits > limit);
                assert_eq!(
                    i32::from(got[576]),
                    127 + k + above,
                    "{bits:#06x} on {}",
                    target.describe()
                );
            }
        }
    }
}

#[test]
fn fault_11_the_stored_scale_is_the_one_used() {
    let _guard = shared();
    let call = ordinary(spec(16), 11);
    let layout = call.problem.key.expect("a key").cache;
    for target in exact_targets() {
        let got = run_exact(&call, &target, "scales").kv_cache;
        for (token, slot) in call.inputs().slots(&call.problem).enumerate() {
            let read = mla_prologue::reference::cache::read(
                &layout,
                Half::Bf16,
                None,
                &got,
                slot as usize,
            );
            for (i, value) in read.into_iter().take(448).enumerate() {
                let at = (token * 512 + i) * 2;
                let x = from_half(u16::from_le_bytes([call.kv[at], call.kv[at + 1]]), Half::Bf16);
                let scale = f64::from(got[layout.scales(slot as usize)][i / 64]) - 127.0;
                // Half a step of E4M3 at this value: 2^-4 of its power of two, at least 2^-10.
                let step = (f64::from(x.abs()).log2() - scale).floor().max(-6.0) - 4.0;
                let error = f64::from(value - x).abs();
                assert!(error <= (step + scale).exp2(), "{x} reads back as {value}");
            }
        }
    }
}

#[test]
fn fault_12_fnuz_has_no_negative_zero() {
    let _guard = shared();
    let values: Vec<u16> = [-1e-6f32, -0.0, 0.0, 1.0].map(|x| to_half(x, Half::Bf16)).to_vec();
    for (fp8, underflow) in [(Fp8::E4m3fn, 0x80), (Fp8::E4m3fnuz, 0x00)] {
        let format = CacheFormat::RowsFp8 { fp8 };
        let layout = CacheLayout { format, block_size: 1, block_stride: 512, num_blocks: 1 };
        let key = Key { scale: Some(1.0), ..Key::new(1, layout) };
        let blocks = CacheFormat::Mxfp8 { fp8 };
        let blocks = Key::new(1, CacheLayout { format: blocks, block_stride: 528, ..layout });
        for target in exact_targets() {
            for key in [key, blocks] {
                let got =
                    run_exact(&one_key(&values, Half::Bf16, key), &target, "underflow").kv_cache;
                assert_eq!(got[..3], [underflow, underflow, 0], "{fp8} on {}", target.describe());
            }
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
        let mut buffers = Buffers::upload(client, &call.problem, &call.inputs());
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
        "the row stride of kv is 516; it must be a multiple of 8 values (16 bytes)"
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

#[rstest]
#[case::nan(0x7FC0)]
#[case::infinity(0x7F80)]
#[case::negative_infinity(0xFF80)]
fn fault_18_a_nan_makes_its_block_nan_and_no_other(#[case] strange: u16) {
    let _guard = shared();
    let one = to_half(1.0, Half::Bf16);
    let mut values = vec![one; 512];
    values[3 * 64 + 5] = strange;
    let call = one_key(&values, Half::Bf16, Key::new(1, cache(1, 1)));
    for target in exact_targets() {
        let got = run_exact(&call, &target, "a NaN").kv_cache;
        for block in 0..7 {
            let (scale, bytes) = (got[576 + block], &got[block * 64..(block + 1) * 64]);
            if block == 3 {
                assert_eq!(scale, 255);
                assert!(bytes.iter().all(|&byte| byte == 0x7F));
            } else {
                assert!(scale != 255 && bytes.iter().all(|&byte| byte != 0x7F), "block {block}");
            }
        }
    }
}

#[test]
fn fault_19_a_block_of_zeros_has_the_smallest_scale() {
    let _guard = shared();
    let call = one_key(&[0], Half::Bf16, Key::new(1, cache(1, 1)));
    for target in exact_targets() {
        let got = run_exact(&call, &target, "zeros").kv_cache;
        assert_eq!(got[576..584], [105, 105, 105, 105, 105, 105, 105, 0]);
        assert!(got[..576].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn fault_20_the_fp8_format_is_part_of_the_cache() {
    let _guard = shared();
    let of = |fp8| CacheLayout {
        format: CacheFormat::Mxfp8 { fp8 },
        block_size: 1,
        block_stride: 528,
        num_blocks: 1,
    };
    assert_ne!(of(Fp8::E4m3fn), of(Fp8::E4m3fnuz));
    // Each reads back with its own format, on one device, in turn.
    let values: Vec<u16> = (1..32).map(|i| to_half(i as f32, Half::Bf16)).collect();
    for target in exact_targets() {
        for fp8 in [Fp8::E4m3fn, Fp8::E4m3fnuz, Fp8::E4m3fn] {
            let call = one_key(&values[..1], Half::Bf16, Key::new(1, of(fp8)));
            let got = run_exact(&call, &target, "formats").kv_cache;
            let read = mla_prologue::reference::cache::read(&of(fp8), Half::Bf16, None, &got, 0);
            assert!(read.iter().all(|&x| x == 1.0), "{fp8} on {}", target.describe());
        }
    }
}
