//! The prologue: norm, RoPE and padding of the queries; norm, RoPE, quantization and insertion of the keys.

mod call;
mod problem;
mod profile;
mod spec;
mod tensors;

pub use crate::RotaryTable;
pub use call::Call;
pub use problem::Problem;
pub use profile::{Conventions, Profile};
pub use spec::{Key, Query, Spec, Strides};
pub use tensors::Tensors;
