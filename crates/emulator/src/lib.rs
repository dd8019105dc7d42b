//! Runs the code that is generated for GPUs on the processor, so that it can be compared with the
//! definition where there is no such GPU.
//!
//! - [`amdgcn`]: AMD's machine code, for CDNA (waves of 64) and RDNA (waves of 32).

#[cfg(feature = "hip")]
pub mod amdgcn;
mod memory;

pub use memory::{Access, Buffer, Memory};

use mla_prologue_operator::{Inputs, Outputs};

/// The buffers of a call, in the order of the kernel's arguments. Those that the problem has no use for are
/// empty, so that every access to them is an error.
fn buffers(inputs: &Inputs, outputs: &Outputs) -> Vec<Buffer> {
    let read = |name, bytes: &[u8]| Buffer { name, bytes: bytes.to_vec(), access: Access::Read };
    let write = |name, bytes: &[u8], access| Buffer { name, bytes: bytes.to_vec(), access };
    vec![
        read("q", inputs.q),
        read("kv", inputs.kv),
        read("kv_norm_weight", inputs.kv_norm_weight),
        read("positions", inputs.positions),
        read("slot_mapping", inputs.slot_mapping),
        read("cos_sin_cache", inputs.cos_sin_cache),
        write("q_out", outputs.q_out, Access::Write),
        write("kv_cache", outputs.kv_cache, Access::ReadWrite),
    ]
}
