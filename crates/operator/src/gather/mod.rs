//! Reading the cache back: rows of it are gathered and dequantized.

mod call;
mod spec;

pub use call::{Call, Tensors};
pub use spec::{BlockTable, Problem, Spec};
