//! Timing of calls: in graphs, on a stream, and on the calling thread.

use super::{Timing, Variant, Workload};
use cubecl::{client::Client, future::block_on, server::ServerError};
use mla_prologue_cases::{Error, Executor, Result, Rule, prologue::compare};
use mla_prologue_kernel::{
    Device, Error as DeviceError,
    prologue::{self, Buffers, PaddingHeads, Unfused, launch_with_padding, upload},
};
use mla_prologue_operator::{
    Rounding,
    prologue::{Call, Problem, Tensors},
};
use std::time::{Duration, Instant};

/// Calls of a graph on the same buffers.
pub const CALLS: usize = 100;
/// Layers of DeepSeek-V4-Pro, each with buffers of its own: the most that are rotated.
pub const LAYERS: usize = 61;
/// Bytes of the buffers that are rotated.
const ROTATED: usize = 2 << 30;
/// What a measurement is repeated for.
const LEAST: Duration = Duration::from_millis(200);
/// Launches of a burst: fewer than the queue to the device's thread holds.
const BURST: u32 = 16;

/// Times the fused kernel and the unfused chain on a workload.
///
/// # Errors
/// A device that fails, or whose results are not the reference's.
pub fn measure(device: &Device, workload: Workload) -> Result<Vec<Timing>> {
    let call = workload.case().call()?;
    let bytes = workload.bytes(Variant::Written) + call.problem().sizes().kv_cache;
    let mut layers = Layers::upload(device, &call, (ROTATED / bytes).clamp(1, LAYERS));
    let client = device.client();
    let time = |variant| {
        let job = Job::new(device, &call, variant, &mut layers)?;
        // Those of the other layers run for the first time.
        (0..job.layers()).try_for_each(|layer| job.queue(layer))?;
        Ok(Timing {
            variant,
            graph: graph(client, CALLS, |_| job.queue(0))?,
            rotated: graph(client, job.layers(), |layer| job.queue(layer))?,
            layers: job.layers(),
            stream: stream(client, &mut || job.queue(0))?,
            host: burst(client, &mut || job.queue(0))?,
        })
    };
    workload.variants().map(time).collect()
}

/// The buffers of some layers: positions, slots and rotary table are the same for all.
pub struct Layers(Vec<Buffers>);

impl Layers {
    /// Buffers for a call in each of `count` layers.
    pub fn upload(device: &Device, call: &Call, count: usize) -> Self {
        let shared = upload(device, call.problem(), call.tensors());
        let Tensors { q, kv, kv_cache, .. } = call.tensors();
        let layer = |_| Buffers {
            q: Some(device.upload(q)),
            kv: Some(device.upload(kv)),
            q_out: Some(device.client().empty(call.problem().sizes().q_out)),
            kv_cache: Some(device.upload(kv_cache)),
            ..shared.clone()
        };
        Self((0..count).map(layer).collect())
    }

    /// Makes every byte that a call must write wrong, in the first layer: what is checked.
    fn spoil(&mut self, device: &Device, call: &Call, variant: Variant) {
        let mut q_out = vec![0xAA; call.problem().sizes().q_out];
        if let (Variant::KnownZero, Some(query)) = (variant, call.problem().spec().query) {
            for token in q_out.chunks_exact_mut(query.padded_heads * 1024) {
                token[query.heads * 1024..].fill(0);
            }
        }
        self.0[0].q_out = Some(device.upload(&q_out));
        self.0[0].kv_cache = Some(device.upload(&call.tensors().kv_cache));
    }

    /// What the first layer's call wrote.
    fn read(&self, device: &Device, problem: &Problem) -> Result<Tensors<Vec<u8>>> {
        let read = |buffer: &Option<_>, bytes| match buffer {
            Some(buffer) => device.read(buffer, bytes),
            None => Ok(Vec::new()),
        };
        let sizes = problem.sizes();
        Ok(Tensors {
            q_out: read(&self.0[0].q_out, sizes.q_out)?,
            kv_cache: read(&self.0[0].kv_cache, sizes.kv_cache)?,
            ..Tensors::default()
        })
    }
}

/// Work on some layers' buffers, ready to be timed: what it writes in the first was found equal to
/// the reference's.
pub struct Job<'a> {
    device: &'a Device,
    variant: Variant,
    problem: Problem,
    layers: &'a Layers,
    unfused: Option<Unfused>,
}

impl<'a> Job<'a> {
    /// Spoils what the work must write in the first layer, runs it there, and compares.
    ///
    /// # Errors
    /// A device that fails, or whose results are not the reference's.
    pub fn new(
        device: &'a Device,
        call: &Call,
        variant: Variant,
        layers: &'a mut Layers,
    ) -> Result<Self> {
        let rounded;
        let call = if variant == Variant::Unfused {
            // Its kernels pass 16-bit values on.
            let spec = *call.problem().spec();
            let query = spec.query.map(|query| query.rounding(Rounding::To16Bit));
            rounded = Call::new(spec.query(query).validate()?, call.tensors().clone())?;
            &rounded
        } else {
            call
        };
        let problem = *call.problem();
        let unfused =
            (variant == Variant::Unfused).then(|| Unfused::new(device, &problem)).transpose()?;
        layers.spoil(device, call, variant);
        let job = Self { device, variant, problem, layers, unfused };
        job.queue(0)?;
        check(call, &layers.read(device, &problem)?, device)?;
        Ok(job)
    }

    /// Sets of buffers.
    pub fn layers(&self) -> usize {
        self.layers.0.len()
    }

    /// Queues the work on one layer.
    ///
    /// # Errors
    /// A device that fails.
    pub fn queue(&self, layer: usize) -> Result<(), DeviceError> {
        let buffers = &self.layers.0[layer];
        match &self.unfused {
            Some(unfused) => unfused.launch(self.device, &self.problem, buffers),
            None => {
                let known_zero = self.variant == Variant::KnownZero;
                let padding =
                    if known_zero { PaddingHeads::KnownZero } else { PaddingHeads::Written };
                launch_with_padding(self.device, &self.problem, buffers, padding)
            }
        }
    }
}

fn check(call: &Call, got: &Tensors<Vec<u8>>, device: &Device) -> Result<()> {
    let mut want = call.clone();
    Executor::Reference.run(&mut want)?;
    let found = compare(&want, got, Rule::of(device.runtime()));
    let Some(first) = found.first else { return Ok(()) };
    Err(Error::Device(DeviceError::Failed {
        doing: "computing what it was timed for",
        reason: first,
    }))
}

/// Times the unfused chain on the CPU, in seconds a call.
///
/// # Errors
/// An invalid problem.
pub fn reference(workload: Workload) -> Result<f64> {
    let mut call = workload.case().call()?;
    let mut run = || Executor::Reference.run(&mut call);
    run()?;
    let (mut calls, start) = (0, Instant::now());
    while start.elapsed() < LEAST {
        run()?;
        calls += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(calls))
}

/// Opens a device and runs one call of a workload on it; tells how long each took, in seconds, which is what a program
/// waits for its first result: the runtime's start, then the kernel's compilation and the call.
///
/// # Errors
/// A device that cannot be used, or fails.
pub fn first_result(name: &str, workload: Workload) -> Result<(Device, [f64; 2])> {
    let mut call = workload.case().call()?;
    let start = Instant::now();
    let device = Device::open(name)?;
    let opened = start.elapsed().as_secs_f64();
    prologue::run(&device, &mut call)?;
    Ok((device, [opened, start.elapsed().as_secs_f64() - opened]))
}

/// Seconds from one call to the next.
pub fn stream(client: &Client, queue: &mut impl FnMut() -> Result<(), DeviceError>) -> Result<f64> {
    wait(client)?;
    let mut calls = 10;
    loop {
        let start = Instant::now();
        for _ in 0..calls {
            queue()?;
        }
        wait(client)?;
        let all = start.elapsed();
        if all > LEAST {
            return Ok(all.as_secs_f64() / f64::from(calls));
        }
        calls *= 4;
    }
}

/// Seconds that the calling thread spends on a call while the queue has room: the median of bursts.
pub fn burst(client: &Client, queue: &mut impl FnMut() -> Result<(), DeviceError>) -> Result<f64> {
    let mut bursts = Vec::new();
    let start = Instant::now();
    while bursts.len() < 11 || (start.elapsed() < LEAST && bursts.len() < 201) {
        wait(client)?;
        let start = Instant::now();
        for _ in 0..BURST {
            queue()?;
        }
        bursts.push(start.elapsed().as_secs_f64() / f64::from(BURST));
    }
    bursts.sort_by(f64::total_cmp);
    Ok(bursts[bursts.len() / 2])
}

/// Seconds a call in a graph of some calls; `None` where the device has no graphs.
pub fn graph(
    client: &Client,
    calls: usize,
    queue: impl Fn(usize) -> Result<(), DeviceError>,
) -> Result<Option<f64>> {
    if client.graph_prepare().is_err() {
        return Ok(None);
    }
    queue(0)?;
    wait(client)?;
    let failed = |error: ServerError| DeviceError::failed("replaying a graph", error);
    if client.start_capture().is_err() {
        return Ok(None);
    }
    (0..calls).try_for_each(queue)?;
    let graph = client.stop_capture().map_err(failed)?;
    let mut replays = 1;
    loop {
        let start = Instant::now();
        for _ in 0..replays {
            // SAFETY: the buffers live, and are used by nothing else.
            unsafe { graph.replay() }.map_err(failed)?;
        }
        wait(client)?;
        let all = start.elapsed();
        if all > LEAST {
            return Ok(Some(all.as_secs_f64() / f64::from(replays) / calls as f64));
        }
        replays *= 4;
    }
}

fn wait(client: &Client) -> Result<()> {
    Ok(block_on(client.sync()).map_err(|error| DeviceError::failed("running the kernel", error))?)
}
