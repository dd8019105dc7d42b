//! The fused prologue against the reference, bit for bit.

mod bitwise;
#[cfg(feature = "burn")]
pub mod burn;
mod encoders;
pub mod faults;
mod files;
mod graph;
mod indices;
mod workspace;
