use super::{Problem, Tensors};
use crate::Result;

/// A problem with its tensors in host memory, as little-endian bytes, checked: every tensor has its size, and every length, position
/// and sequence is within its table. Running it fills `out`, `max` and `sum`.
#[derive(Clone, Debug)]
pub struct Call {
    problem: Problem,
    tensors: Tensors<Vec<u8>>,
}

impl Call {
    /// Checks the tensors of a problem. Those that are written hold whatever is to be overwritten.
    ///
    /// # Errors
    /// The first tensor that has another size, or the first index that is out of range.
    pub fn new(problem: Problem, tensors: Tensors<Vec<u8>>) -> Result<Self> {
        problem.sizes().check(tensors.as_ref().map(Vec::len), true)?;
        problem.check_indices(&tensors.as_ref().map(Vec::as_slice))?;
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
