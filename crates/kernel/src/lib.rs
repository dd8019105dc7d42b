//! DeepSeek-V4's attention operators on a device, each **one** kernel, written once as a CubeCL `#[cube]` function and
//! compiled at run time for CUDA, ROCm, Vulkan or the CPU. They give the same bits as the unfused operators of
//! `mla-prologue-reference`.
//!
//! - [`prologue`]: normalizes and rotates the query heads of each token, pads them to the count that the attention
//!   kernel accepts, and rotates, quantizes and inserts the key into the paged cache.
//! - [`attend`]: attention over the cache, for any number of heads.
//! - [`gather`]: reads the cache back.
//! - [`convert`]: what a framework needs besides, with the bits of the operators' own conversions.
//!
//! Each operator has `launch`, on buffers of a [`Device`], and `run`, on tensors in host memory. In its folder: the
//! *blueprint* (what is known when the kernel is compiled), the *kernel* and the *launch*. What they share is in `row` (a
//! row of 512 values and its steps) and `device`.
//!
//! ```
//! use mla_prologue_kernel::{Device, prologue};
//! use mla_prologue_operator::prologue::{Call, Query, RotaryTable, Spec, Tensors};
//! let device = Device::open("cpu")?;
//! let problem = Spec::new(1, RotaryTable::new(1)).query(Query::new(1, 2)).validate()?;
//! let table = [[1f32; 32], [0f32; 32]].concat(); // cosine 1, sine 0: no rotation
//! let tensors = Tensors {
//!     q: [0x80, 0x3F].repeat(512), // one head of ones
//!     positions: vec![0; 8],
//!     cos_sin_cache: table.iter().flat_map(|x| x.to_le_bytes()).collect(),
//!     q_out: vec![0xAA; problem.sizes().q_out],
//!     ..Tensors::default()
//! };
//! let mut call = Call::new(problem, tensors)?;
//! prologue::run(&device, &mut call)?;
//! assert_eq!(call.tensors().q_out[1024..], [0; 1024]); // the padding head
//! # Ok::<(), mla_prologue_kernel::Error>(())
//! ```

#![allow(
    clippy::collapsible_match,
    clippy::single_match,
    reason = "CubeCL expands `match` on what is known when a kernel is compiled, not `if let`"
)]

mod arguments;
pub mod attend;
mod buffers;
pub mod convert;
mod definition;
mod device;
mod error;
pub mod gather;
pub mod prologue;
mod row;

pub use definition::{Dispatch, Kernel};
pub use device::{Device, Listing, Runtime, Strategy};
pub use error::{Error, Result};
pub use row::{Codec, Conversion, Lanes, rope::Rotary};
