use super::Kernels;
use crate::{
    gather,
    support::{half_of_the_smallest, reference},
};
use mla_prologue::{
    kernel::{Conversion, prologue::PaddingHeads},
    reference as unfused,
};
use mla_prologue_cases::prologue::{Case, catalogue};
use mla_prologue_codegen::Language;
use mla_prologue_emulator::Estimate;
use rstest::rstest;
use std::collections::BTreeSet;

/// Machine code for waves of 64 and of 32 lanes, and C++.
pub const TARGETS: [&str; 6] = [
    "amdgcn:gfx942",
    "amdgcn:gfx1100",
    "amdgcn:gfx1201",
    "hip-cpp:gfx942",
    "hip-cpp:gfx1100",
    "cuda-cpp:sm_90",
];

/// Rows of work up to which machine code is emulated: the larger cases have more of the same.
const MOST_ROWS: usize = 2200;

/// Runs cases on every target, with the hardware's reciprocals and square roots as it may make them.
fn check(conversion: Conversion, padding: PaddingHeads, cases: impl Iterator<Item = Case>) {
    let targets = TARGETS.into_iter();
    let mut targets: Vec<_> = targets.filter_map(|name| Kernels::of(name, conversion)).collect();
    for (case, estimate) in cases.zip(Estimate::ALL.into_iter().cycle()) {
        let call = case.call().expect("a valid case");
        let want = reference(&call);
        let rows = case.spec.tokens * (1 + case.spec.query.map_or(0, |query| query.padded_heads));
        for kernels in &mut targets {
            if kernels.target.language() == Language::Amdgcn && rows > MOST_ROWS {
                continue;
            }
            kernels.estimate = estimate;
            let result = kernels.check(&call, padding, &want);
            let target = kernels.target;
            assert_eq!(result, Ok(()), "{case} on {target}, {conversion:?}, {estimate:?}");
        }
    }
    for kernels in targets {
        assert!(kernels.equal > 0, "no case on {}", kernels.target);
        kernels.report();
    }
}

/// In parts that have no kernel in common.
#[rstest]
fn the_matrix_is_equal_bit_for_bit(#[values(0, 1, 2, 3)] part: usize) {
    let mut cases = catalogue::matrix();
    let padded_heads = |case: &Case| case.spec.query.map_or(0, |query| query.padded_heads);
    let all: BTreeSet<usize> = cases.iter().map(padded_heads).collect();
    let of_part: Vec<usize> = all.into_iter().skip(part).step_by(4).collect();
    cases.retain(|case| of_part.contains(&padded_heads(case)));
    check(Conversion::Native, PaddingHeads::Written, cases.into_iter());
}

#[rstest]
fn the_modes_are_equal_bit_for_bit(
    #[values(Conversion::Native, Conversion::Integer)] conversion: Conversion,
) {
    check(conversion, PaddingHeads::Written, catalogue::modes().into_iter());
}

/// Where the padding heads are known to be zero.
#[test]
fn live_heads_alone_are_equal_bit_for_bit() {
    check(Conversion::Native, PaddingHeads::KnownZero, catalogue::modes().into_iter().step_by(3));
}

/// As in `bitwise`.
#[test]
fn the_mean_is_rounded_before_eps_is_added() {
    let call = half_of_the_smallest();
    let want = reference(&call);
    for target in TARGETS {
        let Some(mut kernels) = Kernels::of(target, Conversion::Native) else { continue };
        assert_eq!(kernels.check(&call, PaddingHeads::Written, &want), Ok(()), "{target}");
    }
}

/// Another operator, without code of its own in the emulators.
#[test]
fn the_gather_is_equal_bit_for_bit() {
    for target in TARGETS {
        let Some(mut kernels) = Kernels::of(target, Conversion::Native) else { continue };
        for call in gather::calls() {
            let mut want = call.clone();
            unfused::gather::run(&mut want);
            let result = kernels.check_gather(&call, &want.tensors().out);
            assert_eq!(result, Ok(()), "{:?} on {target}", call.problem().spec());
        }
        kernels.report();
    }
}
