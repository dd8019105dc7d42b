//! DeepSeek-V4 around its attention prologue: the models' shapes ([`Preset`]), what the attention kernels
//! that come after it accept ([`AttentionBackend`]), what each rank of a tensor-parallel group holds
//! ([`Plan`]), rotary tables ([`Rotary`]), and which sequence holds which blocks of the cache ([`Pages`]).

mod backend;
mod pages;
mod plan;
mod preset;
mod rotary;

pub use backend::AttentionBackend;
pub use pages::{Pages, Sequence};
pub use plan::{Plan, Rank};
pub use preset::Preset;
pub use rotary::{Rotary, Yarn};
