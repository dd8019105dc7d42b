//! The prologue.

mod ops;
mod padded;

pub use ops::{KeyTensors, PrologueOps};
pub use padded::PaddedQueries;

use crate::{KvCache, check, kernel_device, round};
use burn::{
    backend::Dispatch,
    tensor::{DType, Int, Tensor},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::{
    HEAD_DIM, Invalid, QuantFrom, ROPE_DIM, Rounding, TableOrder,
    prologue::{Key, Problem, Query, RotaryTable, Spec},
};

/// DeepSeek-V4's attention prologue as an operator on Burn's tensors, on whatever device they are: norm,
/// RoPE and padding of the queries; RoPE, quantization and insertion of the keys.
///
/// The cache is updated in place if no clone of it is held, and else copied first, so that the clone
/// keeps its contents. An error leaves it as it was.
///
/// Queries and keys are of the cache's 16-bit type, or f32, which is rounded to it first (with [`round`]). Rows that are
/// dense, at strides that are multiples of 8 values, are read where they are; others are made contiguous.
/// A tensor on an autodiff device is refused: the operator is for inference.
///
/// By default positions and slots are checked, which reads them back from the device and so waits for it.
/// [`unchecked`](Self::unchecked) is the form without.
///
/// ```
/// # use burn::tensor::{Distribution, Tensor};
/// use mla_prologue_burn::{KvCache, Prologue, Tokens, device};
/// use mla_prologue_operator::{CacheFormat, CacheLayout};
///
/// let device = device("cpu")?;
/// let layout = CacheLayout::new(CacheFormat::default(), 64, 8).align_stride(576);
/// let mut kv_cache = KvCache::zeros(layout, &device)?;
/// let prologue = Prologue::new(16, 64); // 16 heads, padded to 64
/// let tokens = Tokens {
///     positions: Tensor::from_ints([0, 1], &device),
///     slot_mapping: Tensor::from_ints([64, 65], &device),
///     cos_sin_cache: Tensor::zeros([4096, 64], &device),
/// };
/// let q = Tensor::<3>::random([2, 16, 512], Distribution::Default, &device);
/// let kv = Tensor::<2>::random([2, 512], Distribution::Default, &device);
/// let q_out = prologue.run(q, kv, &tokens, &mut kv_cache)?;
/// assert_eq!(q_out.dims(), [2, 64, 512]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prologue {
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Where in a row of the rotary table the cosines and sines are.
    pub table_order: TableOrder,
    /// What is done to the queries. Its strides are those of the tensor of each call.
    pub query: Query,
    /// RMSNorm of the keys, if they are normalized here.
    pub key_norm: Option<KeyNorm>,
    /// Which values of the keys are quantized.
    pub quant_from: QuantFrom,
    /// Positions and slots are checked; see [`unchecked`](Self::unchecked).
    pub checked: bool,
    /// The cache's FP8 format need not be [the device's native one](mla_prologue_kernel::Device::native_fp8).
    pub any_fp8: bool,
}

/// RMSNorm of the keys.
#[derive(Clone, Debug)]
pub struct KeyNorm {
    /// `[512]`, f32 or the cache's 16-bit type.
    pub weight: Tensor<1>,
    /// Rounding between norm and RoPE.
    pub rounding: Rounding,
}

/// Where the tokens of a step are: the same for all layers.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// `[tokens]` i64 or i32: each token's row of the rotary table.
    pub positions: Tensor<1, Int>,
    /// `[slot_count]` i64 or i32, at most one for each token: its slot of the cache; negative: not inserted.
    pub slot_mapping: Tensor<1, Int>,
    /// `[positions, 64]` f32, bf16 or f16: the rotary table.
    pub cos_sin_cache: Tensor<2>,
}

impl Prologue {
    /// Queries of `heads` heads padded to `padded_heads`; eps 1e-6, keys without a norm.
    pub fn new(heads: usize, padded_heads: usize) -> Self {
        Self {
            eps: 1e-6,
            table_order: TableOrder::default(),
            query: Query::new(heads, padded_heads),
            key_norm: None,
            quant_from: QuantFrom::default(),
            checked: true,
            any_fp8: false,
        }
    }

    /// The form that does not check positions and slots, and so never waits for the device: for a step
    /// that is captured in a graph, or whose indices the caller made itself. Shapes and types are checked
    /// still. A token whose slot or position is out of range is not inserted, a position out of range leaves its heads
    /// unrotated, and a slot used twice holds bytes of either token. No other memory is accessed.
    #[must_use]
    pub fn unchecked(self) -> Self {
        Self { checked: false, ..self }
    }

    /// `q` `[tokens, heads, 512]` to `[tokens, padded_heads, 512]`, which is returned; `kv` `[tokens, 512]` into the cache.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device; a cache whose FP8 format
    /// is not native to the device, unless [`any_fp8`](Self::any_fp8); a position that is no row of the rotary table, a slot
    /// that is outside the cache or used twice.
    pub fn run(
        &self,
        q: Tensor<3>,
        kv: Tensor<2>,
        tokens: &Tokens,
        kv_cache: &mut KvCache,
    ) -> Result<Tensor<3>> {
        let problem = self.query_problem(&q, &kv, tokens, kv_cache)?;
        let count = problem.spec().tokens;
        let (padded_heads, device) = (self.query.padded_heads, kv_cache.device());
        let mut q_out = PaddedQueries::new(count, padded_heads, kv_cache.dtype, &device);
        self.run_problem(problem, q, kv, tokens, kv_cache, &mut q_out)?;
        Ok(q_out.tensor)
    }

    /// [`run`](Self::run) into an output that is used again.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and an output of another shape.
    pub fn run_into(
        &self,
        q: Tensor<3>,
        kv: Tensor<2>,
        tokens: &Tokens,
        kv_cache: &mut KvCache,
        q_out: &mut PaddedQueries,
    ) -> Result<()> {
        let problem = self.query_problem(&q, &kv, tokens, kv_cache)?;
        let shape = [problem.spec().tokens, self.query.padded_heads, HEAD_DIM];
        check::shape("q_out", &q_out.tensor, shape)?;
        check::same_device("q_out", &q_out.tensor, &kv_cache.device())?;
        check::dtype("q_out", &q_out.tensor, &[kv_cache.burn_dtype()])?;
        self.run_problem(problem, q, kv, tokens, kv_cache, q_out)
    }

    fn query_problem(
        &self,
        q: &Tensor<3>,
        kv: &Tensor<2>,
        tokens: &Tokens,
        kv_cache: &KvCache,
    ) -> Result<Problem> {
        check::shape("q", q, [kv.dims()[0], self.query.heads, HEAD_DIM])?;
        check::same_device("q", q, &kv_cache.device())?;
        self.problem(Some(self.query), kv, tokens, kv_cache)
    }

    fn run_problem(
        &self,
        problem: Problem,
        q: Tensor<3>,
        kv: Tensor<2>,
        tokens: &Tokens,
        kv_cache: &mut KvCache,
        q_out: &mut PaddedQueries,
    ) -> Result<()> {
        let q = rounded("q", q, kv_cache)?.into_dispatch();
        let keys = self.key_tensors(kv, tokens, kv_cache)?;
        let heads = self.query.heads;
        let padding_is_zero = q_out.zero_from.replace(heads).is_some_and(|from| from <= heads);
        // Taken out, so that no other clone is held.
        let cache = kv_cache.tensor.extract().into_dispatch();
        let out = q_out.tensor.extract().into_dispatch();
        let (out, cache) = Dispatch::prologue(q, keys, cache, out, padding_is_zero, problem);
        (kv_cache.tensor, q_out.tensor) =
            (Tensor::from_dispatch(cache), Tensor::from_dispatch(out));
        Ok(())
    }

    /// The keys alone: `kv` `[tokens, 512]` into the cache.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn insert(&self, kv: Tensor<2>, tokens: &Tokens, kv_cache: &mut KvCache) -> Result<()> {
        let problem = self.problem(None, &kv, tokens, kv_cache)?;
        let keys = self.key_tensors(kv, tokens, kv_cache)?;
        kv_cache.tensor.inplace(|cache| {
            Tensor::from_dispatch(Dispatch::insert_keys(keys, cache.into_dispatch(), problem))
        });
        Ok(())
    }

    /// Compiles what calls with such tensors need, and waits until it is done, so that the first token does
    /// not wait: [`run`](Self::run), [`run_into`](Self::run_into) and [`insert`](Self::insert), of 16-bit values.
    /// Of `tokens` only the types matter, and the rotary table, which must have a row. Nothing is inserted.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and a device that fails.
    pub fn warm_up(&self, tokens: &Tokens, kv_cache: &mut KvCache) -> Result<()> {
        let device = kv_cache.device();
        let float16 = (&device, kv_cache.burn_dtype());
        // Calls of few rows have a kernel of their own.
        for count in [1, kernel_device(&device)?.strategy().few_rows.max(1)] {
            let typed = |like: &Tensor<1, Int>, value: i64| {
                Tensor::<1, Int>::full([count], value, (&device, like.dtype()))
            };
            let tokens = Tokens {
                positions: typed(&tokens.positions, 0),
                slot_mapping: typed(&tokens.slot_mapping, -1),
                cos_sin_cache: tokens.cos_sin_cache.clone(),
            };
            let q = || Tensor::<3>::zeros([count, self.query.heads, HEAD_DIM], float16);
            let kv = || Tensor::<2>::zeros([count, HEAD_DIM], float16);
            let padded_heads = self.query.padded_heads;
            let mut q_out = PaddedQueries::new(count, padded_heads, kv_cache.dtype, &device);
            for _padding in ["written", "known to be zero"] {
                self.run_into(q(), kv(), &tokens, kv_cache, &mut q_out)?;
            }
            self.insert(kv(), &tokens, kv_cache)?;
        }
        // The operators are queued lazily: this makes them run.
        device.sync().map_err(|error| Error::Failed {
            doing: "compiling the kernel",
            reason: error.to_string(),
        })
    }

    /// The validated problem of one call, its tensors checked.
    fn problem(
        &self,
        query: Option<Query>,
        kv: &Tensor<2>,
        at: &Tokens,
        kv_cache: &KvCache,
    ) -> Result<Problem> {
        let count = kv.dims()[0];
        let table = RotaryTable {
            rows: at.cos_sin_cache.dims()[0],
            dtype: check::rotary("cos_sin_cache", &at.cos_sin_cache)?,
            order: self.table_order,
        };
        let key = Key::new(at.slot_mapping.dims()[0], kv_cache.layout)
            .slot_type(check::index("slot_mapping", &at.slot_mapping)?)
            .norm(self.key_norm.as_ref().map(|norm| norm.rounding))
            .quant_from(self.quant_from)
            .scale(kv_cache.scale);
        let problem = Spec::new(count, table)
            .dtype(kv_cache.dtype)
            .eps(self.eps)
            .position_type(check::index("positions", &at.positions)?)
            .query(query.map(|query| query.strides(None)))
            .key(key)
            .validate()?;
        if query.is_some_and(|query| query.scale.is_some()) {
            let must = "absent: Burn has no FP8 type for q_out";
            return Err(Invalid::unexpected("q_scale", "given", must).into());
        }
        kv_cache.check()?;
        let device = kv_cache.device();
        check::shape("kv", kv, [count, HEAD_DIM])?;
        check::shape("positions", &at.positions, [count])?;
        check::shape("cos_sin_cache", &at.cos_sin_cache, [table.rows, ROPE_DIM])?;
        check::same_device("kv", kv, &device)?;
        check::same_device("positions", &at.positions, &device)?;
        check::same_device("slot_mapping", &at.slot_mapping, &device)?;
        check::same_device("cos_sin_cache", &at.cos_sin_cache, &device)?;
        if self.checked {
            if !self.any_fp8 {
                kernel_device(&device)?.check_fp8(kv_cache.layout.format)?;
            }
            check_indices(&problem, at)?;
        }
        Ok(problem)
    }

    /// The keys and where they go, for the backend.
    fn key_tensors(
        &self,
        kv: Tensor<2>,
        at: &Tokens,
        kv_cache: &KvCache,
    ) -> Result<KeyTensors<Dispatch>> {
        let kv = rounded("kv", kv, kv_cache)?;
        let kv_norm_weight = match &self.key_norm {
            Some(KeyNorm { weight, .. }) => {
                check::shape("kv_norm_weight", weight, [HEAD_DIM])?;
                check::same_device("kv_norm_weight", weight, &kv.device())?;
                rounded("kv_norm_weight", weight.clone(), kv_cache)?.into_dispatch()
            }
            // Not accessed: there must be some tensor.
            None => at.cos_sin_cache.clone().into_dispatch(),
        };
        Ok(KeyTensors {
            kv: kv.into_dispatch(),
            kv_norm_weight,
            positions: at.positions.clone().into_dispatch(),
            slot_mapping: at.slot_mapping.clone().into_dispatch(),
            cos_sin_cache: at.cos_sin_cache.clone().into_dispatch(),
        })
    }
}

/// The tensor in the cache's 16-bit type.
fn rounded<const D: usize>(name: &str, x: Tensor<D>, kv_cache: &KvCache) -> Result<Tensor<D>> {
    check::dtype(name, &x, &[kv_cache.burn_dtype(), DType::F32])?;
    round(x, kv_cache.dtype)
}

/// Reads positions and slots back and checks them.
fn check_indices(problem: &Problem, at: &Tokens) -> Result<()> {
    let positions = check::read_back(&at.positions)?;
    let slots = check::read_back(&at.slot_mapping)?;
    Ok(problem.check_indices(&positions, &slots)?)
}
