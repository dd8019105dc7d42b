//! DeepSeek-V4 around its attention operators: the models' shapes ([`Preset`]), what attention kernels
//! accept ([`AttentionBackend`]), what each rank of a tensor-parallel group holds
//! ([`Plan`]), rotary tables ([`Rotary`]), and which sequence holds which blocks of the cache ([`BlockPool`]).
//!
//! With the feature `burn`, an attention layer on [Burn](https://burn.dev) (`DeepSeekV4Attention`).

mod backend;
#[cfg(feature = "burn")]
mod layer;
mod plan;
mod pool;
mod preset;
mod rotary;

pub use backend::AttentionBackend;
#[cfg(feature = "burn")]
pub use layer::{AttentionConfig, DeepSeekV4Attention, StepMetadata, TensorParallel};
pub use plan::{Plan, Rank};
pub use pool::{BlockPool, Sequence};
pub use preset::Preset;
pub use rotary::{Rotary, Yarn};
