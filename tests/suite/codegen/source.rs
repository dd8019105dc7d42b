//! The generated code: what a mode that is not chosen costs, which is nothing.

use crate::support::spec;
use mla_prologue::{
    kernel::{Conversion, prologue::PaddingHeads},
    operator::{Rounding, prologue::Spec},
};
use mla_prologue_codegen::{Target, generate};

/// Loads of 16 and of 4 bytes in the PTX of a problem.
fn loads(spec: Spec) -> (usize, usize) {
    let kernel = (spec.validate().expect("valid"), PaddingHeads::Written);
    let code = generate("ptx:sm_90", &kernel, Conversion::Native).expect("the problem compiles");
    let count = |width: &str| {
        code.lines().filter(|line| line.contains("ld.global") && line.contains(width)).count()
    };
    (count(".v4.b32"), count(".b32") - count(".v4.b32"))
}

#[test]
fn a_mode_that_is_not_chosen_costs_nothing() {
    if Target::of("ptx:sm_90").is_err() {
        println!("left out: this build has no compiler for ptx:sm_90");
        return;
    }
    // A unit loads two words of its query and of its key, and two of the table for each; the position
    // for both, and the slot, in two halves each.
    assert_eq!(loads(spec(1)), (8, 6));
    // With the norm of the key, two words of its weight.
    let norm = spec(1).key.map(|key| key.norm(Rounding::To16Bit));
    assert_eq!(loads(spec(1).key(norm)), (10, 6));
    // Queries alone, and keys alone.
    assert_eq!(loads(spec(1).key(None)), (4, 2));
    assert_eq!(loads(spec(1).query(None)), (4, 4));
}
