//! The fused DeepSeek-V4 attention prologue: **one** kernel, written once as a CubeCL `#[cube]`
//! function and compiled at run time for CUDA, ROCm, Vulkan or the CPU.
//!
//! Of each token it normalizes and rotates the query heads, pads them to the count that the attention
//! kernel accepts, and rotates, quantizes and inserts the key into the paged cache, giving the same bits
//! as the unfused chain of `mla-prologue-reference`.
//!
//! ```
//! use mla_prologue_kernel::{Device, run};
//! # use mla_prologue_operator::*;
//! # let spec = Spec {
//! #     tokens: 1,
//! #     half: Half::Bf16,
//! #     eps: 1e-6,
//! #     positions: Index::I64,
//! #     table: RotaryTable { rows: 1, number: RotaryType::F32, layout: RotaryLayout::Halves },
//! #     query: Some(Query::new(1, 2)),
//! #     key: None,
//! # };
//! # let q = [0x80, 0x3F].repeat(512); // one head of ones
//! # let table = [[1f32; 32], [0f32; 32]].concat(); // cosine 1, sine 0: no rotation
//! # let table: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
//! # let inputs = Inputs { q: &q, positions: &[0; 8], cos_sin_cache: &table, ..Default::default() };
//! let device = Device::open("cpu")?;
//! let problem = spec.validate()?;
//! let mut q_out = vec![0xAA; problem.q_out_bytes()];
//! run(&device, &problem, &inputs, Outputs { q_out: &mut q_out, kv_cache: &mut [] })?;
//! assert_eq!(q_out[1024..], [0; 1024]); // the added head
//! # Ok::<(), mla_prologue_kernel::Error>(())
//! ```

#[cfg(feature = "hip")]
mod amd;
mod blueprint;
mod cache;
mod convert;
mod device;
mod error;
mod fp8;
mod gather;
mod kernel;
mod lanes;
mod launch;
mod norm;
mod pad;
mod quant;
mod rope;
pub mod source;
mod strategy;
mod unfused;
mod words;
mod workspace;

pub use blueprint::{Blueprint, Conversion, KeyBlueprint, Lanes, Pads, QueryBlueprint};
pub use convert::{launch_copy, launch_round, launch_widen};
pub use device::{Device, Listing, Runtime};
pub use error::{Error, Result};
pub use gather::{GatherBuffers, launch_gather};
pub use launch::{Buffers, launch, launch_with_pads, run};
pub use strategy::Strategy;
pub use unfused::Unfused;
pub use workspace::Workspace;
