//! Timing of attention.

use super::measure::{CALLS, burst, graph, stream};
use mla_prologue_cases::{
    Error, Executor, Result, Rule, Runnable,
    attend::{Case, Data, SlotPattern, first_tokens},
};
use mla_prologue_kernel::{
    Device, Error as DeviceError, Lanes,
    attend::{Buffers, launch},
};
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Invalid,
    attend::{Call, Entries, Extra, SlotList, Spec},
};

/// A problem to time: tokens, heads, and the entries of each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a call.
    pub tokens: usize,
    /// Heads that attend.
    pub heads: usize,
    /// Entries of a token, of which the first 128 are a window in one cache and the others in a second.
    pub entries: usize,
}

/// How long one call takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// In a captured graph of 100 calls; absent on a CPU.
    pub graph: Option<f64>,
    /// Queued one after the other on a stream.
    pub stream: f64,
    /// What the calling thread spends on a call, in bursts of 16.
    pub host: f64,
}

/// Tokens of the window.
const WINDOW: usize = 128;
/// Slots of a cache, at most: more than are read in a call at once.
const SLOTS: usize = 32768;
/// Tokens that are compared with the reference before a call is timed: the others have the same bits alone.
const COMPARED: usize = 4;
/// Entries times heads times tokens that a CPU takes without being asked.
const CPU_MOST: usize = 64 * 16 * 640;

/// The problems that are timed without being asked for others.
pub fn workloads(device: &Device) -> Vec<Workload> {
    let of = |tokens, heads, entries| Workload { tokens, heads, entries };
    let table = [1, 8, 32, 128, 512]
        .into_iter()
        .flat_map(|tokens| [8, 16, 64].into_iter().map(move |heads| of(tokens, heads, 640)));
    let lists = [128, 1152].map(|entries| of(128, 16, entries));
    let cpu = device.strategy().lanes == Lanes::Unit;
    let fits = |workload: &Workload| {
        !cpu || workload.tokens * workload.heads * workload.entries <= CPU_MOST
    };
    table.chain(lists).filter(fits).collect()
}

impl Workload {
    /// The problem with its data: a list of slots in a cache of blocks of 64 tokens every 37,440 bytes, and one in a second cache.
    ///
    /// # Errors
    /// Counts of which no problem can be made.
    pub fn case(&self) -> Result<Case, Invalid> {
        let positive = [("tokens", self.tokens), ("heads", self.heads), ("entries", self.entries)];
        for (name, count) in positive {
            if count == 0 {
                return Err(Invalid::new(name, count, "1 or more: there is nothing to time"));
            }
        }
        let cache = |count: usize| {
            let slots = self.tokens.saturating_mul(count).min(SLOTS);
            CacheLayout::new(CacheFormat::default(), 64, slots.div_ceil(64)).align_stride(576)
        };
        let window = self.entries.min(WINDOW);
        let extra = self.entries - window;
        let extra = (extra > 0).then(|| Extra { cache: cache(extra), slots: SlotList::new(extra) });
        let list = Entries::Slots(SlotList::new(window));
        let spec = Spec::new(self.tokens, self.heads, cache(window), list).extra(extra).sinks(true);
        let case = Case { spec, data: Data::Ordinary, slots: SlotPattern::All, seed: 0 };
        case.spec.validate().map(|_| case)
    }

    /// Bytes that a call must move: each query and entry read once, each output written once.
    pub fn bytes(&self) -> usize {
        self.tokens * (self.heads * 2048 + self.entries * (584 + 4))
    }

    /// Multiply-adds of both products.
    pub fn fmas(&self) -> usize {
        2 * self.tokens * self.heads * self.entries * 512
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens, {} heads, {} entries", self.tokens, self.heads, self.entries)
    }
}

/// Times the kernel on a workload, after its first tokens were found equal to the reference's.
///
/// # Errors
/// A device that fails, or whose results are not the reference's.
pub fn measure(device: &Device, workload: Workload) -> Result<Timing> {
    let call = workload.case()?.call()?;
    let problem = *call.problem();
    let used = |(bytes, size): (&Vec<u8>, usize)| (size > 0).then(|| device.upload(bytes));
    let buffers: Buffers = call.tensors().as_ref().zip(problem.sizes()).map(used);
    let queue = || launch(device, &problem, &buffers);
    queue()?;
    check(&call, device, &buffers)?;
    let client = device.client();
    Ok(Timing {
        graph: graph(client, CALLS, |_| queue())?,
        stream: stream(client, &mut || queue())?,
        host: burst(client, &mut || queue())?,
    })
}

fn check(call: &Call, device: &Device, buffers: &Buffers) -> Result<()> {
    let Some(out) = &buffers.out else { return Ok(()) };
    let mut want = first_tokens(call, COMPARED.min(call.problem().spec().tokens))?;
    Executor::Reference.run(&mut want)?;
    let bytes = device.read(out, call.problem().sizes().out)?;
    let mut got = want.clone().into_tensors();
    got.out.copy_from_slice(&bytes[..want.problem().sizes().out]);
    let found = Runnable::compare(&want, &got, Rule::of(device.runtime()));
    let Some(first) = found.first else { return Ok(()) };
    let doing = "computing what it was timed for";
    Err(Error::Device(DeviceError::Failed { doing, reason: first }))
}
