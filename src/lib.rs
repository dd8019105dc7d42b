//! DeepSeek-V4's attention operators, each in one fused kernel, and everything around them: the facade of the
//! project's library crates.
//!
//! - [`operator`]: the vocabulary. A [`Spec`](operator::prologue::Spec) is validated into a
//!   [`Problem`](operator::prologue::Problem).
//! - [`kernel`]: the kernels on a [`Device`](kernel::Device) chosen at run time.
//! - [`mod@reference`]: the unfused operators, which define every bit.
//! - `burn`: the operators on Burn's tensors (feature `burn`).
//! - [`model`]: DeepSeek-V4's shapes, attention backends and tensor parallelism; with the feature `burn`, attention layers.
//!
//! ```
//! use mla_prologue::{kernel::{self, Device}, reference};
//! use mla_prologue::operator::prologue::{Call, Query, RotaryTable, Spec, Tensors};
//!
//! let problem = Spec::new(4, RotaryTable::new(16)).query(Query::new(16, 64)).validate()?;
//! let tensors = problem.sizes().map(|bytes| vec![0; bytes]);
//! let (mut fused, mut unfused) = (Call::new(problem, tensors.clone())?, Call::new(problem, tensors)?);
//! kernel::prologue::run(&Device::open("cpu")?, &mut fused)?;
//! reference::prologue::run(&mut unfused);
//! assert_eq!(fused.tensors().q_out, unfused.tensors().q_out);
//! # Ok::<(), mla_prologue::kernel::Error>(())
//! ```

#[cfg(feature = "burn")]
pub use mla_prologue_burn as burn;
pub use mla_prologue_kernel as kernel;
pub use mla_prologue_model as model;
pub use mla_prologue_operator as operator;
pub use mla_prologue_reference as reference;
