//! Instructions on the registers of every lane.

use super::{
    division,
    operand::{EXEC, Place},
    program::{Execute, Generation, Instruction},
    wave::Wave,
};
use half::f16;
use std::array::from_fn;

pub type Done = Result<(), String>;

/// What a vector instruction does, other than to load or store.
pub fn find(name: &str) -> Option<Execute> {
    words_of(name).or_else(|| numbers_of(name)).or_else(|| lanes_of(name))
}

/// On words of 32 bits.
fn words_of(name: &str) -> Option<Execute> {
    Some(match name {
        "v_mov_b32" | "v_mov_b16" => |w, i| each(w, i, |[a, ..]| a),
        "v_add_u32" | "v_add_nc_u32" => |w, i| each(w, i, |[a, b, _]| a.wrapping_add(b)),
        "v_sub_u32" | "v_sub_nc_u32" => |w, i| each(w, i, |[a, b, _]| a.wrapping_sub(b)),
        "v_subrev_u32" | "v_subrev_nc_u32" => |w, i| each(w, i, |[a, b, _]| b.wrapping_sub(a)),
        "v_add3_u32" => |w, i| each(w, i, |[a, b, c]| a.wrapping_add(b).wrapping_add(c)),
        "v_mul_lo_u32" => |w, i| each(w, i, |[a, b, _]| a.wrapping_mul(b)),
        "v_mul_hi_u32" => {
            |w, i| each(w, i, |[a, b, _]| ((u64::from(a) * u64::from(b)) >> 32) as u32)
        }
        "v_mul_u32_u24" => |w, i| each(w, i, |[a, b, _]| low_24(a).wrapping_mul(low_24(b))),
        "v_mad_u32_u24" => {
            |w, i| each(w, i, |[a, b, c]| low_24(a).wrapping_mul(low_24(b)).wrapping_add(c))
        }
        "v_and_b32" => |w, i| each(w, i, |[a, b, _]| a & b),
        "v_or_b32" => |w, i| each(w, i, |[a, b, _]| a | b),
        "v_xor_b32" => |w, i| each(w, i, |[a, b, _]| a ^ b),
        "v_or3_b32" => |w, i| each(w, i, |[a, b, c]| a | b | c),
        "v_and_or_b32" => |w, i| each(w, i, |[a, b, c]| a & b | c),
        "v_bfrev_b32" => |w, i| each(w, i, |[a, ..]| a.reverse_bits()),
        "v_bfe_u32" => {
            |w, i| each(w, i, |[a, from, bits]| a >> (from & 31) & !(u32::MAX << (bits & 31)))
        }
        "v_lshlrev_b32" => |w, i| each(w, i, |[by, a, _]| a << (by & 31)),
        "v_lshrrev_b32" => |w, i| each(w, i, |[by, a, _]| a >> (by & 31)),
        "v_lshl_add_u32" => |w, i| each(w, i, |[a, by, b]| (a << (by & 31)).wrapping_add(b)),
        "v_add_lshl_u32" => |w, i| each(w, i, |[a, b, by]| a.wrapping_add(b) << (by & 31)),
        "v_lshl_or_b32" => |w, i| each(w, i, |[a, by, b]| a << (by & 31) | b),
        "v_max_u32" => |w, i| each(w, i, |[a, b, _]| a.max(b)),
        "v_min_u32" => |w, i| each(w, i, |[a, b, _]| a.min(b)),
        "v_max3_u32" => |w, i| each(w, i, |[a, b, c]| a.max(b).max(c)),
        "v_max_i32" => |w, i| each(w, i, |[a, b, _]| (a as i32).max(b as i32) as u32),
        "v_perm_b32" => |w, i| each(w, i, permuted),
        "v_cmp_eq_u32" => |w, i| compare(w, i, |[a, b]| a == b),
        "v_cmp_ne_u32" => |w, i| compare(w, i, |[a, b]| a != b),
        "v_cmp_lt_u32" => |w, i| compare(w, i, |[a, b]| a < b),
        "v_cmp_le_u32" => |w, i| compare(w, i, |[a, b]| a <= b),
        "v_cmp_gt_u32" => |w, i| compare(w, i, |[a, b]| a > b),
        "v_cmp_ge_u32" => |w, i| compare(w, i, |[a, b]| a >= b),
        "v_cmp_lt_i32" => |w, i| compare(w, i, |[a, b]| (a as i32) < b as i32),
        "v_cmp_gt_i32" => |w, i| compare(w, i, |[a, b]| a as i32 > b as i32),
        "v_cmpx_eq_u32" => |w, i| compare_active(w, i, |[a, b]| a == b),
        "v_cmpx_ne_u32" => |w, i| compare_active(w, i, |[a, b]| a != b),
        "v_cmpx_lt_u32" => |w, i| compare_active(w, i, |[a, b]| a < b),
        "v_cmpx_le_u32" => |w, i| compare_active(w, i, |[a, b]| a <= b),
        "v_cmpx_ge_u32" => |w, i| compare_active(w, i, |[a, b]| a >= b),
        "v_cmpx_gt_u32" => |w, i| compare_active(w, i, |[a, b]| a > b),
        _ => return None,
    })
}

/// On numbers of 32 and 16 bits.
fn numbers_of(name: &str) -> Option<Execute> {
    Some(match name {
        "v_add_f32" => |w, i| floats(w, i, |[a, b, _]| a + b),
        "v_sub_f32" => |w, i| floats(w, i, |[a, b, _]| a - b),
        "v_mul_f32" => |w, i| floats(w, i, |[a, b, _]| a * b),
        "v_fma_f32" | "v_fmac_f32" => |w, i| floats(w, i, |[a, b, c]| a.mul_add(b, c)),
        "v_fmaak_f32" => |w, i| floats(w, i, |[a, b, c]| a.mul_add(b, c)),
        "v_fmamk_f32" => |w, i| floats(w, i, |[a, b, c]| a.mul_add(b, c)),
        "v_max_f32" | "v_max_num_f32" => |w, i| floats(w, i, |[a, b, _]| maximum(a, b)),
        "v_max3_f32" | "v_max3_num_f32" => {
            |w, i| floats(w, i, |[a, b, c]| maximum(maximum(a, b), c))
        }
        "v_rcp_f32" | "v_rcp_iflag_f32" => |w, i| {
            let estimate = w.estimate;
            floats(w, i, |[a, ..]| estimate.round(1.0 / f64::from(a)))
        },
        "v_sqrt_f32" => |w, i| {
            let estimate = w.estimate;
            floats(w, i, |[a, ..]| estimate.round(f64::from(a).sqrt()))
        },
        "v_div_scale_f32" => |w, i| {
            let results = mapped(w, i, |values| division::scale(values.map(f32::from_bits)))?;
            // Of lanes that are not active nothing is known.
            let wrong = w.active().find_map(|lane| results[lane].as_ref().err());
            if let Some(why) = wrong {
                return Err(why.clone());
            }
            masked(w, i, &[false; 64])?;
            w.write(i, 0, &results.map(|value| value.map_or(0, f32::to_bits)))
        },
        "v_div_fmas_f32" => |w, i| {
            if w.mask_of(None)? & w.mask(EXEC) != 0 {
                return Err("a division that was scaled".into());
            }
            floats(w, i, division::fmas)
        },
        "v_div_fixup_f32" => |w, i| floats(w, i, division::fixup),
        "v_cvt_f32_u32" => |w, i| each(w, i, |[a, ..]| (a as f32).to_bits()),
        "v_cvt_f32_ubyte0" => |w, i| each(w, i, |[a, ..]| f32::from(a as u8).to_bits()),
        "v_cvt_u32_f32" => |w, i| each(w, i, |[a, ..]| f32::from_bits(a) as u32),
        "v_cvt_f32_f16" => |w, i| each(w, i, |[a, ..]| f16::from_bits(a as u16).to_f32().to_bits()),
        "v_cvt_f16_f32" => |w, i| each(w, i, |[a, ..]| half_bits(f32::from_bits(a))),
        "v_pack_b32_f16" => |w, i| each(w, i, |[a, b, _]| a & 0xFFFF | b << 16),
        "v_cmp_lt_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a < b)),
        "v_cmp_gt_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a > b)),
        "v_cmp_ge_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a >= b)),
        "v_cmp_le_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a <= b)),
        "v_cmp_eq_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a == b)),
        "v_cmp_neq_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a != b)),
        "v_cmp_ngt_f32" => |w, i| compare(w, i, |ab| !test(ab, |a, b| a > b)),
        "v_cmp_nlt_f32" => |w, i| compare(w, i, |ab| !test(ab, |a, b| a < b)),
        "v_cmp_u_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a.is_nan() || b.is_nan())),
        "v_cmp_class_f32" => |w, i| compare(w, i, |[a, classes]| classes >> class(a) & 1 == 1),
        _ => return None,
    })
}

fn low_24(a: u32) -> u32 {
    a & 0xFF_FFFF
}

/// The larger number, +0 above -0; of a number and a NaN the number.
pub fn maximum(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b && a.is_sign_negative() => b,
        _ if a < b => b,
        _ => a,
    }
}

/// Between lanes, and between lanes and the wave.
fn lanes_of(name: &str) -> Option<Execute> {
    Some(match name {
        "v_cndmask_b32" => |w, i| {
            let mask = w.mask_of(i.operands.get(3))?;
            let [a, b] = [w.source(i, 0)?, w.source(i, 1)?];
            w.write(i, 0, &from_fn(|lane| if mask >> lane & 1 == 1 { b[lane] } else { a[lane] }))
        },
        "v_add_co_u32" => |w, i| carry(w, i, false),
        "v_addc_co_u32" | "v_add_co_ci_u32" => |w, i| carry(w, i, true),
        "v_readlane_b32" => |w, i| {
            let lane = w.scalar(&i.operands[2], 0)? as usize % w.width;
            let value = w.lanes(&i.operands[1], 0)?[lane];
            w.set_scalar(&i.operands[0], 0, value)
        },
        // Active or not.
        "v_writelane_b32" => |w, i| {
            let lane = w.scalar(&i.operands[2], 0)? as usize % w.width;
            let value = w.scalar(&i.operands[1], 0)?;
            let Place::Vector(register) = i.operands[0].place else {
                return Err("no vector register".into());
            };
            w.vectors[register][lane] = value;
            Ok(())
        },
        "v_readfirstlane_b32" => |w, i| {
            let first = w.mask(EXEC).trailing_zeros() as usize;
            let value = w.source(i, 0)?[if first < w.width { first } else { 0 }];
            w.set_scalar(&i.operands[0], 0, value)
        },
        "ds_swizzle_b32" => |w, i| {
            let (from, by) = (w.source(i, 0)?, i.modifiers.swap.ok_or("an unknown swizzle")?);
            let taken = from_fn(|lane| if w.is_active(lane ^ by) { from[lane ^ by] } else { 0 });
            w.write(i, 0, &taken)
        },
        "v_mbcnt_lo_u32_b32" => |w, i| count_below(w, i, 0),
        "v_mbcnt_hi_u32_b32" => |w, i| count_below(w, i, 32),
        "ds_bpermute_b32" => |w, i| {
            let [at, from] = [w.source(i, 0)?, w.source(i, 1)?];
            let other = |lane: usize| at[lane] as usize / 4 % w.width;
            let taken = |lane| if w.is_active(other(lane)) { from[other(lane)] } else { 0 };
            w.write(i, 0, &from_fn(taken))
        },
        "v_permlanex16_b32" => |w, i| {
            let from = w.source(i, 0)?;
            let [low, high] = [w.scalar(&i.operands[2], 0)?, w.scalar(&i.operands[3], 0)?];
            let select = u64::from(low) | u64::from(high) << 32;
            let other = |lane: usize| (lane & !15 ^ 16) | (select >> (lane % 16 * 4) & 15) as usize;
            if let Some(lane) = w.active().find(|&lane| !w.is_active(other(lane))) {
                return Err(format!(
                    "lane {lane} takes from lane {}, which is not active",
                    other(lane)
                ));
            }
            w.write(i, 0, &from_fn(|lane| from[other(lane)]))
        },
        _ => return None,
    })
}

/// Adds how many lanes below each are in a mask of 32 lanes, of which this is the first.
fn count_below(w: &mut Wave, i: &Instruction, first: usize) -> Done {
    let [mask, add] = [w.source(i, 0)?, w.source(i, 1)?];
    let below =
        |lane: usize| !(u32::MAX.checked_shl(lane.saturating_sub(first) as u32).unwrap_or(0));
    w.write(i, 0, &from_fn(|lane| (mask[lane] & below(lane)).count_ones().wrapping_add(add[lane])))
}

/// A result for the sources of each lane.
fn mapped<T>(w: &Wave, i: &Instruction, f: impl Fn([u32; 3]) -> T) -> Result<[T; 64], String> {
    let [a, b, c] = [w.source(i, 0)?, w.source(i, 1)?, w.source(i, 2)?];
    Ok(from_fn(|lane| f([a[lane], b[lane], c[lane]])))
}

fn each(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 3]) -> u32) -> Done {
    let result = mapped(w, i, f)?;
    w.write(i, 0, &result)
}

fn floats(w: &mut Wave, i: &Instruction, f: impl Fn([f32; 3]) -> f32) -> Done {
    each(w, i, |values| f(values.map(f32::from_bits)).to_bits())
}

/// Sets a mask where lanes are active, and clears it where they are not.
fn set(w: &mut Wave, flags: &[bool; 64]) -> u64 {
    w.active().filter(|&lane| flags[lane]).fold(0, |mask, lane| mask | 1 << lane)
}

/// The second destination: a flag of each lane.
pub fn masked(w: &mut Wave, i: &Instruction, flags: &[bool; 64]) -> Done {
    let mask = set(w, flags);
    w.set_mask_of(&i.operands[1], mask)
}

fn compare(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 2]) -> bool) -> Done {
    let flags = mapped(w, i, |[a, b, _]| f([a, b]))?;
    let mask = set(w, &flags);
    w.set_mask_of(&i.operands[0], mask)
}

/// Compares, and leaves those active for which it holds.
fn compare_active(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 2]) -> bool) -> Done {
    if w.generation == Generation::Gfx9 {
        return Err("it has another destination on this architecture".into());
    }
    let flags = mapped(w, i, |[a, b, _]| f([a, b]))?;
    let mask = set(w, &flags);
    w.set_mask(EXEC, mask);
    Ok(())
}

fn test([a, b]: [u32; 2], f: impl Fn(f32, f32) -> bool) -> bool {
    f(f32::from_bits(a), f32::from_bits(b))
}

/// Adds two words, and perhaps the carry of others.
fn carry(w: &mut Wave, i: &Instruction, takes: bool) -> Done {
    let carry = if takes { w.mask_of(i.operands.get(4))? } else { 0 };
    let [a, b] = [w.source(i, 0)?, w.source(i, 1)?];
    let results: [_; 64] = from_fn(|lane| a[lane].carrying_add(b[lane], carry >> lane & 1 == 1));
    masked(w, i, &results.map(|(_, carry)| carry))?;
    w.write(i, 0, &results.map(|(value, _)| value))
}

pub fn half_bits(value: f32) -> u32 {
    u32::from(f16::from_f32(value).to_bits())
}

/// Each byte of the result is one of eight, or a constant.
fn permuted([high, low, select]: [u32; 3]) -> u32 {
    let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
    let byte = |select: u8| match select {
        0..8 => bytes[usize::from(select)],
        8..12 => 0xFF * (bytes[usize::from(select - 8) * 2 + 1] >> 7),
        12 => 0,
        _ => 0xFF,
    };
    u32::from_le_bytes(select.to_le_bytes().map(byte))
}

/// The number of a number's class.
fn class(bits: u32) -> u32 {
    let value = f32::from_bits(bits);
    let signed = |negative, positive| if value.is_sign_negative() { negative } else { positive };
    match value.classify() {
        std::num::FpCategory::Nan => u32::from(bits & 0x40_0000 != 0),
        std::num::FpCategory::Infinite => signed(2, 9),
        std::num::FpCategory::Normal => signed(3, 8),
        std::num::FpCategory::Subnormal => signed(4, 7),
        std::num::FpCategory::Zero => signed(5, 6),
    }
}
