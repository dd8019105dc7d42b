//! Measurement of the fused kernel on a device. Every problem is compared with the definition, bit for
//! bit, before it is timed.

mod floor;
mod measure;
mod plot;

pub use floor::{Floor, floor};
pub use measure::{Job, LAYERS, Layers, first_result, measure, reference};
pub use plot::plot;

use crate::{
    catalogue::{Case, Data, Slots},
    operator::{
        CacheFormat, CacheLayout, Half, Index, Invalid, Key, Query, RotaryLayout, RotaryTable,
        RotaryType, Spec,
    },
};

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

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The fused kernel, every row of the output written.
    Written,
    /// The fused kernel, the added heads known to be zero.
    KnownZero,
    /// The unfused chain, as six kernels of the same device.
    Unfused,
}

/// How long one call takes, in seconds. Without graphs, on a CPU, the first two are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// What was timed.
    pub work: Work,
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

impl Work {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "fused",
            Self::KnownZero => "pads known zero",
            Self::Unfused => "unfused",
        }
    }
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

    /// What is timed on it: there are no added heads to know of where none are added.
    pub fn works(&self) -> impl Iterator<Item = Work> + use<> {
        let padded = self.padded_heads > self.heads;
        let works = [Work::Written, Work::KnownZero, Work::Unfused];
        works.into_iter().filter(move |&work| padded || work != Work::KnownZero)
    }

    /// Bytes that a call must move: each input read once, each output written once.
    pub fn bytes(&self, work: Work) -> usize {
        let written = if work == Work::KnownZero { self.heads } else { self.padded_heads };
        self.tokens * ((self.heads + 1) * 1024 + 256 + 16 + written * 1024 + 584)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens, {} to {} heads", self.tokens, self.heads, self.padded_heads)
    }
}
