//! Reading the cache back.

mod ops;

pub use ops::GatherOps;

use crate::{KvCache, check};
use burn::{
    backend::Dispatch,
    tensor::{Int, Tensor},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::gather::{BlockTable, Spec};

/// Reads the cache back: gathers rows and dequantizes them. A row without a token (its index or block is negative, or
/// outside) is zero.
///
/// ```
/// # use burn::tensor::{Int, Tensor};
/// # use mla_prologue_burn::{Gather, KvCache, device};
/// # use mla_prologue_operator::{CacheFormat, CacheLayout};
/// let device = device("cpu")?;
/// let cache = KvCache::zeros(CacheLayout::new(CacheFormat::default(), 4, 2), &device)?;
/// let slots = Tensor::<1, Int>::from_ints([7, -1], &device);
/// let rows = Gather::new().slots(&cache, slots)?;
/// assert_eq!(rows.dims(), [2, 512]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Gather {
    /// Round the values to the cache's 16-bit type; otherwise they are f32, which holds each of them exactly.
    pub rounded: bool,
}

impl Gather {
    /// f32 values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Values of the cache's 16-bit type.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self { rounded: true }
    }

    /// The rows of these slots: `slots` `[n]` i64 or i32 to `[n, 512]`.
    ///
    /// # Errors
    /// A tensor that is not of the type or shape that it must have, or on another device.
    pub fn slots(&self, cache: &KvCache, slots: Tensor<1, Int>) -> Result<Tensor<2>> {
        self.gather(cache, slots, None)
    }

    /// The rows of tokens of sequences: `tokens` `[n]` numbered within their sequences, `block_table`
    /// `[sequences, blocks]`, both i64 or i32, to `[n, 512]`. Each sequence has n / sequences of the tokens,
    /// one sequence after the other.
    ///
    /// # Errors
    /// Those of [`slots`](Self::slots), or tokens that cannot be divided among the sequences.
    pub fn tokens(
        &self,
        cache: &KvCache,
        tokens: Tensor<1, Int>,
        block_table: Tensor<2, Int>,
    ) -> Result<Tensor<2>> {
        self.gather(cache, tokens, Some(block_table))
    }

    fn gather(
        &self,
        cache: &KvCache,
        indices: Tensor<1, Int>,
        block_table: Option<Tensor<2, Int>>,
    ) -> Result<Tensor<2>> {
        let table = block_table.as_ref().map(|table| {
            let [sequences, blocks] = table.dims();
            let index_type = check::index("block_table", table)?;
            Ok::<_, Error>(BlockTable { sequences, blocks, index_type })
        });
        let problem = Spec::new(cache.layout, indices.dims()[0])
            .scale(cache.scale)
            .dtype(cache.dtype)
            .rounded(self.rounded)
            .index_type(check::index("the indices", &indices)?)
            .block_table(table.transpose()?)
            .validate()?;
        cache.check()?;
        let device = cache.device();
        check::same_device("the indices", &indices, &device)?;
        if let Some(table) = &block_table {
            check::same_device("block_table", table, &device)?;
        }
        // Where there is no table, some tensor must be in its place.
        let block_table = block_table.unwrap_or_else(|| cache.tensor.clone());
        Ok(Tensor::from_dispatch(Dispatch::gather(
            cache.tensor.clone().into_dispatch(),
            indices.into_dispatch(),
            block_table.into_dispatch(),
            problem,
        )))
    }
}
