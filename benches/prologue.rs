//! The fused kernel and the unfused chain on every device of this build, and the unfused chain of the reference on
//! the CPU: by the device's own clock on GPUs, by wall time on the CPU. Results are compared with the definition
//! before they are timed.
//!
//! `mla-prologue bench` measures more finely: in graphs, and against the device's copy bandwidth.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubecl::future::block_on;
use mla_prologue::{
    Call, Output, Target,
    bench::{SHAPES, Shape, Work},
    kernel::{Buffers, Device, Lanes, Pads, Runtime, Unfused, launch_with_pads},
    operator::{Outputs, Query, Rounding, Spec},
    verify::{Rule, compare},
};
use std::time::{Duration, Instant};

fn devices(criterion: &mut Criterion) {
    for listing in Device::list() {
        let Ok(device) = Device::open(&listing.name) else {
            eprintln!("{} left out: it cannot be used here", listing.name);
            continue;
        };
        for work in [Work::Written, Work::KnownZero, Work::Unfused] {
            let mut group = criterion.benchmark_group(format!("{}/{}", work.name(), device.name()));
            for shape in shapes(device.strategy().lanes == Lanes::Unit) {
                if work == Work::KnownZero && shape.heads == shape.padded_heads {
                    continue;
                }
                let call = call(shape, work);
                let queue = queue(&device, &call, work);
                group.throughput(Throughput::Bytes(shape.bytes(work) as u64));
                group.bench_function(name(shape), |bencher| {
                    bencher.iter_custom(|calls| time(&device, calls, &queue));
                });
            }
        }
    }
}

/// A call whose results on every target are the same; the unfused chain passes 16-bit values on.
fn call(shape: Shape, work: Work) -> Call {
    let mut call = shape.case().call().expect("a sensible shape");
    if work == Work::Unfused {
        let query = call.problem.query.map(|query| Query { rounding: Rounding::Half, ..query });
        call.problem = Spec { query, ..*call.problem }.validate().expect("a sensible shape");
    }
    call
}

/// Queues a call on buffers of its own, after the first was found equal to the definition.
fn queue<'a>(device: &'a Device, call: &'a Call, work: Work) -> impl Fn() + use<'a> {
    let q_out = device.client().empty(call.problem.q_out_bytes());
    let kv_cache = device.upload(&call.kv_cache);
    let buffers = Buffers {
        q_out: Some(q_out.clone()),
        kv_cache: Some(kv_cache.clone()),
        ..Buffers::upload(device, &call.problem, &call.inputs())
    };
    let unfused = (work == Work::Unfused)
        .then(|| Unfused::new(device, &call.problem).expect("the base operator"));
    let queue = move |pads| {
        let queued = match &unfused {
            Some(unfused) => unfused.launch(device, &call.problem, &buffers),
            None => launch_with_pads(device, &call.problem, &buffers, pads),
        };
        queued.expect("the call is queued");
    };
    queue(Pads::Written);
    let read = |buffer, bytes| device.read(buffer, bytes).expect("the device runs");
    let got = Output {
        q_out: read(&q_out, call.problem.q_out_bytes()),
        kv_cache: read(&kv_cache, call.problem.cache_bytes()),
    };
    let want = call.run(&Target::Reference).expect("the reference runs");
    let found = compare(call, &want, &got, Rule::of(device.runtime()));
    assert!(found.holds(), "{}: {:?}", device.name(), found.first);
    let pads = if work == Work::KnownZero { Pads::KnownZero } else { Pads::Written };
    move || queue(pads)
}

/// The device's own time of some calls where its runtime stamps them, wall time on the CPU.
fn time(device: &Device, calls: u64, queue: &impl Fn()) -> Duration {
    let client = device.client();
    let stamps = device.runtime() != Runtime::Cpu;
    let start = Instant::now();
    let window = if stamps { client.profile_start().ok() } else { None };
    (0..calls).for_each(|_| queue());
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
