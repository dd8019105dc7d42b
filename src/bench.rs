//! Measurement of the fused kernel on a device. Every problem is compared with the definition, bit for
//! bit, before it is timed.

use crate::{
    Call, Error, Output, Result, Target,
    catalogue::{Case, Data, Slots},
    kernel::{Buffers, Device, Error as DeviceError, Workspace, launch},
    operator::{
        CacheFormat, CacheLayout, Half, Index, Invalid, Key, Outputs, Query, RotaryLayout,
        RotaryTable, RotaryType, Spec,
    },
    verify::{Rule, compare},
};
use cubecl::{client::Client, future::block_on, prelude::*, server::ServerError};
use std::time::{Duration, Instant};

/// A problem to time: token count, live heads, padded heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of a call.
    pub tokens: usize,
    /// Live heads.
    pub heads: usize,
    /// Padded heads.
    pub padded_heads: usize,
}

/// How long one call takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// In a captured graph of 100 calls on the same buffers, where the device has graphs.
    pub graph: Option<f64>,
    /// Queued one after the other on a stream.
    pub stream: f64,
    /// The calling thread's share of that.
    pub host: f64,
    /// Bytes that a call must move.
    pub bytes: usize,
}

/// The problems that are timed without being asked for others.
pub const SHAPES: [Shape; 10] = [
    Shape::new(1, 16, 64),
    Shape::new(8, 16, 64),
    Shape::new(64, 16, 64),
    Shape::new(256, 16, 64),
    Shape::new(1024, 16, 64),
    Shape::new(4096, 16, 64),
    Shape::new(16384, 16, 64),
    Shape::new(64, 64, 64),
    Shape::new(4096, 64, 64),
    Shape::new(8192, 128, 128),
];

/// Bytes of inputs and outputs beyond which a shape is refused: what a large GPU holds.
const MOST: usize = 128 << 30;
/// Calls of a graph.
const CALLS: usize = 100;
/// What a measurement is repeated for.
const LEAST: Duration = Duration::from_millis(200);

impl Shape {
    /// A shape.
    pub const fn new(tokens: usize, heads: usize, padded_heads: usize) -> Self {
        Self { tokens, heads, padded_heads }
    }

    /// Checks that the shape makes sense and is not absurdly large.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.tokens == 0 {
            return Err(Invalid::new("the token count", 0, "1 or more: there is nothing to time"));
        }
        let problem = self.case().spec.validate()?;
        let bytes: usize = problem.sizes().named().iter().map(|&(_, bytes)| bytes).sum();
        if bytes <= MOST {
            return Ok(());
        }
        Err(Invalid::new(
            "the shape",
            format_args!("{bytes} bytes of tensors"),
            format_args!("at most {MOST}"),
        ))
    }

    /// The base operator on this shape, with blocks of 64 tokens every 37,440 bytes.
    pub fn case(&self) -> Case {
        let block_size = 64;
        let cache = CacheLayout {
            format: CacheFormat::default(),
            block_size,
            block_stride: 37440,
            num_blocks: self.tokens.div_ceil(block_size) + 1,
        };
        let spec = Spec {
            tokens: self.tokens,
            half: Half::Bf16,
            eps: 1e-6,
            positions: Index::I64,
            table: RotaryTable {
                rows: 4096,
                number: RotaryType::F32,
                layout: RotaryLayout::Halves,
            },
            query: Some(Query::new(self.heads, self.padded_heads)),
            key: Some(Key::new(self.tokens, cache)),
        };
        Case { spec, data: Data::Ordinary, slots: Slots::Shuffled, seed: 0 }
    }

    /// Bytes that a call must move: each input read once, each output written once.
    pub fn bytes(&self, pads_written: bool) -> usize {
        let written = if pads_written { self.padded_heads } else { self.heads };
        self.tokens * ((self.heads + 1) * 1024 + 256 + 16 + written * 1024 + 584)
    }
}

/// Times calls of a shape; with `known_zero`, into a workspace whose added heads are zero already.
///
/// # Errors
/// A device that fails, or whose results are not the definition's.
pub fn time(device: &Device, shape: Shape, known_zero: bool) -> Result<Timing> {
    let call = shape.case().call()?;
    let client = device.client();
    let mut buffers = Buffers::upload(device, &call.problem, &call.inputs());
    let kv_cache = client.create_from_slice(&call.kv_cache);
    buffers.kv_cache = Some(kv_cache.clone());
    let mut workspace = Workspace::new(device, call.problem.q_out_bytes());
    if !known_zero {
        buffers.q_out = Some(client.empty(call.problem.q_out_bytes()));
    }
    let mut queue = || match known_zero {
        true => workspace.launch(device, &call.problem, &buffers),
        false => launch(device, &call.problem, &buffers),
    };
    queue()?;
    queue()?;
    wait(client)?;
    let (stream, host) = time_stream(client, &mut queue)?;
    let graph = time_graph(client, &mut queue)?;
    let got = Output {
        q_out: match &buffers.q_out {
            Some(q_out) => device.read(q_out, call.problem.q_out_bytes())?,
            None => workspace.read(device)?,
        },
        kv_cache: device.read(&kv_cache, call.kv_cache.len())?,
    };
    check(&call, &got, device)?;
    Ok(Timing { graph, stream, host, bytes: shape.bytes(!known_zero) })
}

/// Times the unfused chain on the CPU, in seconds a call.
///
/// # Errors
/// A shape that makes no sense.
pub fn time_reference(shape: Shape) -> Result<f64> {
    let call = shape.case().call()?;
    let mut output =
        Output { q_out: vec![0; call.problem.q_out_bytes()], kv_cache: call.kv_cache.clone() };
    let mut run = || {
        let outputs = Outputs { q_out: &mut output.q_out, kv_cache: &mut output.kv_cache };
        Target::Reference.run(&call.problem, &call.inputs(), outputs)
    };
    run()?;
    let (mut calls, start) = (0, Instant::now());
    while start.elapsed() < LEAST {
        run()?;
        calls += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(calls))
}

/// Bytes a second that a copy kernel reads and writes on the device.
///
/// # Errors
/// A device that fails.
pub fn copy_bandwidth(device: &Device) -> Result<f64> {
    let client = device.client();
    let cpu = device.strategy().lanes == crate::kernel::Lanes::Unit;
    let words = if cpu { 1 << 22 } else { 1 << 26 };
    let [from, to] = [(); 2].map(|()| client.empty(words * 16));
    let units = if cpu { device.strategy().rows_per_cube } else { 256 };
    let per_unit = if cpu { words / units as usize } else { 4 };
    let cubes = (words / per_unit).div_ceil(units as usize) as u32;
    let mut queue = || {
        // SAFETY: each unit stays within the words that there are.
        unsafe {
            copy::launch_unchecked(
                client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(units),
                BufferArg::from_raw_parts(from.clone(), words),
                BufferArg::from_raw_parts(to.clone(), words),
                per_unit as u32,
            );
        }
        Ok(())
    };
    queue()?;
    wait(client)?;
    let (seconds, _) = time_stream(client, &mut queue)?;
    Ok((2 * words * 16) as f64 / seconds)
}

#[cube(launch_unchecked)]
fn copy(from: &[Vector<u32, Const<4>>], to: &mut [Vector<u32, Const<4>>], per_unit: u32) {
    let units = CUBE_COUNT * CUBE_DIM as usize;
    for i in 0..per_unit {
        let at = i as usize * units + ABSOLUTE_POS;
        if at < to.len() {
            to[at] = from[at];
        }
    }
}

fn time_stream(
    client: &Client,
    queue: &mut impl FnMut() -> Result<(), DeviceError>,
) -> Result<(f64, f64)> {
    let mut calls = 10;
    loop {
        let start = Instant::now();
        for _ in 0..calls {
            queue()?;
        }
        let host = start.elapsed();
        wait(client)?;
        let all = start.elapsed();
        if all > LEAST {
            return Ok((
                all.as_secs_f64() / f64::from(calls),
                host.as_secs_f64() / f64::from(calls),
            ));
        }
        calls *= 4;
    }
}

/// `None` where the device has no graphs.
fn time_graph(
    client: &Client,
    queue: &mut impl FnMut() -> Result<(), DeviceError>,
) -> Result<Option<f64>> {
    if client.graph_prepare().is_err() {
        return Ok(None);
    }
    queue()?;
    wait(client)?;
    let failed = |error: ServerError| DeviceError::failed("replaying a graph", error);
    if client.start_capture().is_err() {
        return Ok(None);
    }
    for _ in 0..CALLS {
        queue()?;
    }
    let graph = client.stop_capture().map_err(failed)?;
    let mut replays = 1;
    loop {
        let start = Instant::now();
        for _ in 0..replays {
            // SAFETY: the buffers live, and nobody else uses them.
            unsafe { graph.replay() }.map_err(failed)?;
        }
        wait(client)?;
        let all = start.elapsed();
        if all > LEAST {
            return Ok(Some(all.as_secs_f64() / f64::from(replays) / CALLS as f64));
        }
        replays *= 4;
    }
}

fn wait(client: &Client) -> Result<()> {
    Ok(block_on(client.sync()).map_err(|error| DeviceError::failed("running the kernel", error))?)
}

fn check(call: &Call, got: &Output, device: &Device) -> Result<()> {
    let want = call.run(&Target::Reference)?;
    let found = compare(call, &want, got, Rule::of(device.runtime()));
    let Some(first) = found.first else { return Ok(()) };
    Err(Error::Device(DeviceError::Failed {
        doing: "computing what it was timed for",
        reason: first,
    }))
}
