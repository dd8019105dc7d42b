use crate::tensors;
use burn::tensor::{Device, Tensor};
use mla_prologue_operator::{Float16, HEAD_DIM};

/// Padded queries that are used again and again, for
/// [`run_into`](crate::Prologue::run_into): it remembers which of its heads are zero, and they are not written again, which
/// at few live heads saves most of the memory traffic.
#[derive(Debug)]
pub struct PaddedQueries {
    pub(super) tensor: Tensor<3>,
    /// The heads from this one on are zero.
    pub(super) zero_from: Option<usize>,
}

impl PaddedQueries {
    /// An output `[tokens, padded_heads, 512]`, of whose contents nothing is known yet.
    pub fn new(tokens: usize, padded_heads: usize, dtype: Float16, device: &Device) -> Self {
        let options = (device, tensors::dtype(dtype));
        Self { tensor: Tensor::empty([tokens, padded_heads, HEAD_DIM], options), zero_from: None }
    }

    /// The queries. While a clone of them is held, the next call writes to a new tensor.
    pub fn tensor(&self) -> &Tensor<3> {
        &self.tensor
    }
}
