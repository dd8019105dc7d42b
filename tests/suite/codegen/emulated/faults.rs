//! Faults, seeded in the kernel's definition before it is compiled: the emulators must see each of them.

use super::{Kernels, buffers_of, compared, load};
use crate::{
    prologue::faults::ordinary,
    support::{edited, float16s, reference, spec},
};
use cubecl::{
    ir::{
        Builtin,
        attributes::IndexAttr,
        dialect::{
            bitwise::BitwiseXorOp,
            cmp::{ULessThanOp, ULessThanOrEqualOp},
            general::{BuiltinAttr, ReadBuiltinOp},
            math::IAddOp,
            memory::StoreOp,
            plane::{ShuffleOp, ShuffleXorOp},
        },
        pliron::builtin::ops::ConstantOp,
        prelude::{Context, OneResultInterface, Op, Operation, Typed, visit_all_ops_of_type},
    },
    prelude::KernelDefinition,
};
use mla_prologue::{
    kernel::{Conversion, Kernel, prologue::PaddingHeads},
    operator::{Float16, prologue::Call},
};
use mla_prologue_cases::prologue::{Case, Data, SlotPattern};
use mla_prologue_codegen::Module;
use rstest::rstest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Lanes are counted in the plane, which is right where a row is all of it.
    AbsoluteLane,
    /// The first exchange is with a lane at twice the distance: of the other row.
    AcrossRows,
    /// The last row of those that are read is not worked on.
    RowLeftOut,
    /// There is one row of zeros too many.
    RowTooMany,
    /// The last store is missing.
    LostStore,
}

/// The operations of one kind, in the order of the code.
pub fn all<T: Op>(definition: &KernelDefinition) -> Vec<T> {
    let (ctx, root) = (definition.body.ctx(), definition.body.state().module.get_operation());
    let mut found = Vec::new();
    visit_all_ops_of_type::<T, _>(ctx, &mut found, root, |_, found, op| found.push(op));
    found
}

impl Fault {
    fn seed(self, definition: &KernelDefinition) {
        let ctx = definition.body.ctx_mut();
        match self {
            Self::AbsoluteLane => {
                for old in all::<ShuffleXorOp>(definition) {
                    let (value, mask) = (old.input(ctx), old.mask(ctx));
                    let unit = BuiltinAttr(Builtin::UnitPosX);
                    let unit = ReadBuiltinOp::new(ctx, mask.get_type(ctx), unit);
                    let lane = BitwiseXorOp::new(ctx, unit.get_result(ctx), mask);
                    let new = ShuffleOp::new(ctx, value, lane.get_result(ctx));
                    replace(ctx, &old, &[&unit, &lane, &new]);
                }
            }
            Self::AcrossRows => {
                let old = all::<ShuffleXorOp>(definition).swap_remove(0);
                let (value, mask) = (old.input(ctx), old.mask(ctx));
                let twice = IAddOp::new(ctx, mask, mask);
                let new = ShuffleXorOp::new(ctx, value, twice.get_result(ctx));
                replace(ctx, &old, &[&twice, &new]);
            }
            Self::RowLeftOut => {
                let old = all::<ULessThanOp>(definition).swap_remove(0);
                let (row, rows) = (old.lhs(ctx), old.rhs(ctx));
                let one = ConstantOp::new(ctx, Box::new(IndexAttr::new(1)));
                let next = IAddOp::new(ctx, row, one.get_result(ctx));
                let new = ULessThanOp::new(ctx, next.get_result(ctx), rows);
                replace(ctx, &old, &[&one, &next, &new]);
            }
            Self::RowTooMany => {
                let old = all::<ULessThanOp>(definition).pop().expect("a guard");
                let (row, rows) = (old.lhs(ctx), old.rhs(ctx));
                let new = ULessThanOrEqualOp::new(ctx, row, rows);
                replace(ctx, &old, &[&new]);
            }
            Self::LostStore => {
                let old = all::<StoreOp>(definition).pop().expect("a store");
                Operation::erase(old.get_operation(), ctx);
            }
        }
    }
}

/// Puts operations in the place of one, whose uses are those of the last.
pub fn replace(ctx: &mut Context, old: &dyn OneResultInterface, new: &[&dyn OneResultInterface]) {
    for op in new {
        op.get_operation().insert_before(ctx, old.get_operation());
    }
    let last = new.last().expect("something new").get_result(ctx);
    old.get_result(ctx).replace_all_uses_with(ctx, &last);
    Operation::erase(old.get_operation(), ctx);
}

/// Rows that share waves and end within one.
fn call() -> Call {
    let case = Case { spec: spec(5), data: Data::Residual, slots: SlotPattern::Shuffled, seed: 1 };
    case.call().expect("a valid case")
}

fn check(target: &str, fault: Option<Fault>) -> Option<Result<(), String>> {
    let kernels = Kernels::of(target, Conversion::Native)?;
    let call = call();
    let kernel = (*call.problem(), PaddingHeads::Written);
    let definition = kernels.target.define(&kernel, &kernels.strategy);
    if let Some(fault) = fault {
        fault.seed(&definition);
    }
    let module = kernels.target.compile(definition).expect("a kernel that compiles");
    Some(run(&kernels, &module, &call))
}

/// Runs a call on what was compiled for it.
fn run(kernels: &Kernels, module: &Module, call: &Call) -> Result<(), String> {
    let kernel = (*call.problem(), PaddingHeads::Written);
    let mut buffers = buffers_of(call, PaddingHeads::Written);
    let dispatch = kernel.dispatch(&kernels.strategy);
    load(kernels.target, module).run(&dispatch, &mut buffers)?;
    compared(&reference(call), buffers)
}

#[rstest]
fn a_seeded_fault_is_seen(
    #[values(
        "amdgcn:gfx942",
        "amdgcn:gfx1100",
        "amdgcn:gfx1201",
        "hip-cpp:gfx942",
        "hip-cpp:gfx1100"
    )]
    target: &str,
    #[values(
        Fault::AbsoluteLane,
        Fault::AcrossRows,
        Fault::RowLeftOut,
        Fault::RowTooMany,
        Fault::LostStore
    )]
    fault: Fault,
) {
    let Some(result) = check(target, Some(fault)) else { return };
    println!("{fault:?} on {target}: {result:?}");
    // Where a row is the whole wave, its lanes are the wave's: that is no fault.
    let harmless = fault == Fault::AbsoluteLane && !target.ends_with("gfx942");
    assert_eq!(result.is_ok(), harmless, "{result:?}");
    assert_eq!(check(target, None), Some(Ok(())));
}

/// A fault that LLVM 23.1.0 has: it makes one instruction of a product and its conversion to f16, which adds +0, so
/// that -0 is lost. `Runtime::rounds_conversions` keeps f16 from it; where this test fails, that can be taken back.
#[rstest]
fn the_sign_of_zero_is_lost_in_f16_of_its_own(
    #[values("amdgcn:gfx1100", "amdgcn:gfx1201")] target: &str,
) {
    let Some(mut kernels) = Kernels::of(target, Conversion::Native) else { return };
    let spec = spec(1).dtype(Float16::F16).key(None);
    let call = edited(ordinary(spec, 0), |tensors| {
        tensors.q = float16s([0x8000, 0x3C00].into_iter().chain([0; 510])).repeat(3);
    });
    let result = kernels.check(&call, PaddingHeads::Written, &reference(&call));
    assert_eq!(result, Ok(()), "by integers");
    kernels.strategy.f16 = Conversion::Native;
    let kernel = (*call.problem(), PaddingHeads::Written);
    let definition = kernels.target.define(&kernel, &kernels.strategy);
    let module = kernels.target.compile(definition).expect("a kernel that compiles");
    let found = run(&kernels, &module, &call);
    let why = found.expect_err("LLVM keeps the sign: f16 may be converted by its own instructions");
    assert!(why.contains("q_out[0, 0, 0] is 0x0000 (0e0), must be 0x8000"), "{why}");
}
