//! wip
mod call;
pub mod catalogue;
mod error;
pub mod file;
pub mod verify;
pub use call::{Call, Output, Target};
pub use error::{Error, Result};
pub use mla_prologue_kernel as kernel;
pub use mla_prologue_model as model;
pub use mla_prologue_operator as operator;
pub use mla_prologue_reference as reference;
