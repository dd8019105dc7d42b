//! The suite: the fused kernel against the unfused chain, bit for bit, on every device present.

mod bitwise;
mod cli;
mod compilers;
mod emulated;
mod encoders;
mod faults;
mod files;
mod gather;
mod graph;
mod indices;
#[cfg(feature = "burn")]
mod layer;
#[cfg(feature = "burn")]
mod op;
#[cfg(feature = "hip")]
mod rocm;
mod source;
mod support;
mod workspace;
