//! The code that is generated for GPUs that are not here, run by emulators and compared with the definition,
//! bit for bit: AMD's machine code, in waves of 64 and of 32, and C++ for HIP and CUDA.

#[cfg(feature = "hip")]
mod assembly;
mod equal;
mod faults;

use mla_prologue::{
    Call, Output,
    kernel::{
        Blueprint, Conversion, Pads, Strategy,
        source::{Dispatch, Module, Target},
    },
    verify::{Rule, compare},
};
use mla_prologue_emulator::{Estimate, Kernel};
use std::collections::HashMap;

/// Kernels of one target, each compiled once.
struct Kernels {
    target: Target,
    strategy: Strategy,
    compiled: HashMap<Blueprint, Box<dyn Kernel>>,
    estimate: Estimate,
    /// Calls that were equal.
    equal: usize,
}

impl Kernels {
    /// Those of a target; `None`, and said so, where this build cannot compile for it.
    fn of(target: &str, conversion: Conversion) -> Option<Self> {
        let target = find(target)?;
        let strategy = target.strategy(conversion);
        Some(Self {
            target,
            strategy,
            compiled: HashMap::new(),
            estimate: Estimate::default(),
            equal: 0,
        })
    }

    /// Runs a call and compares what it wrote with what is wanted.
    fn check(&mut self, call: &Call, pads: Pads, want: &Output) -> Result<(), String> {
        let (target, strategy, problem) = (self.target, self.strategy, &call.problem);
        let kernel =
            self.compiled.entry(Blueprint::new(problem, &strategy, pads)).or_insert_with(|| {
                let definition = target.define(problem, &strategy, pads);
                let module = target.compile(definition).expect("a problem that compiles");
                #[cfg(feature = "hip")]
                assembly::check_module(target, &module);
                load(target, &module)
            });
        kernel.set_estimate(self.estimate);
        run(kernel.as_mut(), &strategy, call, pads, want)?;
        self.equal += 1;
        Ok(())
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

/// The target of that name; `None`, and said so, where this build has no compiler for its language.
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

fn load(target: Target, module: &Module) -> Box<dyn Kernel> {
    mla_prologue_emulator::load(target, module).expect("code that the emulator knows")
}

/// Runs a call on a kernel that was compiled for it and compares what it wrote with what is wanted.
fn run(
    kernel: &mut dyn Kernel,
    strategy: &Strategy,
    call: &Call,
    pads: Pads,
    want: &Output,
) -> Result<(), String> {
    let mut got = call.output().expect("memory");
    if pads == Pads::KnownZero {
        zero_pads(call, &mut got.q_out);
    }
    let dispatch = Dispatch::new(&call.problem, strategy, pads);
    kernel.run(&dispatch, &call.inputs(), got.as_mut())?;
    let found = compare(call, want, &got, Rule::Exact);
    found.first.map_or(Ok(()), Err)
}

/// Zeroes the added heads, as an earlier call would have.
fn zero_pads(call: &Call, q_out: &mut [u8]) {
    let Some(query) = call.problem.query else { return };
    let row = q_out.len() / (call.problem.tokens * query.padded_heads).max(1);
    for token in q_out.chunks_exact_mut((row * query.padded_heads).max(1)) {
        token[row * query.heads..].fill(0);
    }
}
