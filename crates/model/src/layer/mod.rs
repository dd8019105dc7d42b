//! DeepSeek-V4's attention layer on Burn.

mod attention;
mod config;
mod parallel;
mod product;
mod step;

pub use attention::DeepSeekV4Attention;
pub use config::AttentionConfig;
pub use parallel::TensorParallel;
pub use step::StepMetadata;
