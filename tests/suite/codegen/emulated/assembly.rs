//! What AMD's machine code must look like, which its results do not show.

use crate::support::spec;
use mla_prologue::{
    kernel::{Conversion, prologue::PaddingHeads},
    operator::{
        Float16, Rounding,
        prologue::{Query, Spec},
    },
};
use mla_prologue_codegen::{CodeObject, Language, Module, Target};
use rstest::rstest;

/// What holds for every kernel: nothing goes through memory of a lane's own, or through the memory that lanes share where the kernel
/// asks for none (one that does may also keep values of the wave in registers of its lanes), subnormal numbers are kept, and no product is made one with its conversion to f16, which loses the sign of zero in
/// LLVM 23.1.0.
fn check(code: &CodeObject, shared: usize, name: &str) {
    let descriptor = &code.descriptor;
    let spills = if shared == 0 { code.spills } else { 0 };
    assert_eq!((descriptor.scratch, spills), (0, 0), "{name}: scratch memory, spills");
    assert_eq!(descriptor.shared, 0, "{name}: shared memory, which a launch gives");
    let slow = ["scratch_", "buffer_load", "buffer_store", "flat_", "ds_bpermute", "ds_permute"];
    let of_the_cube = ["ds_read", "ds_write", "ds_load", "ds_store"];
    let of_the_cube = of_the_cube.iter().filter(|_| shared == 0);
    for slow in slow.iter().chain(of_the_cube) {
        assert_eq!(code.count(slow), 0, "{name}: {slow}");
    }
    assert_eq!(descriptor.keeps_subnormals(), [true, true], "{name}: subnormals");
    assert_eq!(descriptor.rounds_to_nearest(), [true, true], "{name}: rounding");
    assert_eq!(code.count("v_fma_mixlo_f16") + code.count("v_fma_mixhi_f16"), 0, "{name}: f16");
}

/// The same for what was compiled, if it is machine code.
pub fn check_module(target: Target, module: &Module) {
    if target.language() == Language::Amdgcn {
        let code = CodeObject::parse(&module.binary, target.arch()).expect("a code object");
        check(&code, module.shared, &target.to_string());
    }
}

fn compile(arch: &str, spec: Spec) -> Option<CodeObject> {
    let target = super::find(&format!("amdgcn:{arch}"))?;
    let kernel = (spec.validate().expect("valid"), PaddingHeads::Written);
    let definition = target.define(&kernel, &target.strategy(Conversion::Native));
    let module = target.compile(definition).expect("a problem that compiles");
    let code = CodeObject::parse(&module.binary, arch).expect("a code object");
    check(&code, 0, arch);
    Some(code)
}

/// The sum of squares of 16 values.
const SQUARES: usize = 16;
/// Four pairs, two results each.
const ROPE: usize = 8;
/// The steps of a square root that is correctly rounded.
const SQUARE_ROOT: usize = 2;
/// Those of a division, besides `v_div_fmas`.
const DIVISION: usize = 5;
const NORM: usize = SQUARES + SQUARE_ROOT + DIVISION;

/// The reference says where a multiplication and an addition are one operation. Data cannot show an extra
/// one where a product is exact, as that of two bf16 values is in f32.
#[rstest]
fn what_the_reference_fuses_is_fused_and_nothing_else(
    #[values("gfx90a", "gfx942", "gfx1100", "gfx1151", "gfx1201")] arch: &str,
    #[values(Float16::Bf16, Float16::F16)] dtype: Float16,
) {
    let base = spec(1).dtype(dtype);
    let query = |norm| Some(Query::new(3, 8).norm(norm));
    let key = base.key.map(|key| key.norm(Rounding::To16Bit));
    for (spec, count, divisions) in [
        (base.query(query(false)).key(None), ROPE, 0),
        (base.query(query(false)), 2 * ROPE, 0),
        (base, 2 * ROPE + NORM, 1),
        (base.key(key), 2 * (ROPE + NORM), 2),
    ] {
        let Some(code) = compile(arch, spec) else { return };
        assert_eq!(code.fused(), count, "{arch}, {dtype}");
        assert_eq!(code.count("v_div_fmas_f32"), divisions, "{arch}, {dtype}");
    }
}

/// Queries are loaded and stored 16 bytes at a time, the cache 8, and the exchanges between lanes are moves.
#[rstest]
fn memory_is_accessed_in_words(
    #[values("gfx90a", "gfx942", "gfx1100", "gfx1151", "gfx1201")] arch: &str,
) {
    let Some(code) = compile(arch, spec(1)) else { return };
    let both = |kind: &str, names: [&str; 2]| -> usize {
        names.iter().map(|name| code.count(&format!("global_{kind}_{name}"))).sum()
    };
    let (wide, narrow) = (["dwordx4", "b128"], ["dwordx2", "b64"]);
    // Two words of the row and two of the table, for a query and for a key.
    assert_eq!(both("load", wide), 8, "{arch}");
    // Two words of a live head, and two of a padding head.
    assert_eq!(both("store", wide), 4, "{arch}");
    // Two of FP8, or of values in 16 bits, or the scales.
    assert_eq!(both("store", narrow), 4, "{arch}");
    assert_eq!(code.count("global_store"), 8, "{arch}: no other store");
    // Positions and slots are eight bytes.
    assert_eq!(code.count("global_load"), 8 + both("load", narrow), "{arch}: no other load");
    // The sum, the maxima of two runs in groups of eight, and the two words of scales.
    let moves = ["_dpp", "ds_swizzle", "v_permlanex16", "v_permlane32", "v_permlane16"];
    let moves: usize = moves.iter().map(|name| code.count(name)).sum();
    assert_eq!(moves, 5 + 2 * 3 + 2 * 5, "{arch}");
}
