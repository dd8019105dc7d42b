//! Attention over the paged cache.

mod attended;
mod ops;

pub use attended::{Attended, SlotTensors};
pub use ops::{AttendOps, AttendTensors};

use crate::{KvCache, check, round};
use burn::{
    backend::Dispatch,
    tensor::{DType, Tensor},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::{
    HEAD_DIM, TableOrder,
    attend::{Problem, SCALE, Spec},
};

/// Attention over the paged cache as an operator on Burn's tensors, for any number of heads: nothing needs to be padded.
///
/// Queries are of the cache's 16-bit type, or f32, which is rounded to it first (with [`round`]). They may have more heads than attend, as
/// the prologue pads them: the others are not read.
///
/// By default lengths, positions and sequences are checked, which reads them back from the device and so waits for it.
/// [`unchecked`](Self::unchecked) is the form without. Slots may be anything: those outside the cache are skipped.
///
/// ```
/// # use burn::tensor::{Distribution, Int, Tensor};
/// use mla_prologue_burn::{Attend, Attended, KvCache, device};
/// use mla_prologue_operator::{CacheFormat, CacheLayout};
///
/// let device = device("cpu")?;
/// let layout = CacheLayout::new(CacheFormat::default(), 64, 8).align_stride(576);
/// let kv_cache = KvCache::zeros(layout, &device)?;
/// let q = Tensor::<3>::random([2, 64, 512], Distribution::Default, &device);
/// let slots = Tensor::<2, Int>::from_ints([[64, 65, 66], [70, 71, -1]], &device);
/// let out = Attend::new(16).run(q, &kv_cache, &Attended::slots(slots))?; // 16 of the 64 heads
/// assert_eq!(out.dims(), [2, 16, 512]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attend {
    /// Heads that attend: the first of the queries.
    pub heads: usize,
    /// Heads of the output; those beyond `heads` are zero.
    pub padded_heads: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Where in a row of the rotary table the cosines and sines are.
    pub table_order: TableOrder,
    /// Lengths, positions and sequences are checked; see [`unchecked`](Self::unchecked).
    pub checked: bool,
}

/// The output of a call with what is needed to merge it with attention over other entries.
#[derive(Clone, Debug)]
pub struct WithStats {
    /// `[tokens, padded_heads, 512]`, in the cache's 16-bit type.
    pub out: Tensor<3>,
    /// `[tokens, heads]` f32: the largest score, the sink left out.
    pub max: Tensor<2>,
    /// `[tokens, heads]` f32: the sum of the weights, each relative to that of the largest score.
    pub sum: Tensor<2>,
}

impl Attend {
    /// Attention of that many heads, scores times 1 / sqrt(512).
    pub fn new(heads: usize) -> Self {
        let table_order = TableOrder::default();
        Self { heads, padded_heads: heads, scale: SCALE, table_order, checked: true }
    }

    /// An output of more heads, which are zero.
    #[must_use]
    pub fn padded_heads(self, padded_heads: usize) -> Self {
        Self { padded_heads, ..self }
    }

    /// What scores are multiplied by.
    #[must_use]
    pub fn scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// The form that does not check lengths, positions and sequences, and so never waits for the device: for a step that is
    /// captured in a graph. Shapes and types are checked still. Lengths are clamped; a position or sequence that is out of range has no
    /// entries, and no rotation. No other memory is accessed.
    #[must_use]
    pub fn unchecked(self) -> Self {
        Self { checked: false, ..self }
    }

    /// `q` `[tokens, q_heads, 512]` to `[tokens, padded_heads, 512]` in the cache's 16-bit type.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device; unless unchecked, a length,
    /// position or sequence that is out of range.
    pub fn run(&self, q: Tensor<3>, kv_cache: &KvCache, to: &Attended) -> Result<Tensor<3>> {
        let problem = self.problem(&q, kv_cache, to, false)?;
        let tensors = to.tensors(&q, kv_cache);
        let q = round(q, kv_cache.dtype)?.into_dispatch();
        Ok(Tensor::from_dispatch(Dispatch::attend(q, tensors, problem)))
    }

    /// [`run`](Self::run), with what is needed to merge the result with attention over other entries.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_with_stats(
        &self,
        q: Tensor<3>,
        kv_cache: &KvCache,
        to: &Attended,
    ) -> Result<WithStats> {
        let problem = self.problem(&q, kv_cache, to, true)?;
        let tensors = to.tensors(&q, kv_cache);
        let q = round(q, kv_cache.dtype)?.into_dispatch();
        let (out, max, sum) = Dispatch::attend_with_stats(q, tensors, problem);
        let out = Tensor::from_dispatch(out);
        Ok(WithStats { out, max: Tensor::from_dispatch(max), sum: Tensor::from_dispatch(sum) })
    }

    /// Compiles what [`run`](Self::run) needs for queries of `q_heads` heads in the cache's 16-bit type and such entries, and waits
    /// until it is done, so that the first token does not wait.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and a device that fails.
    pub fn warm_up(&self, q_heads: usize, kv_cache: &KvCache, to: &Attended) -> Result<()> {
        let device = kv_cache.device();
        let options = (&device, kv_cache.burn_dtype());
        let q = Tensor::<3>::zeros([to.token_count(), q_heads, HEAD_DIM], options);
        self.run(q, kv_cache, to)?;
        // The operators are queued lazily: this makes them run.
        device.sync().map_err(|error| Error::Failed {
            doing: "compiling the kernel",
            reason: error.to_string(),
        })
    }

    /// The validated problem of one call, its tensors checked.
    fn problem(
        &self,
        q: &Tensor<3>,
        kv_cache: &KvCache,
        to: &Attended,
        stats: bool,
    ) -> Result<Problem> {
        let [tokens, q_heads, _] = q.dims();
        check::shape("q", q, [tokens, q_heads, HEAD_DIM])?;
        check::dtype("q", q, &[kv_cache.burn_dtype(), DType::F32])?;
        kv_cache.check()?;
        check::same_device("q", q, &kv_cache.device())?;
        let spec = Spec::new(tokens, self.heads, kv_cache.layout, to.entries_spec(tokens)?)
            .q_heads(q_heads)
            .padded_heads(self.padded_heads)
            .dtype(kv_cache.dtype)
            .scale(self.scale)
            .kv_scale(kv_cache.scale)
            .extra(to.extra_spec(tokens, kv_cache)?)
            .sinks(to.has_sinks())
            .position_type(to.position_type(tokens)?)
            .rotary(to.rotary_spec(self.table_order)?)
            .stats(stats);
        let problem = spec.validate()?;
        to.check_sinks(self.heads)?;
        to.check_devices(&kv_cache.device())?;
        if self.checked {
            to.check_indices(&problem)?;
        }
        Ok(problem)
    }
}
