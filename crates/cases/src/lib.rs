//! Cases of the attention operators, shared by the command line, the tests and the benchmarks: a catalogue of problems whose
//! data is drawn from a seed, file formats, what runs a case, and comparison with the reference.
//!
//! ```
//! use mla_prologue_cases::{Executor, Rule, prologue::{catalogue, compare}};
//!
//! let call = catalogue::matrix()[3].call()?;
//! let fused = Executor::open("cpu")?.result(&call)?;
//! let mut unfused = call;
//! Executor::Reference.run(&mut unfused)?;
//! assert!(compare(&unfused, &fused, Rule::Exact).holds());
//! # Ok::<(), mla_prologue_cases::Error>(())
//! ```

pub mod attend;
mod comparison;
mod draw;
mod error;
mod executor;
pub mod file;
mod input;
#[cfg(feature = "burn")]
pub mod layer;
mod pairwise;
pub mod prologue;

pub use comparison::{Comparison, Rule};
pub use error::{Error, Result};
pub use executor::{Executor, Runnable};
pub use input::Input;
