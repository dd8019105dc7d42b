//! Reading the cache back on a device.

mod blueprint;
mod kernel;
mod launch;

pub use blueprint::Blueprint;
pub use launch::{Buffers, launch, run};
pub use mla_prologue_operator::gather::{BlockTable, Call, Problem, Spec, Tensors};
