//! The suite: the fused kernel against the unfused chain, bit for bit, on every device present.

mod bitwise;
mod cli;
mod encoders;
mod faults;
mod files;
mod graph;
mod indices;
mod source;
mod support;
mod workspace;
