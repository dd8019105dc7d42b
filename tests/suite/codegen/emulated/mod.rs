//! The code that is generated for GPUs that are not here, run by emulators and compared with the reference,
//! bit for bit: AMD's machine code, in waves of 64 and of 32, and C++ for HIP and CUDA.

#[cfg(feature = "hip")]
mod assembly;
mod attend;
mod equal;
mod faults;

use crate::gather;
use mla_prologue::{
    kernel::{Conversion, Kernel, Strategy, prologue::PaddingHeads},
    operator::{
        attend as attend_operator, gather as gather_operator,
        prologue::{Call, Tensors},
    },
};
use mla_prologue_cases::{Rule, Runnable, prologue::compare};
use mla_prologue_codegen::{Module, Target};
use mla_prologue_emulator::{Buffer, Estimate, Executable, buffers};
use std::collections::HashMap;

/// Kernels of one target, of any operator, each compiled once.
struct Kernels {
    target: Target,
    strategy: Strategy,
    compiled: HashMap<String, Box<dyn Executable>>,
    estimate: Estimate,
    /// Calls that were equal.
    equal: usize,
}

impl Kernels {
    /// Those of a target; `None`, with a line that says so, where this build cannot compile for it.
    fn of(target: &str, conversion: Conversion) -> Option<Self> {
        let target = find(target)?;
        let strategy = target.strategy(conversion);
        let (compiled, estimate) = (HashMap::new(), Estimate::default());
        Some(Self { target, strategy, compiled, estimate, equal: 0 })
    }

    /// Runs a launch of any operator's kernel.
    fn run(&mut self, kernel: &dyn Kernel, buffers: &mut [Buffer]) -> Result<(), String> {
        let (target, strategy) = (self.target, &self.strategy);
        let compiled = self.compiled.entry(kernel.blueprint(strategy)).or_insert_with(|| {
            let module = target.compile(target.define(kernel, strategy));
            let module = module.expect("a problem that compiles");
            #[cfg(feature = "hip")]
            assembly::check_module(target, &module);
            load(target, &module)
        });
        compiled.set_estimate(self.estimate);
        compiled.run(&kernel.dispatch(strategy), buffers)
    }

    /// Runs a prologue and compares what it wrote with what the reference wrote.
    fn check(&mut self, call: &Call, padding: PaddingHeads, want: &Call) -> Result<(), String> {
        let mut buffers = buffers_of(call, padding);
        self.run(&(*call.problem(), padding), &mut buffers)?;
        compared(want, buffers)?;
        self.equal += 1;
        Ok(())
    }

    /// Runs a gather and compares what it wrote with what the reference wrote.
    fn check_gather(&mut self, call: &gather_operator::Call, want: &[u8]) -> Result<(), String> {
        let access = gather_operator::Tensors::ACCESS;
        let mut buffers = buffers(call.tensors().as_ref().zip(access).named());
        self.run(call.problem(), &mut buffers)?;
        let got = buffers.pop().ok_or("no output")?.bytes;
        let differs = gather::same(want, &got, call.problem());
        self.equal += 1;
        differs.map_or(Ok(()), |at| Err(format!("value {at} differs")))
    }

    /// Runs attention and compares what it wrote with what the reference wrote.
    fn check_attend(
        &mut self,
        call: &attend_operator::Call,
        want: &attend_operator::Call,
    ) -> Result<(), String> {
        let access = attend_operator::Tensors::ACCESS;
        let mut buffers = buffers(call.tensors().as_ref().zip(access).named());
        self.run(call.problem(), &mut buffers)?;
        let mut buffers = buffers.into_iter().map(|buffer| buffer.bytes);
        let got = attend_operator::Tensors::NAMES.map(|_| buffers.next().unwrap_or_default());
        self.equal += 1;
        want.compare(&got, Rule::Exact).first.map_or(Ok(()), Err)
    }

    /// What was done.
    fn report(&self) {
        let Self { target, equal, compiled, .. } = self;
        let ran: Vec<bool> = compiled.values().flat_map(|kernel| kernel.coverage()).collect();
        let count = ran.iter().filter(|ran| **ran).count();
        println!("{target}: {equal} calls are equal, by {} kernels", compiled.len());
        if !ran.is_empty() {
            println!("{target}: {count} of {} instructions ran", ran.len());
        }
    }
}

/// The target of that name; `None`, with a line that says so, where this build has no compiler for its language.
pub fn find(name: &str) -> Option<Target> {
    let linked = match name.split(':').next() {
        Some("amdgcn" | "hip-cpp") => cfg!(feature = "hip"),
        Some("cuda-cpp" | "ptx") => cfg!(feature = "cuda"),
        _ => cfg!(feature = "vulkan"),
    };
    match Target::of(name) {
        Ok(target) => Some(target),
        Err(error) => {
            assert!(!linked || name == "msl", "{error}");
            println!("left out: this build has no compiler for {name}");
            None
        }
    }
}

fn load(target: Target, module: &Module) -> Box<dyn Executable> {
    mla_prologue_emulator::load(target, module).expect("code that the emulator knows")
}

/// The buffers of a prologue; with padding heads that are known to be zero, they are.
fn buffers_of(call: &Call, padding: PaddingHeads) -> Vec<Buffer> {
    let mut buffers = buffers(call.tensors().as_ref().zip(Tensors::ACCESS).named());
    let query = call.problem().spec().query.filter(|_| padding == PaddingHeads::KnownZero);
    let q_out = buffers.iter_mut().find(|buffer| buffer.name == "q_out");
    if let Some((query, q_out)) = query.zip(q_out) {
        let heads = call.problem().spec().tokens * query.padded_heads;
        let row = q_out.bytes.len() / heads.max(1);
        for token in q_out.bytes.chunks_exact_mut((row * query.padded_heads).max(1)) {
            token[row * query.heads..].fill(0);
        }
    }
    buffers
}

/// Compares what a prologue left in its buffers with what the reference wrote.
fn compared(want: &Call, buffers: Vec<Buffer>) -> Result<(), String> {
    let mut buffers = buffers.into_iter().map(|buffer| (buffer.name, buffer.bytes));
    let got = Tensors::NAMES.map(|name| {
        let (found, bytes) = buffers.next().expect("a buffer for each tensor");
        assert_eq!(found, name);
        bytes
    });
    compare(want, &got, Rule::Exact).first.map_or(Ok(()), Err)
}
