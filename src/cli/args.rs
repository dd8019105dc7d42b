use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

/// DeepSeek-V4's attention prologue in one fused kernel: per-head RMSNorm, RoPE and padding of the queries,
/// RoPE, FP8 quantization and paged-cache insertion of the keys.
///
/// Exit codes: 0 done; 1 a difference was found; 2 bad input or arguments; 3 a device or the file system
/// failed.
#[derive(Parser)]
#[command(name = "mla-prologue", version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// List the devices that can be used here, and why the others cannot
    Devices(Devices),
    /// Run the fused kernel on a file
    Run(Run),
    /// Compare the fused kernel with the unfused chain, bit for bit
    Verify(Verify),
    /// Measure the fused kernel
    Bench(Bench),
    /// Print the code that is generated for a target
    Source(Source),
    /// Run a whole attention layer on a file
    #[cfg(feature = "burn")]
    Layer(Layer),
    /// Show what each rank of a tensor-parallel group holds
    Plan(Plan),
}

#[derive(ClapArgs)]
pub struct Devices {
    #[command(flatten)]
    pub report: Report,
}

#[derive(ClapArgs)]
#[command(after_help = super::run::help())]
pub struct Run {
    /// The safetensors file to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The safetensors file to write: q_out and kv_cache
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub device: Device,
}

#[derive(ClapArgs)]
pub struct Verify {
    /// Files as `run` takes them; without any, the built-in matrix of problems
    #[arg(value_name = "IN")]
    pub inputs: Vec<PathBuf>,
    /// Judge this file, which somebody else made from IN, instead of running a device
    #[arg(long, value_name = "OUT", conflicts_with = "device")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub device: Device,
    #[command(flatten)]
    pub report: Report,
}

#[derive(ClapArgs)]
pub struct Bench {
    /// Tokens, live heads and padded heads of a problem, as in 4096,16,64; may be repeated
    #[arg(long, value_name = "T,H,P")]
    pub shape: Vec<String>,
    /// auto, cuda:0, rocm:0, vulkan:0 or cpu
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Also draw the results into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    pub report: Report,
}

#[derive(ClapArgs)]
#[command(after_help = super::source::help())]
pub struct Source {
    /// A file as `run` takes it, whose options choose the code
    #[arg(value_name = "IN", conflicts_with = "mode")]
    pub input: Option<PathBuf>,
    /// What to compile for; `list` shows the targets of this build, `all` what is characteristic of the code
    /// for each
    #[arg(long, value_name = "TARGET", default_value = "list")]
    pub target: String,
    /// An option that chooses the code, without a file; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub mode: Vec<String>,
    /// Convert 16-bit values by integer arithmetic, as on the CPU and Vulkan
    #[arg(long)]
    pub integer: bool,
    /// Write the machine code (amdgcn, spirv) to this file instead of printing it to be read
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
}

#[cfg(feature = "burn")]
#[derive(ClapArgs)]
#[command(after_help = super::layer::HELP)]
pub struct Layer {
    /// The safetensors file to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The safetensors file to write: y
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// auto, cuda:0, rocm:0, vulkan:0 or cpu; several, separated by commas, are dealt out to the ranks
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Ranks of the tensor-parallel group
    #[arg(long, value_name = "RANKS", default_value_t = 1)]
    pub tp: usize,
    /// The attention kernel, which decides how the heads are padded: flashmla, flashinfer, aiter or any
    #[arg(long, default_value = "flashmla")]
    pub backend: String,
    /// What the cache holds: fp8_ds_mla in the device's own 8-bit format (fp8) or in a named one (e4m3fn,
    /// e4m3fnuz), or rows_16bit (bf16)
    #[arg(long, default_value = "fp8")]
    pub cache: String,
    /// Feed the second half of the tokens one by one
    #[arg(long)]
    pub decode: bool,
    #[command(flatten)]
    pub report: Report,
}

#[derive(ClapArgs)]
pub struct Plan {
    /// The model: v4-flash or v4-pro
    #[arg(long, default_value = "v4-pro")]
    pub model: String,
    /// Ranks of the tensor-parallel group
    #[arg(long, value_name = "RANKS", default_value_t = 1)]
    pub tp: usize,
    /// The attention kernel: flashmla, flashinfer, aiter or any
    #[arg(long, default_value = "flashmla")]
    pub backend: String,
    /// Tokens of a call
    #[arg(long, default_value_t = 4096)]
    pub tokens: usize,
    #[command(flatten)]
    pub report: Report,
}

#[derive(ClapArgs)]
pub struct Device {
    /// auto, cuda:0, rocm:0, vulkan:0, cpu, or reference for the unfused chain
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
}

#[derive(ClapArgs)]
pub struct Report {
    /// Also write the report as JSON to this file; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
