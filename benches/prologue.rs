//! The fused kernel on every device of this build, and the unfused chain on the CPU, by wall time.
//! `mla-prologue bench` measures more finely: in graphs, and against the device's copy bandwidth.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubecl::future::block_on;
use mla_prologue::{
    Target,
    bench::{SHAPES, Shape, Work},
    kernel::{Buffers, Device, Lanes, launch},
    operator::Outputs,
};

fn fused(criterion: &mut Criterion) {
    for listing in Device::list() {
        let Ok(device) = Device::open(&listing.name) else {
            eprintln!("{} left out: it cannot be used here", listing.name);
            continue;
        };
        let mut group = criterion.benchmark_group(format!("fused/{}", device.name()));
        for shape in shapes(device.strategy().lanes == Lanes::Unit) {
            let call = shape.case().call().expect("a sensible shape");
            let client = device.client();
            let buffers = Buffers {
                q_out: Some(client.empty(call.problem.q_out_bytes())),
                kv_cache: Some(client.create_from_slice(&call.kv_cache)),
                ..Buffers::upload(&device, &call.problem, &call.inputs())
            };
            group.throughput(Throughput::Bytes(shape.bytes(Work::Written) as u64));
            group.bench_function(name(shape), |bencher| {
                bencher.iter(|| {
                    launch(&device, &call.problem, &buffers).expect("the call is queued");
                    block_on(client.sync()).expect("the device runs");
                });
            });
        }
    }
}

fn unfused(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unfused/reference");
    for shape in shapes(true) {
        let call = shape.case().call().expect("a sensible shape");
        let mut q_out = vec![0; call.problem.q_out_bytes()];
        let mut kv_cache = call.kv_cache.clone();
        group.throughput(Throughput::Bytes(shape.bytes(Work::Written) as u64));
        group.bench_function(name(shape), |bencher| {
            bencher.iter(|| {
                let outputs = Outputs { q_out: &mut q_out, kv_cache: &mut kv_cache };
                Target::Reference.run(&call.problem, &call.inputs(), outputs).expect("it runs");
            });
        });
    }
}

/// A CPU would take minutes for the larger ones.
fn shapes(cpu: bool) -> impl Iterator<Item = Shape> {
    SHAPES.into_iter().filter(move |shape| !cpu || shape.tokens * shape.padded_heads <= 1 << 14)
}

fn name(shape: Shape) -> BenchmarkId {
    BenchmarkId::from_parameter(format!("{}x{}to{}", shape.tokens, shape.heads, shape.padded_heads))
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = fused, unfused
}
criterion_main!(benches);
