//! DeepSeek-V4 around its attention prologue: the models' shapes ([`Preset`]), what the attention kernels
//! that come after it accept ([`AttentionBackend`]), what each rank of a tensor-parallel group holds
//! ([`Plan`]), rotary tables ([`Rotary`]), and which sequence holds which blocks of the cache ([`Pages`]).
//!
//! With the feature `burn`, for [Burn](https://burn.dev): the operator on its tensors (`Prologue`), the
//! way back from the cache (`Reader`), and an attention layer that runs on them (`Attention`).

mod backend;
#[cfg(feature = "burn")]
mod layer;
#[cfg(feature = "burn")]
mod op;
mod pages;
mod plan;
mod preset;
mod rotary;

pub use backend::AttentionBackend;
#[cfg(feature = "burn")]
pub use layer::{AttentionConfig, DeepSeekV4Attention, Step, TensorParallel};
#[cfg(feature = "burn")]
pub use op::{PaddedQueries, Prologue, PrologueOps, Reader, Tokens, device, round, widen};
pub use pages::{Pages, Sequence};
pub use plan::{Plan, Rank};
pub use preset::Preset;
pub use rotary::{Rotary, Yarn};
