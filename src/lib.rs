//! DeepSeek-V4's attention prologue in one fused kernel, and everything around it: the facade of the
//! project's crates, and what its command line, tests and benchmarks share.
//!
//! - [`operator`]: the vocabulary. A [`Spec`](operator::Spec) is validated into a
//!   [`Problem`](operator::Problem).
//! - [`kernel`]: the fused kernel on a [`Device`](kernel::Device) chosen at run time.
//! - [`mod@reference`]: the unfused chain, which defines every bit.
//! - [`model`]: DeepSeek-V4's shapes, attention backends and tensor parallelism.
//! - [`file`](mod@file), [`catalogue`], [`verify`], [`mod@bench`]: calls in files, calls drawn from a seed, comparison,
//!   measurement.
//! - [`portability`]: what the code generated for each target looks like.
//!
//! ```
//! use mla_prologue::{Target, catalogue, verify::{Rule, compare}};
//!
//! let call = catalogue::matrix()[3].call()?;
//! let fused = call.run(&Target::open("cpu")?)?;
//! let unfused = call.run(&Target::Reference)?;
//! assert!(compare(&call, &unfused, &fused, Rule::Exact).holds());
//! # Ok::<(), mla_prologue::Error>(())
//! ```

pub mod bench;
mod call;
pub mod catalogue;
mod error;
pub mod file;
#[cfg(feature = "burn")]
pub mod layer;
pub mod portability;
pub mod verify;

pub use call::{Call, Output, Target};
pub use error::{Error, Result};
pub use mla_prologue_kernel as kernel;
pub use mla_prologue_model as model;
pub use mla_prologue_operator as operator;
pub use mla_prologue_reference as reference;
