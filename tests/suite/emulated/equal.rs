use super::Kernels;
use mla_prologue::{
    catalogue::{self, Case},
    kernel::{Conversion, Pads},
};
use mla_prologue_emulator::Estimate;
use rstest::rstest;

/// Runs cases, with the hardware's reciprocals and square roots as it may make them.
fn check(target: &str, conversion: Conversion, pads: Pads, cases: impl Iterator<Item = Case>) {
    let Some(mut kernels) = Kernels::of(target, conversion) else { return };
    let mut count = 0;
    for (case, estimate) in cases.zip(Estimate::ALL.into_iter().cycle()) {
        let call = case.call().expect("a sensible case");
        kernels.estimate = estimate;
        let result = kernels.check(&call, pads);
        assert!(result.is_ok(), "{case} on {target}, {conversion:?}, {estimate:?}: {result:?}");
        count += 1;
    }
    assert!(count > 0, "no case");
    println!(
        "{target}, {conversion:?}, {pads:?}: {count} cases, {} kernels, {}",
        kernels.compiled.len(),
        kernels.coverage()
    );
}

#[rstest]
fn the_modes(
    #[values(
        "amdgcn:gfx942",
        "amdgcn:gfx1100",
        "amdgcn:gfx1201",
        "hip-cpp:gfx942",
        "cuda-cpp:sm_90"
    )]
    target: &str,
    #[values(Conversion::Native, Conversion::Integer)] conversion: Conversion,
) {
    check(target, conversion, Pads::Written, catalogue::modes().into_iter());
}

#[rstest]
fn the_matrix(
    #[values(
        "amdgcn:gfx942",
        "amdgcn:gfx1100",
        "amdgcn:gfx1201",
        "hip-cpp:gfx942",
        "cuda-cpp:sm_90"
    )]
    target: &str,
) {
    check(target, Conversion::Native, Pads::Written, catalogue::matrix().into_iter());
}

#[rstest]
fn known_zero(
    #[values(
        "amdgcn:gfx942",
        "amdgcn:gfx1100",
        "amdgcn:gfx1201",
        "hip-cpp:gfx942",
        "cuda-cpp:sm_90"
    )]
    target: &str,
) {
    check(target, Conversion::Native, Pads::KnownZero, catalogue::modes().into_iter().step_by(4));
}
