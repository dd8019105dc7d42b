//! Measurement of the kernels on a device. Every problem is compared with the reference, bit for bit, before it is timed. The
//! prologue is at the root, attention in [`attend`].

pub mod attend;
mod floor;
mod measure;
mod plot;

pub use floor::{Floor, floor};
pub use measure::{Job, LAYERS, Layers, first_result, measure, reference};
pub use plot::plot;

use mla_prologue_cases::prologue::{Case, Data, SlotPattern};
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Invalid,
    prologue::{Key, Query, RotaryTable, Spec},
};

/// A problem to time: token count, live heads, padded heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a call.
    pub tokens: usize,
    /// Live heads.
    pub heads: usize,
    /// Padded heads.
    pub padded_heads: usize,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The fused kernel, every row of the output written.
    Written,
    /// The fused kernel, the padding heads known to be zero.
    KnownZero,
    /// The unfused chain, as six kernels of the same device.
    Unfused,
}

/// How long one call takes, in seconds. Without graphs, on a CPU, the first two are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// What was timed.
    pub variant: Variant,
    /// In a captured graph of 100 calls on the same buffers: small ones stay in the L2 cache.
    pub graph: Option<f64>,
    /// In a captured graph of calls on `layers` sets of buffers in turn, as the layers of a model have them.
    pub rotated: Option<f64>,
    /// Sets of buffers that were rotated; [`LAYERS`] where they take no more than 2 GiB.
    pub layers: usize,
    /// Queued one after the other on a stream.
    pub stream: f64,
    /// What the calling thread spends on a call, in bursts of 16.
    pub host: f64,
}

impl Timing {
    /// The best that the device does: in a graph where it has them.
    pub fn best(&self) -> f64 {
        self.graph.unwrap_or(self.stream)
    }
}

impl Variant {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "fused",
            Self::KnownZero => "padding known zero",
            Self::Unfused => "unfused",
        }
    }
}

/// The problems that are timed without being asked for others.
pub const WORKLOADS: [Workload; 10] = [
    Workload::new(1, 16, 64),
    Workload::new(8, 16, 64),
    Workload::new(64, 16, 64),
    Workload::new(256, 16, 64),
    Workload::new(1024, 16, 64),
    Workload::new(4096, 16, 64),
    Workload::new(16384, 16, 64),
    Workload::new(64, 64, 64),
    Workload::new(4096, 64, 64),
    Workload::new(8192, 128, 128),
];

/// Bytes of inputs and outputs beyond which one is refused: what a large GPU holds.
const MOST: usize = 128 << 30;

impl Workload {
    /// Tokens, live heads, padded heads.
    pub const fn new(tokens: usize, heads: usize, padded_heads: usize) -> Self {
        Self { tokens, heads, padded_heads }
    }

    /// Checks that it is a valid problem of a size that a GPU holds.
    ///
    /// # Errors
    /// What is invalid.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.tokens == 0 {
            return Err(Invalid::new("the token count", 0, "1 or more: there is nothing to time"));
        }
        let problem = self.case().spec.validate()?;
        let bytes: usize = problem.sizes().named().map(|(_, bytes)| bytes).sum();
        if bytes <= MOST {
            return Ok(());
        }
        Err(Invalid::new(
            "the workload",
            format_args!("{bytes} bytes of tensors"),
            format_args!("at most {MOST}"),
        ))
    }

    /// The base operator on this problem, with blocks of 64 tokens every 37,440 bytes.
    pub fn case(&self) -> Case {
        let cache = CacheLayout::new(CacheFormat::default(), 64, self.tokens.div_ceil(64) + 1);
        let spec = Spec::new(self.tokens, RotaryTable::new(4096))
            .query(Query::new(self.heads, self.padded_heads))
            .key(Key::new(self.tokens, cache.align_stride(576)));
        Case { spec, data: Data::Ordinary, slots: SlotPattern::Shuffled, seed: 0 }
    }

    /// What is timed on it: without padding heads there are none to be known.
    pub fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let padded = self.padded_heads > self.heads;
        let variants = [Variant::Written, Variant::KnownZero, Variant::Unfused];
        variants.into_iter().filter(move |&variant| padded || variant != Variant::KnownZero)
    }

    /// Bytes that a call must move: each input read once, each output written once.
    pub fn bytes(&self, variant: Variant) -> usize {
        let written = if variant == Variant::KnownZero { self.heads } else { self.padded_heads };
        self.tokens * ((self.heads + 1) * 1024 + 256 + 16 + written * 1024 + 584)
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens, {} to {} heads", self.tokens, self.heads, self.padded_heads)
    }
}
