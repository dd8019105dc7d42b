//! DeepSeek-V4 around its attention prologue: the models' shapes ([`Preset`]), what the attention kernels
//! that come after it accept ([`AttentionBackend`]), and what each rank of a tensor-parallel group holds
//! ([`Plan`]).

mod backend;
mod plan;
mod preset;

pub use backend::AttentionBackend;
pub use plan::{Plan, Rank};
pub use preset::Preset;
