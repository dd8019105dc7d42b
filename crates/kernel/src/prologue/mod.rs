//! The prologue on a device.

mod blueprint;
mod empty;
mod kernel;
mod launch;
mod unfused;
mod workspace;

pub use blueprint::{Blueprint, KeyBlueprint, PaddingHeads, QueryBlueprint};
pub use empty::launch_empty;
pub use kernel::Scalars;
pub use launch::{Buffers, launch, launch_with_padding, run, upload};
pub use mla_prologue_operator::prologue::{Call, Key, Problem, Query, Spec, Tensors};
pub use unfused::Unfused;
pub use workspace::Workspace;
