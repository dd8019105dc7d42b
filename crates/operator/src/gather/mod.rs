//! Reading the cache back: rows of it are gathered and dequantized.

mod call;
mod spec;

pub use crate::BlockTable;
pub use call::{Call, Tensors};
pub use spec::{Problem, Spec};
