//! The fused kernel and the unfused chain on every device of this build, and the unfused chain of the reference on
//! the CPU: by the device's own clock on GPUs, by wall time on the CPU. Results are compared with the definition
//! before they are timed.
//!
//! `mla-prologue bench` measures more finely: in graphs, and against the device's copy bandwidth.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubecl::future::block_on;
use mla_prologue::{
    Target,
    bench::{Job, Layers, SHAPES, Shape, Work},
    kernel::{Device, Lanes, Runtime},
    operator::Outputs,
};
use std::time::{Duration, Instant};

fn devices(criterion: &mut Criterion) {
    for listing in Device::list() {
        let Ok(device) = Device::open(&listing.name) else {
            eprintln!("{} left out: it cannot be used here", listing.name);
            continue;
        };
        for shape in shapes(device.strategy().lanes == Lanes::Unit) {
            let call = shape.case().call().expect("a sensible shape");
            let mut layers = Layers::upload(&device, &call, 1);
            for work in shape.works() {
                let job = Job::new(&device, &call, work, &mut layers).expect("equal results");
                let group = format!("{}/{}", work.name(), device.name());
                let mut group = criterion.benchmark_group(group);
                group.throughput(Throughput::Bytes(shape.bytes(work) as u64));
                group.bench_function(name(shape), |bencher| {
                    bencher.iter_custom(|calls| time(&device, calls, &job));
                });
            }
        }
    }
}

/// The device's own time of some calls where its runtime stamps them, wall time on the CPU.
fn time(device: &Device, calls: u64, job: &Job) -> Duration {
    let client = device.client();
    let stamps = device.runtime() != Runtime::Cpu;
    let start = Instant::now();
    let window = if stamps { client.profile_start().ok() } else { None };
    (0..calls).for_each(|_| job.queue(0).expect("the call is queued"));
    let stamped = window
        .and_then(|window| client.profile_end(window).ok())
        .and_then(|duration| block_on(duration.resolve()));
    block_on(client.sync()).expect("the device runs");
    stamped.map_or_else(|| start.elapsed(), |ticks| ticks.duration())
}

fn reference(criterion: &mut Criterion) {
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
    targets = devices, reference
}
criterion_main!(benches);
