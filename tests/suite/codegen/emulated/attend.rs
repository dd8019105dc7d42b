//! Attention: a cube of several waves, which share memory.

use super::{
    Kernels,
    equal::TARGETS,
    faults::{all, replace},
    load,
};
use crate::{
    attend::{list, minus_zero},
    support::reference,
};
use cubecl::{
    ir::{
        attributes::ZeroAttr,
        dialect::{
            cmp::{ULessThanOp, ULessThanOrEqualOp, UMinOp},
            general::ReinterpretCastOp,
            math::{IAddOp, URemOp},
            synchronization::SyncOp,
        },
        pliron::{builtin::ops::ConstantOp, printable::Printable},
        prelude::{OneResultInterface, Op, Operation, Typed, Value},
    },
    prelude::KernelDefinition,
};
use mla_prologue::{
    kernel::{
        Conversion, Kernel,
        attend::{Blueprint, Call, Entries, SlotList},
    },
    operator::{Index, attend::Problem},
};
use mla_prologue_cases::attend::{Case, Data, SlotPattern, catalogue};
use mla_prologue_codegen::Language;
use rstest::rstest;

/// Chunks times tiles of heads that a call takes of machine code at most: larger ones have more of the same.
const MOST_CHUNKS: usize = 24;

fn chunks(problem: &Problem) -> usize {
    problem.spec().tokens * problem.spec().heads.div_ceil(16) * problem.chunks()
}

/// Every mode on some target, and every target with a share of them.
#[rstest]
fn the_modes_are_equal_bit_for_bit(#[values(0, 1, 2, 3, 4, 5)] target: usize) {
    let name = TARGETS[target];
    let Some(mut kernels) = Kernels::of(name, Conversion::Native) else { return };
    let machine_code = kernels.target.language() == Language::Amdgcn;
    let every = if machine_code { 3 } else { 6 };
    for case in catalogue::modes().into_iter().skip(target % 3).step_by(every) {
        let call = case.call().expect("a valid case");
        if chunks(call.problem()) > MOST_CHUNKS {
            continue;
        }
        let result = kernels.check_attend(&call, &reference(&call));
        assert_eq!(result, Ok(()), "{case} on {name}");
    }
    assert!(kernels.equal > 3, "{} calls on {name}", kernels.equal);
    kernels.report();
}

/// Slots, lengths and tables that the checked forms refuse: no access outside.
#[test]
fn hostile_indices_do_no_harm() {
    for name in TARGETS {
        let Some(mut kernels) = Kernels::of(name, Conversion::Native) else { continue };
        let case = Case { slots: SlotPattern::Outside, data: Data::Ordinary, ..base(3, 5, 70) };
        let call = case.call().expect("a valid case");
        assert_eq!(kernels.check_attend(&call, &reference(&call)), Ok(()), "{name}");
    }
}

fn base(tokens: usize, heads: usize, count: usize) -> Case {
    let spec = *list(tokens, heads, count).problem().spec();
    Case { spec, data: Data::Ordinary, slots: SlotPattern::All, seed: 3 }
}

/// What is seeded in the definition before it is compiled.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One of the barriers is left out.
    NoBarrier(usize),
    /// A unit reads the key of another.
    Neighbour,
    /// The entry after the last one that counts does too.
    TailCounted,
    /// Keys that do not count are +0.
    MinusZeroLost,
}

impl Fault {
    fn seed(self, definition: &KernelDefinition) {
        let ctx = definition.body.ctx_mut();
        match self {
            Self::NoBarrier(n) => {
                let barrier = all::<SyncOp>(definition).swap_remove(n);
                Operation::erase(barrier.get_operation(), ctx);
            }
            Self::Neighbour => {
                // The key of a score is the remainder of the unit's number.
                for old in all::<URemOp>(definition) {
                    let (unit, keys) = (old.lhs(ctx), old.rhs(ctx));
                    let twice = IAddOp::new(ctx, unit, unit);
                    let new = URemOp::new(ctx, twice.get_result(ctx), keys);
                    replace(ctx, &old, &[&twice, &new]);
                }
            }
            Self::TailCounted => {
                // The entry is below the count of its token, which is the least of two.
                let counts: Vec<_> =
                    all::<UMinOp>(definition).iter().map(UMinOp::get_operation).collect();
                let least =
                    |value: Value| value.defining_op().is_some_and(|op| counts.contains(&op));
                let mut guards = all::<ULessThanOp>(definition).into_iter();
                let old = guards.find(|guard| least(guard.rhs(ctx))).expect("a guard");
                let (entry, counted) = (old.lhs(ctx), old.rhs(ctx));
                let new = ULessThanOrEqualOp::new(ctx, entry, counted);
                replace(ctx, &old, &[&new]);
            }
            Self::MinusZeroLost => {
                let sign = |constant: &ConstantOp| {
                    let value = constant.get_attr_builtin_constant_value(ctx);
                    value.is_some_and(|value| value.disp(ctx).to_string().contains("2147483648"))
                };
                let signs = all::<ConstantOp>(definition).into_iter().filter(sign);
                let signs: Vec<_> = signs.map(|constant| constant.get_operation()).collect();
                let floats = all::<ReinterpretCastOp>(definition).into_iter();
                let zeros = floats.filter(|cast| {
                    cast.input(ctx).defining_op().is_some_and(|from| signs.contains(&from))
                });
                let zeros: Vec<_> = zeros.collect();
                assert!(!zeros.is_empty(), "-0 is in the code");
                for old in zeros {
                    let zero = ZeroAttr::new(old.get_result(ctx).get_type(ctx));
                    let new = ConstantOp::new(ctx, Box::new(zero));
                    replace(ctx, &old, &[&new]);
                }
            }
        }
    }
}

/// The emulators see each of them: by a value that differs, or by an access that no kernel must make.
#[rstest]
fn a_seeded_fault_is_seen(
    #[values("amdgcn:gfx942", "amdgcn:gfx1100", "hip-cpp:gfx942", "cuda-cpp:sm_90")] target: &str,
    #[values(
        Fault::NoBarrier(1),
        Fault::NoBarrier(2),
        Fault::NoBarrier(3),
        Fault::Neighbour,
        Fault::TailCounted,
        Fault::MinusZeroLost
    )]
    fault: Fault,
) {
    let Some(mut kernels) = Kernels::of(target, Conversion::Native) else { return };
    let call = match fault {
        Fault::MinusZeroLost => minus_zero(),
        _ => with_lens(),
    };
    let want = reference(&call);
    assert_eq!(kernels.check_attend(&call, &want), Ok(()), "without a fault");
    let definition = kernels.target.define(call.problem(), &kernels.strategy);
    fault.seed(&definition);
    let module = kernels.target.compile(definition).expect("a kernel that compiles");
    let name = call.problem().blueprint(&kernels.strategy);
    kernels.compiled.insert(name, load(kernels.target, &module));
    let why = kernels.check_attend(&call, &want).expect_err("a fault that nobody sees");
    println!("{target}, {fault:?}: {why}");
}

/// Some of the slots count.
fn with_lens() -> Call {
    let case = base(2, 5, 70);
    let entries = Entries::Slots(SlotList::new(70).lens(Index::I32));
    let case = Case { spec: case.spec.entries(entries), ..case };
    case.call().expect("a valid case")
}

/// The team of few heads is that of many: a cube of several waves.
#[test]
fn a_cube_has_several_waves() {
    let Some(kernels) = Kernels::of("hip-cpp:gfx942", Conversion::Native) else { return };
    let call = list(1, 1, 1);
    let team = Blueprint::new(call.problem(), &kernels.strategy).team;
    assert!(team.shared && team.units > 64);
}
