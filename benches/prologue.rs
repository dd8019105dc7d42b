//! The fused kernel and the unfused chain on every device of this build, and the unfused chain of the reference on
//! the CPU: by the device's own clock on GPUs, by wall time on the CPU. Results are compared with the reference
//! before they are timed.
//!
//! `mla-prologue bench` measures more finely: in graphs, and against the device's copy bandwidth.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubecl::future::block_on;
use mla_prologue_bench::{Job, Layers, Variant, WORKLOADS, Workload};
use mla_prologue_kernel::{Device, Lanes, Runtime};
use std::time::{Duration, Instant};

fn devices(criterion: &mut Criterion) {
    for listing in Device::list() {
        let Ok(device) = Device::open(&listing.name) else {
            eprintln!("{} left out: it cannot be used here", listing.name);
            continue;
        };
        for workload in workloads(device.strategy().lanes == Lanes::Unit) {
            let call = workload.case().call().expect("a valid problem");
            let mut layers = Layers::upload(&device, &call, 1);
            for variant in workload.variants() {
                let job = Job::new(&device, &call, variant, &mut layers).expect("equal results");
                let group = format!("{}/{}", variant.name(), device.name());
                let mut group = criterion.benchmark_group(group);
                group.throughput(Throughput::Bytes(workload.bytes(variant) as u64));
                group.bench_function(name(workload), |bencher| {
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
    for workload in workloads(true) {
        let mut call = workload.case().call().expect("a valid problem");
        group.throughput(Throughput::Bytes(workload.bytes(Variant::Written) as u64));
        group.bench_function(name(workload), |bencher| {
            bencher.iter(|| mla_prologue_reference::prologue::run(&mut call));
        });
    }
}

/// A CPU would take minutes for the larger ones.
fn workloads(cpu: bool) -> impl Iterator<Item = Workload> {
    WORKLOADS
        .into_iter()
        .filter(move |workload| !cpu || workload.tokens * workload.padded_heads <= 1 << 14)
}

fn name(workload: Workload) -> BenchmarkId {
    BenchmarkId::from_parameter(format!(
        "{}x{}to{}",
        workload.tokens, workload.heads, workload.padded_heads
    ))
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = devices, reference
}
criterion_main!(benches);
