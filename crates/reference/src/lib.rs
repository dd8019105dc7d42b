//! The executable reference of DeepSeek-V4's attention operators: each **unfused**, as separate passes over whole
//! tensors, in plain Rust.
//!
//! [`prologue`], [`attend`] and [`gather`] are the operators; each other module is one step and says exactly what is computed, in
//! which order and with which roundings: the fused kernels must give the same bits. Every operation is IEEE f32, rounded
//! to nearest even; `mul_add` rounds once.

pub mod attend;
pub mod cache;
pub mod exp2;
pub mod gather;
pub mod norm;
pub mod numbers;
pub mod pad;
pub mod prologue;
pub mod quant;
pub mod rope;
