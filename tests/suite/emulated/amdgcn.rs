//! AMD's machine code.

use mla_prologue::{
    Call, Target as Device, catalogue,
    kernel::{Blueprint, Conversion, Pads, source::{Dispatch, Target}},
    verify::{Rule, compare},
};
use mla_prologue_emulator::amdgcn::Program;
use rstest::rstest;
use std::collections::HashMap;

/// Kernels for one architecture.
struct Kernels {
    target: Target,
    conversion: Conversion,
    programs: HashMap<Blueprint, Program>,
}

impl Kernels {
    fn new(arch: &str, conversion: Conversion) -> Self {
        let target = Target::of(&format!("amdgcn:{arch}")).expect("a known target");
        Self { target, conversion, programs: HashMap::new() }
    }

    /// Compares a call with the definition.
    fn check(&mut self, call: &Call, name: &str, error: i32) -> Result<(), String> {
        let (problem, strategy) = (&call.problem, self.target.strategy(self.conversion));
        let blueprint = Blueprint::new(problem, &strategy, Pads::Written);
        let program = self.programs.entry(blueprint).or_insert_with(|| {
            let definition = self.target.define(problem, &strategy, Pads::Written);
            let module = self.target.compile(definition).expect("a problem that compiles");
            Program::load(&module.binary, self.target.arch()).expect("known instructions")
        });
        let dispatch = Dispatch::new(problem, &strategy, Pads::Written);
        let mut got = call.output().expect("memory");
        program.run(&dispatch, &call.inputs(), got.as_mut(), error)?;
        let want = call.run(&Device::Reference).expect("the reference runs");
        let found = compare(call, &want, &got, Rule::Exact);
        if found.holds() { Ok(()) } else { Err(format!("{name}: {:?}", found.first)) }
    }
}

#[rstest]
fn the_matrix_is_equal_bit_for_bit(
    #[values("gfx942", "gfx1100", "gfx1201")] arch: &str,
    #[values(Conversion::Native, Conversion::Integer)] conversion: Conversion,
) {
    let mut kernels = Kernels::new(arch, conversion);
    let start = std::time::Instant::now();
    let mut bad = 0;
    for case in catalogue::modes().into_iter().chain(catalogue::matrix().into_iter().step_by(7)) {
        let result = kernels.check(&case.call().expect("a sensible case"), &case.to_string(), 0);
        if let Err(e) = result { println!("{e}"); bad += 1; }
    }
    println!("{arch} {:?} {} {bad}", start.elapsed(), kernels.programs.len());
    assert!(bad == 0);
}
