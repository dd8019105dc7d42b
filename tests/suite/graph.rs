//! A captured graph replayed with new contents.

use crate::support::{alone, exact_devices, spec};
use mla_prologue::{
    Call, Output, Target,
    catalogue::{Case, Data, Slots},
    kernel::{Buffers, Device, Runtime, launch},
    verify::{Rule, compare},
};

fn call(seed: u64) -> Call {
    let case = Case { spec: spec(4), data: Data::Ordinary, slots: Slots::Shuffled, seed };
    case.call().expect("a sensible case")
}

#[test]
fn fault_17_graph_replay_reads_the_contents_of_then() {
    let _guard = alone();
    for device in exact_devices() {
        // A software graph replays too, but this runtime has none.
        if device.runtime() == Runtime::Cpu {
            println!("cpu left out: its runtime has no graphs");
            continue;
        }
        replay(&device);
    }
}

fn replay(device: &Device) {
    let client = device.client();
    let first = call(1);
    let buffers = Buffers {
        q_out: Some(client.empty(first.problem.q_out_bytes())),
        kv_cache: Some(client.create_from_slice(&first.kv_cache)),
        ..Buffers::upload(device, &first.problem, &first.inputs())
    };
    client.graph_prepare().expect("a capture can be prepared");
    launch(device, &first.problem, &buffers).expect("the warm-up is queued");
    client.read_one(buffers.q_out.clone().expect("set above")).expect("the warm-up runs");
    client.start_capture().expect("a capture starts");
    launch(device, &first.problem, &buffers).expect("the call is recorded");
    let graph = client.stop_capture().expect("a capture stops");
    for seed in 2..6 {
        let next = call(seed);
        let write = |handle: &Option<_>, bytes: &[u8]| {
            client.write(
                handle.as_ref().expect("set above"),
                cubecl::bytes::Bytes::from_bytes_vec(bytes.to_vec()),
            );
        };
        write(&buffers.q, &next.q);
        write(&buffers.kv, &next.kv);
        write(&Some(buffers.positions.clone()), &next.positions);
        write(&buffers.slot_mapping, &next.slot_mapping);
        write(&Some(buffers.cos_sin_cache.clone()), &next.cos_sin_cache);
        write(&buffers.kv_cache, &next.kv_cache);
        // SAFETY: the buffers live, and nobody else uses them.
        unsafe { graph.replay() }.expect("the graph is queued");
        let read = |handle: &Option<_>| {
            client.read_one(handle.clone().expect("set above")).expect("the graph runs").to_vec()
        };
        let got = Output { q_out: read(&buffers.q_out), kv_cache: read(&buffers.kv_cache) };
        let want = next.run(&Target::Reference).expect("the reference runs");
        let found = compare(&next, &want, &got, Rule::Exact);
        assert!(found.holds(), "replay {seed} on {}: {:?}", device.name(), found.first);
    }
}
