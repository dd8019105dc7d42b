use super::{backend::PrologueOps, check};
use burn::{
    backend::Dispatch,
    tensor::{DType, Int, Tensor},
};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{BlockTable, CacheLayout, Gather, Half};

/// Reads the cache back: gathers rows and dequantizes them. A row without a token (a negative index, one
/// outside, or a block that is) is zero.
///
/// ```
/// # use burn::tensor::{DType, Int, Tensor};
/// # use mla_prologue_model::{Reader, device};
/// # use mla_prologue_operator::{CacheFormat, CacheLayout};
/// let cache = CacheLayout { format: CacheFormat::default(), block_size: 4, block_stride: 2336, num_blocks: 2 };
/// let device = device("cpu")?;
/// let kv_cache = Tensor::<2, Int>::zeros([2, 2336], (&device, DType::U8));
/// let slots = Tensor::<1, Int>::from_ints([7, -1], &device);
/// let rows = Reader::new(cache).slots(kv_cache, slots)?;
/// assert_eq!(rows.dims(), [2, 512]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The cache.
    pub cache: CacheLayout,
    /// The scale of the whole tensor in a cache of FP8 rows.
    pub scale: Option<f32>,
    /// The type of the cache's 16-bit values.
    pub half: Half,
    /// Round the values to `half`; otherwise they are f32, which holds each of them exactly.
    pub rounded: bool,
}

impl Reader {
    /// A reader of f32 values.
    pub fn new(cache: CacheLayout) -> Self {
        Self { cache, scale: None, half: Half::default(), rounded: false }
    }

    /// The rows of these slots: `slots` `[n]` i64 or i32 to `[n, 512]`. `kv_cache` is
    /// `[num_blocks, block_stride]` u8.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device.
    pub fn slots(&self, kv_cache: Tensor<2, Int>, slots: Tensor<1, Int>) -> Result<Tensor<2>> {
        // Not looked at: there must be some tensor.
        let block_table = slots.clone().unsqueeze();
        self.gather(kv_cache, slots, block_table, false)
    }

    /// The rows of tokens of sequences: `tokens` `[n]` numbered within their sequences, `block_table`
    /// `[sequences, blocks]`, both i64 or i32, to `[n, 512]`. Each sequence has n / sequences of the tokens,
    /// one sequence after the other.
    ///
    /// # Errors
    /// Those of [`slots`](Self::slots), or tokens that cannot be divided among the sequences.
    pub fn tokens(
        &self,
        kv_cache: Tensor<2, Int>,
        tokens: Tensor<1, Int>,
        block_table: Tensor<2, Int>,
    ) -> Result<Tensor<2>> {
        self.gather(kv_cache, tokens, block_table, true)
    }

    fn gather(
        &self,
        kv_cache: Tensor<2, Int>,
        indices: Tensor<1, Int>,
        block_table: Tensor<2, Int>,
        by_token: bool,
    ) -> Result<Tensor<2>> {
        let [sequences, blocks] = block_table.dims();
        let index = check::index("block_table", &block_table)?;
        let gather = Gather {
            rows: indices.dims()[0],
            cache: self.cache,
            scale: self.scale,
            half: self.half,
            rounded: self.rounded,
            indices: check::index("the indices", &indices)?,
            block_table: by_token.then_some(BlockTable { sequences, blocks, index }),
        };
        gather.validate()?;
        check::dtype("kv_cache", &kv_cache, &[DType::U8])?;
        check::shape("kv_cache", &kv_cache, [self.cache.num_blocks, self.cache.block_stride])?;
        let device = kv_cache.device();
        check::backend("kv_cache", &kv_cache)?;
        check::same_device("the indices", &indices, &device)?;
        check::same_device("block_table", &block_table, &device)?;
        Ok(Tensor::from_dispatch(Dispatch::gather_rows(
            kv_cache.into_dispatch(),
            indices.into_dispatch(),
            block_table.into_dispatch(),
            gather,
        )))
    }
}
