use super::{
    backend::{self, PrologueOps},
    check, kernel_device,
    padded::PaddedQueries,
    round,
};
use burn::{
    backend::Dispatch,
    tensor::{DType, Int, Tensor},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::{
    CacheLayout, HEAD_DIM, Half, Inputs, Invalid, Key, Problem, Query, ROPE_DIM, RotaryLayout,
    RotaryTable, RotaryType, Spec,
};

/// DeepSeek-V4's attention prologue as an operator on Burn's tensors, on whatever device they are: norm,
/// RoPE and padding of the queries; RoPE, quantization and insertion of the keys.
///
/// The cache is updated in place if nobody holds a clone of it, and else copied first, so that the clone
/// keeps its contents. An error leaves it as it was.
///
/// Queries and keys are `half`, or f32, which is rounded to `half` first (with [`round`]). Rows that are
/// dense, at strides that are multiples of 8 values, are read where they are; others are made contiguous.
/// A tensor on an autodiff device is refused: the operator is for inference.
///
/// By default positions and slots are checked, which reads them back from the device and so waits for it.
/// [`unchecked`](Self::unchecked) is the form without.
///
/// ```
/// # use burn::tensor::{DType, Distribution, Int, Tensor};
/// use mla_prologue_model::{Prologue, Rotary, Tokens, device};
/// use mla_prologue_operator::{CacheFormat, CacheLayout};
///
/// let device = device("cpu")?;
/// let cache = CacheLayout { format: CacheFormat::default(), block_size: 64, block_stride: 37440, num_blocks: 8 };
/// let prologue = Prologue::new(16, 64, cache); // 16 heads, padded to 64
/// let tokens = Tokens {
///     positions: Tensor::from_ints([0, 1], &device),
///     slot_mapping: Tensor::from_ints([64, 65], &device),
///     cos_sin_cache: Rotary::WINDOW.tensor(4096, &device),
/// };
/// let q = Tensor::<3>::random([2, 16, 512], Distribution::Default, &device);
/// let kv = Tensor::<2>::random([2, 512], Distribution::Default, &device);
/// let mut kv_cache = Tensor::<2, Int>::zeros([8, 37440], (&device, DType::U8));
/// let q_out = prologue.run(q, kv, &tokens, &mut kv_cache)?;
/// assert_eq!(q_out.dims(), [2, 64, 512]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prologue {
    /// The type of queries, keys and outputs.
    pub half: Half,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Where in a row of the rotary table the cosines and sines are.
    pub table_layout: RotaryLayout,
    /// The work on the queries. Its strides are those of the tensor of each call.
    pub query: Query,
    /// The work on the keys, and the cache. Its counts, types and strides are those of the tensors of each call.
    pub key: Key,
    /// `[512]`, f32 or `half`: the weight of the keys' norm, with [`Key::norm`].
    pub kv_norm_weight: Option<Tensor<1>>,
    /// Positions and slots are checked; see [`unchecked`](Self::unchecked).
    pub checked: bool,
    /// The cache's 8-bit format need not be [the device's own](mla_prologue_kernel::Device::own_fp8).
    pub any_fp8: bool,
}

/// Where the tokens of a step are: the same for all layers.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// `[tokens]` i64 or i32: each token's row of the rotary table.
    pub positions: Tensor<1, Int>,
    /// `[slots]` i64 or i32, at most one for each token: where the token goes; negative: nowhere.
    pub slot_mapping: Tensor<1, Int>,
    /// `[positions, 64]` f32, bf16 or f16: the rotary table.
    pub cos_sin_cache: Tensor<2>,
}

impl Prologue {
    /// Queries of `heads` heads padded to `padded_heads`, keys into a cache; bf16, eps 1e-6.
    pub fn new(heads: usize, padded_heads: usize, cache: CacheLayout) -> Self {
        Self {
            half: Half::Bf16,
            eps: 1e-6,
            table_layout: RotaryLayout::default(),
            query: Query::new(heads, padded_heads),
            key: Key::new(0, cache),
            kv_norm_weight: None,
            checked: true,
            any_fp8: false,
        }
    }

    /// The form that does not look at positions and slots, and so never waits for the device: for a step
    /// that is captured in a graph, or whose indices the caller made itself. Shapes and types are checked
    /// still. It trusts that positions are rows of the table and that slots are in the cache, each used
    /// once: a token for which that is not so is not inserted, a position outside leaves it unrotated, and
    /// a slot used twice holds bytes of either token. No other memory is touched.
    pub fn unchecked(self) -> Self {
        Self { checked: false, ..self }
    }

    /// `q` `[tokens, heads, 512]` to `[tokens, padded_heads, 512]`, which is returned; `kv` `[tokens, 512]` into
    /// `kv_cache` `[num_blocks, block_stride]` u8.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device; a cache whose 8-bit format
    /// is not the device's own, unless [`any_fp8`](Self::any_fp8); a position that is no row of the rotary table, a slot that is outside the cache or used twice.
    pub fn run(
        &self,
        q: Tensor<3>,
        kv: Tensor<2>,
        tokens: &Tokens,
        kv_cache: &mut Tensor<2, Int>,
    ) -> Result<Tensor<3>> {
        let problem = self.query_problem(&q, &kv, tokens, kv_cache)?;
        let (count, padded_heads) = (problem.tokens, self.query.padded_heads);
        let mut q_out = PaddedQueries::new(count, padded_heads, self.half, &kv_cache.device());
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
        kv_cache: &mut Tensor<2, Int>,
        q_out: &mut PaddedQueries,
    ) -> Result<()> {
        let problem = self.query_problem(&q, &kv, tokens, kv_cache)?;
        let shape = [problem.tokens, self.query.padded_heads, HEAD_DIM];
        check::shape("q_out", &q_out.tensor, shape)?;
        check::same_device("q_out", &q_out.tensor, &kv_cache.device())?;
        check::dtype("q_out", &q_out.tensor, &[backend::dtype(self.half)])?;
        self.run_problem(problem, q, kv, tokens, kv_cache, q_out)
    }

    fn query_problem(
        &self,
        q: &Tensor<3>,
        kv: &Tensor<2>,
        tokens: &Tokens,
        kv_cache: &Tensor<2, Int>,
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
        kv_cache: &mut Tensor<2, Int>,
        q_out: &mut PaddedQueries,
    ) -> Result<()> {
        let heads = self.query.heads;
        let q = self.rounded("q", q)?.into_dispatch();
        let [kv, weight, positions, slots, table] = self.key_tensors(kv, tokens)?;

        let known_zero = q_out.zero_from.replace(heads).is_some_and(|from| from <= heads);
        // Taken out, so that nobody else holds them.
        let (cache, out) = (kv_cache.extract(), q_out.tensor.extract());
        let (out, cache) = Dispatch::prologue(
            q,
            kv,
            weight,
            positions,
            slots,
            table,
            cache.into_dispatch(),
            out.into_dispatch(),
            known_zero,
            problem,
        );
        (*kv_cache, q_out.tensor) = (Tensor::from_dispatch(cache), Tensor::from_dispatch(out));
        Ok(())
    }

    /// The keys alone: `kv` `[tokens, 512]` into `kv_cache`.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn insert(
        &self,
        kv: Tensor<2>,
        tokens: &Tokens,
        kv_cache: &mut Tensor<2, Int>,
    ) -> Result<()> {
        let problem = self.problem(None, &kv, tokens, kv_cache)?;
        let [kv, weight, positions, slots, table] = self.key_tensors(kv, tokens)?;
        kv_cache.inplace(|cache| {
            let cache = cache.into_dispatch();
            let cache = Dispatch::insert_keys(kv, weight, positions, slots, table, cache, problem);
            Tensor::from_dispatch(cache)
        });
        Ok(())
    }

    /// Compiles what calls with such tensors need, and waits until it is done, so that the first token does
    /// not: [`run`](Self::run), [`run_into`](Self::run_into) and [`insert`](Self::insert), of `half` values.
    /// Of `tokens` only the types matter, and the rotary table, which must have a row. Nothing is inserted.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and a device that fails.
    pub fn warm_up(&self, tokens: &Tokens, kv_cache: &mut Tensor<2, Int>) -> Result<()> {
        let device = kv_cache.device();
        let halves = (&device, backend::dtype(self.half));
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
            let q = || Tensor::<3>::zeros([count, self.query.heads, HEAD_DIM], halves);
            let kv = || Tensor::<2>::zeros([count, HEAD_DIM], halves);
            let padded_heads = self.query.padded_heads;
            let mut q_out = PaddedQueries::new(count, padded_heads, self.half, &device);
            for _pads in ["written", "known to be zero"] {
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

    /// The validated problem of one call.
    fn problem(
        &self,
        query: Option<Query>,
        kv: &Tensor<2>,
        at: &Tokens,
        kv_cache: &Tensor<2, Int>,
    ) -> Result<Problem> {
        let count = kv.dims()[0];
        let table = RotaryTable {
            rows: at.cos_sin_cache.dims()[0],
            number: match check::dtype(
                "cos_sin_cache",
                &at.cos_sin_cache,
                &[DType::F32, DType::BF16, DType::F16],
            )? {
                DType::BF16 => RotaryType::Bf16,
                DType::F16 => RotaryType::F16,
                _ => RotaryType::F32,
            },
            layout: self.table_layout,
        };
        let cache = self.key.cache;
        let key = Key {
            slots: at.slot_mapping.dims()[0],
            slot_type: check::index("slot_mapping", &at.slot_mapping)?,
            row_stride: None,
            ..self.key
        };
        let spec = Spec {
            tokens: count,
            half: self.half,
            eps: self.eps,
            positions: check::index("positions", &at.positions)?,
            table,
            query: query.map(|query| Query { strides: None, ..query }),
            key: Some(key),
        };
        let problem = spec.validate()?;
        if query.is_some_and(|query| query.scale.is_some()) {
            let must = "absent: Burn has no FP8 type for q_out";
            return Err(Invalid::new("q_scale", "given", must).into());
        }
        let device = kv_cache.device();
        check::backend("kv_cache", kv_cache)?;
        check::dtype("kv_cache", kv_cache, &[DType::U8])?;
        check::shape("kv_cache", kv_cache, [cache.num_blocks, cache.block_stride])?;
        check::shape("kv", kv, [count, HEAD_DIM])?;
        check::shape("positions", &at.positions, [count])?;
        check::shape("cos_sin_cache", &at.cos_sin_cache, [table.rows, ROPE_DIM])?;
        check::same_device("kv", kv, &device)?;
        check::same_device("positions", &at.positions, &device)?;
        check::same_device("slot_mapping", &at.slot_mapping, &device)?;
        check::same_device("cos_sin_cache", &at.cos_sin_cache, &device)?;
        if self.checked {
            if !self.any_fp8 {
                kernel_device(&device)?.check_fp8(cache.format)?;
            }
            check_indices(&problem, at)?;
        }
        Ok(problem)
    }

    /// Keys, their norm's weight, positions, slots and rotary table for the backend.
    fn key_tensors(
        &self,
        kv: Tensor<2>,
        at: &Tokens,
    ) -> Result<[burn::backend::DispatchTensor; 5]> {
        let kv = self.rounded("kv", kv)?;
        let weight = match (&self.kv_norm_weight, self.key.norm) {
            (Some(weight), Some(_)) => {
                check::shape("kv_norm_weight", weight, [HEAD_DIM])?;
                check::same_device("kv_norm_weight", weight, &kv.device())?;
                self.rounded("kv_norm_weight", weight.clone())?.into_dispatch()
            }
            (None, Some(_)) => {
                let must = "given with a norm of the key";
                return Err(Invalid::new("kv_norm_weight", "absent", must).into());
            }
            // Not looked at: there must be some tensor.
            (_, None) => at.cos_sin_cache.clone().into_dispatch(),
        };
        Ok([
            kv.into_dispatch(),
            weight,
            at.positions.clone().into_dispatch(),
            at.slot_mapping.clone().into_dispatch(),
            at.cos_sin_cache.clone().into_dispatch(),
        ])
    }

    /// The tensor in `half`.
    fn rounded<const D: usize>(&self, name: &str, x: Tensor<D>) -> Result<Tensor<D>> {
        check::dtype(name, &x, &[backend::dtype(self.half), DType::F32])?;
        round(x, self.half)
    }
}

/// Reads positions and slots back and checks them.
fn check_indices(problem: &Problem, at: &Tokens) -> Result<()> {
    let read = |tensor: &Tensor<1, Int>| {
        let data = tensor.clone().try_into_data();
        data.map_err(|error| Error::Failed {
            doing: "reading indices back",
            reason: error.to_string(),
        })
    };
    let (positions, slots) = (read(&at.positions)?, read(&at.slot_mapping)?);
    let inputs = Inputs {
        positions: positions.as_bytes(),
        slot_mapping: slots.as_bytes(),
        ..Default::default()
    };
    Ok(inputs.check_indices(problem)?)
}
