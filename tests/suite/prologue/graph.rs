//! A captured graph replayed with new contents.

use crate::{
    prologue::faults::ordinary,
    support::{alone, assert_exact, buffers, exact_devices, spec},
};
use cubecl::bytes::Bytes;
use mla_prologue::{
    kernel::{Device, Runtime, prologue::launch},
    operator::prologue::Tensors,
};

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
    let first = ordinary(spec(4), 1);
    let (problem, sizes) = (first.problem(), first.problem().sizes());
    let buffers = buffers(device, problem, first.tensors());
    let read = |name: &str| {
        let all = buffers.as_ref().zip(sizes).named();
        let found = all.into_iter().find(|(other, _)| *other == name).expect("a tensor").1;
        device.read(found.0.as_ref().expect("it is used"), found.1).expect("the graph runs")
    };
    client.graph_prepare().expect("a capture can be prepared");
    launch(device, problem, &buffers).expect("the warm-up is queued");
    read("q_out");
    client.start_capture().expect("a capture starts");
    launch(device, problem, &buffers).expect("the call is recorded");
    let graph = client.stop_capture().expect("a capture stops");
    for seed in 2..6 {
        let next = ordinary(spec(4), seed);
        for (_, (buffer, bytes)) in buffers.as_ref().zip(next.tensors().as_ref()).named() {
            if let Some(buffer) = buffer {
                client.write(buffer, Bytes::from_bytes_vec(bytes.clone()));
            }
        }
        // SAFETY: the buffers live, and are used by nothing else.
        unsafe { graph.replay() }.expect("the graph is queued");
        let got =
            Tensors { q_out: read("q_out"), kv_cache: read("kv_cache"), ..Tensors::default() };
        assert_exact(&next, &got, &format!("replay {seed} on {}", device.name()));
    }
}
