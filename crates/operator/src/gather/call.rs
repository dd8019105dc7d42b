use super::Problem;
use crate::{Result, tensors::tensors};

tensors! {
    /// The tensors of a gather, in the order of the kernel's arguments. What a problem does not use is empty, or `None`.
    pub struct Tensors {
        /// `[num_blocks, block_stride]` u8: the paged cache.
        kv_cache: Read,
        /// `[rows]` i64 or i32: slots or, with a block table, tokens of a sequence.
        indices: Read,
        /// `[sequences, blocks]` i64 or i32: the block of each `block_size` tokens.
        block_table: Read,
        /// `[rows, 512]` f32, bf16 or f16: written whole.
        out: Write,
    }
}

/// A problem with its tensors in host memory, as little-endian bytes, each of its size. Running it fills `out`.
#[derive(Clone, Debug)]
pub struct Call {
    problem: Problem,
    tensors: Tensors<Vec<u8>>,
}

impl Call {
    /// Checks the tensors of a problem. `out` holds whatever is to be overwritten.
    ///
    /// # Errors
    /// The first tensor that has another size.
    pub fn new(problem: Problem, tensors: Tensors<Vec<u8>>) -> Result<Self> {
        problem.sizes().check(tensors.as_ref().map(Vec::len), true)?;
        Ok(Self { problem, tensors })
    }

    /// The shapes and options.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The tensors.
    pub const fn tensors(&self) -> &Tensors<Vec<u8>> {
        &self.tensors
    }

    /// The problem, the tensors that are read, and those that are written; each is empty in the other.
    pub fn split_mut(&mut self) -> (&Problem, Tensors<&[u8]>, Tensors<&mut [u8]>) {
        let (read, written) = self.tensors.split_mut();
        (&self.problem, read, written)
    }

    /// The tensors, to be used otherwise.
    pub fn into_tensors(self) -> Tensors<Vec<u8>> {
        self.tensors
    }
}
