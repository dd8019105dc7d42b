//! Instructions on the registers of a wave.

use super::{
    operand::EXEC,
    program::{Execute, Instruction},
    vector::maximum,
    wave::Wave,
};

/// Does it only wait, or tell the hardware how to schedule?
pub fn is_idle(name: &str) -> bool {
    let exact = [
        "s_endpgm",
        "s_nop",
        "s_clause",
        "s_delay_alu",
        "s_sendmsg",
        "buffer_gl0_inv",
        "global_inv",
    ];
    let starts = ["s_wait", "s_barrier"];
    exact.contains(&name) || starts.iter().any(|start| name.starts_with(start))
}

/// What a scalar instruction does, other than to load.
pub fn find(name: &str) -> Option<Execute> {
    Some(match name {
        "s_endpgm" => |w, _| {
            w.end();
            Ok(())
        },
        // RDNA 4 tells the others that it is there, and then waits for them.
        "s_barrier" | "s_barrier_wait" => |w, _| {
            w.meet();
            Ok(())
        },
        _ if is_idle(name) => |_, _| Ok(()),
        "s_branch" => |w, i| branch(w, i, true),
        "s_cbranch_scc0" => |w, i| branch(w, i, !w.scc),
        "s_cbranch_scc1" => |w, i| branch(w, i, w.scc),
        "s_cbranch_vccz" => |w, i| branch(w, i, w.mask_of(None)? == 0),
        "s_cbranch_vccnz" => |w, i| branch(w, i, w.mask_of(None)? != 0),
        "s_cbranch_execz" => |w, i| branch(w, i, w.mask(EXEC) == 0),
        "s_cbranch_execnz" => |w, i| branch(w, i, w.mask(EXEC) != 0),
        "s_mov_b32" => |w, i| words(w, i, |a, _| a),
        "s_movk_i32" => |w, i| words(w, i, |a, _| i32::from(a as i16) as u32),
        "s_brev_b32" => |w, i| words(w, i, |a, _| a.reverse_bits()),
        "s_mul_i32" => |w, i| words(w, i, u32::wrapping_mul),
        "s_mulk_i32" => |w, i| {
            let by = i32::from(source(w, i, 0)? as i16);
            let value = source(w, i, 1)?.wrapping_mul(by as u32);
            w.set_scalar(&i.operands[0], 0, value)
        },
        "s_addk_i32" | "s_addk_co_i32" => |w, i| {
            let by = i32::from(source(w, i, 0)? as i16) as u32;
            let (value, overflows) = signed(source(w, i, 1)?, by, i32::overflowing_add);
            w.scc = overflows;
            w.set_scalar(&i.operands[0], 0, value)
        },
        "s_bfe_u32" => |w, i| {
            flagged(w, i, |a, field, _| {
                let bits = (field >> 16 & 0x7F).min(32);
                nonzero((u64::from(a >> (field & 31)) & ((1 << bits) - 1)) as u32)
            })
        },
        "s_cselect_b64" => |w, i| {
            let index = i.destinations + usize::from(!w.scc);
            let value = w.scalar_pair(&i.operands[index])?;
            w.set_scalar(&i.operands[0], 0, value as u32)?;
            w.set_scalar(&i.operands[0], 1, (value >> 32) as u32)
        },
        "s_bitcmp0_b32" => |w, i| compare(w, i, |a, bit| a >> (bit & 31) & 1 == 0),
        "s_bitcmp1_b32" => |w, i| compare(w, i, |a, bit| a >> (bit & 31) & 1 == 1),
        "s_cmpk_lt_u32" => |w, i| compare(w, i, |a, b| a < b & 0xFFFF),
        "s_mul_hi_u32" => |w, i| words(w, i, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        "s_add_f32" => |w, i| floats(w, i, |a, b| a + b),
        "s_sub_f32" => |w, i| floats(w, i, |a, b| a - b),
        "s_max_num_f32" => |w, i| floats(w, i, maximum),
        "s_fmac_f32" | "s_fmaak_f32" | "s_fmamk_f32" => |w, i| {
            let [a, b, c] =
                [source(w, i, 0)?, source(w, i, 1)?, source(w, i, 2)?].map(f32::from_bits);
            w.set_scalar(&i.operands[0], 0, a.mul_add(b, c).to_bits())
        },
        "s_cmp_lt_f32" => |w, i| compare_floats(w, i, |a, b| a < b),
        "s_cmp_nlt_f32" => |w, i| compare_floats(w, i, |a, b| a.is_nan() || b.is_nan() || a >= b),
        "s_cmp_gt_f32" => |w, i| compare_floats(w, i, |a, b| a > b),
        "s_cmp_ngt_f32" => |w, i| compare_floats(w, i, |a, b| a.is_nan() || b.is_nan() || a <= b),
        "s_cmp_eq_f32" => |w, i| compare_floats(w, i, |a, b| a == b),
        "s_cmp_neq_f32" => |w, i| compare_floats(w, i, |a, b| a != b),
        "s_cmp_u_f32" => |w, i| compare_floats(w, i, |a, b| a.is_nan() || b.is_nan()),
        "s_bitset0_b32" => |w, i| {
            let (bit, value) = (source(w, i, 0)?, source(w, i, 1)?);
            w.set_scalar(&i.operands[0], 0, value & !(1 << (bit & 31)))
        },
        "s_bitset1_b32" => |w, i| {
            let (bit, value) = (source(w, i, 0)?, source(w, i, 1)?);
            w.set_scalar(&i.operands[0], 0, value | 1 << (bit & 31))
        },
        "s_mul_f32" => |w, i| floats(w, i, |a, b| a * b),
        "s_cvt_f32_u32" => |w, i| words(w, i, |a, _| (a as f32).to_bits()),
        "s_cvt_u32_f32" => |w, i| words(w, i, |a, _| f32::from_bits(a) as u32),
        "v_s_rcp_f32" => |w, i| {
            let value = f64::from(f32::from_bits(source(w, i, 0)?));
            let value = w.estimate.round(1.0 / value);
            w.set_scalar(&i.operands[0], 0, value.to_bits())
        },
        "s_cselect_b32" => |w, i| {
            let value = source(w, i, usize::from(!w.scc))?;
            w.set_scalar(&i.operands[0], 0, value)
        },
        "s_add_u32" => |w, i| flagged(w, i, |a, b, _| a.overflowing_add(b)),
        "s_addc_u32" => |w, i| flagged(w, i, |a, b, scc| a.carrying_add(b, scc)),
        "s_sub_u32" => |w, i| flagged(w, i, |a, b, _| a.overflowing_sub(b)),
        "s_add_i32" | "s_add_co_i32" => {
            |w, i| flagged(w, i, |a, b, _| signed(a, b, i32::overflowing_add))
        }
        "s_sub_i32" | "s_sub_co_i32" => {
            |w, i| flagged(w, i, |a, b, _| signed(a, b, i32::overflowing_sub))
        }
        "s_max_u32" => |w, i| flagged(w, i, |a, b, _| (a.max(b), a >= b)),
        "s_max_i32" => {
            |w, i| flagged(w, i, |a, b, _| ((a as i32).max(b as i32) as u32, a as i32 >= b as i32))
        }
        "s_min_u32" => |w, i| flagged(w, i, |a, b, _| (a.min(b), a < b)),
        "s_and_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a & b)),
        "s_or_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a | b)),
        "s_xor_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a ^ b)),
        "s_not_b32" => |w, i| flagged(w, i, |a, _, _| nonzero(!a)),
        "s_andn2_b32" | "s_and_not1_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a & !b)),
        "s_lshl_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a << (b & 31))),
        "s_lshr_b32" => |w, i| flagged(w, i, |a, b, _| nonzero(a >> (b & 31))),
        "s_ashr_i32" => |w, i| flagged(w, i, |a, b, _| nonzero((a as i32 >> (b & 31)) as u32)),
        "s_lshl1_add_u32" => |w, i| flagged(w, i, |a, b, _| shifted(a, 1, b)),
        "s_lshl2_add_u32" => |w, i| flagged(w, i, |a, b, _| shifted(a, 2, b)),
        "s_lshl3_add_u32" => |w, i| flagged(w, i, |a, b, _| shifted(a, 3, b)),
        "s_lshl4_add_u32" => |w, i| flagged(w, i, |a, b, _| shifted(a, 4, b)),
        "s_mov_b64" => |w, i| pairs(w, i, false, |a, _| a),
        "s_add_nc_u64" => |w, i| pairs(w, i, false, u64::wrapping_add),
        "s_and_b64" => |w, i| pairs(w, i, true, |a, b| a & b),
        "s_or_b64" => |w, i| pairs(w, i, true, |a, b| a | b),
        "s_xor_b64" => |w, i| pairs(w, i, true, |a, b| a ^ b),
        "s_andn2_b64" | "s_and_not1_b64" => |w, i| pairs(w, i, true, |a, b| a & !b),
        "s_not_b64" => |w, i| pairs(w, i, true, |a, _| !a),
        "s_lshl_b64" => |w, i| pairs(w, i, true, |a, b| a << (b & 63)),
        "s_lshr_b64" => |w, i| pairs(w, i, true, |a, b| a >> (b & 63)),
        "s_and_saveexec_b32" | "s_and_saveexec_b64" => |w, i| save(w, i, |a, exec| a & exec),
        "s_or_saveexec_b32" | "s_or_saveexec_b64" => |w, i| save(w, i, |a, exec| a | exec),
        "s_andn2_saveexec_b64" | "s_and_not1_saveexec_b32" => {
            |w, i| save(w, i, |a, exec| a & !exec)
        }
        "s_cmp_eq_u32" | "s_cmp_eq_i32" => |w, i| compare(w, i, |a, b| a == b),
        "s_cmp_lg_u32" | "s_cmp_lg_i32" => |w, i| compare(w, i, |a, b| a != b),
        "s_cmp_lt_u32" => |w, i| compare(w, i, |a, b| a < b),
        "s_cmp_le_u32" => |w, i| compare(w, i, |a, b| a <= b),
        "s_cmp_gt_u32" => |w, i| compare(w, i, |a, b| a > b),
        "s_cmp_ge_u32" => |w, i| compare(w, i, |a, b| a >= b),
        "s_cmp_lt_i32" => |w, i| compare(w, i, |a, b| (a as i32) < b as i32),
        "s_cmp_gt_i32" => |w, i| compare(w, i, |a, b| a as i32 > b as i32),
        _ => return None,
    })
}

type Done = Result<(), String>;

/// A source; 0 where there is none.
fn source(w: &Wave, i: &Instruction, index: usize) -> Result<u32, String> {
    i.operands.get(i.destinations + index).map_or(Ok(0), |operand| w.scalar(operand, 0))
}

fn branch(w: &mut Wave, i: &Instruction, taken: bool) -> Done {
    if taken {
        w.jump(i);
    }
    Ok(())
}

fn words(w: &mut Wave, i: &Instruction, f: fn(u32, u32) -> u32) -> Done {
    let value = f(source(w, i, 0)?, source(w, i, 1)?);
    w.set_scalar(&i.operands[0], 0, value)
}

fn floats(w: &mut Wave, i: &Instruction, f: fn(f32, f32) -> f32) -> Done {
    let [a, b] = [source(w, i, 0)?, source(w, i, 1)?].map(f32::from_bits);
    w.set_scalar(&i.operands[0], 0, f(a, b).to_bits())
}

/// Computes a word and the condition code, perhaps from it.
fn flagged(w: &mut Wave, i: &Instruction, f: fn(u32, u32, bool) -> (u32, bool)) -> Done {
    let (value, scc) = f(source(w, i, 0)?, source(w, i, 1)?, w.scc);
    w.scc = scc;
    w.set_scalar(&i.operands[0], 0, value)
}

/// Computes two words; the condition code may say whether they are not 0.
fn pairs(w: &mut Wave, i: &Instruction, sets_scc: bool, f: fn(u64, u64) -> u64) -> Done {
    let a = w.scalar_pair(&i.operands[1])?;
    let shifts = i.text.starts_with("s_lsh");
    let b = match i.operands.get(2) {
        None => 0,
        Some(amount) if shifts => u64::from(w.scalar(amount, 0)?),
        Some(operand) => w.scalar_pair(operand)?,
    };
    let value = f(a, b);
    if sets_scc {
        w.scc = value != 0;
    }
    w.set_scalar(&i.operands[0], 0, value as u32)?;
    w.set_scalar(&i.operands[0], 1, (value >> 32) as u32)
}

/// Keeps the mask of active lanes, and sets it.
fn save(w: &mut Wave, i: &Instruction, f: fn(u64, u64) -> u64) -> Done {
    let exec = w.mask(EXEC);
    let new = f(w.mask_of(i.operands.get(1))?, exec);
    w.set_mask_of(&i.operands[0], exec)?;
    w.set_mask(EXEC, new);
    w.scc = w.mask(EXEC) != 0;
    Ok(())
}

fn compare(w: &mut Wave, i: &Instruction, f: fn(u32, u32) -> bool) -> Done {
    w.scc = f(source(w, i, 0)?, source(w, i, 1)?);
    Ok(())
}

fn compare_floats(w: &mut Wave, i: &Instruction, f: fn(f32, f32) -> bool) -> Done {
    w.scc = f(f32::from_bits(source(w, i, 0)?), f32::from_bits(source(w, i, 1)?));
    Ok(())
}

fn nonzero(value: u32) -> (u32, bool) {
    (value, value != 0)
}

fn signed(a: u32, b: u32, f: fn(i32, i32) -> (i32, bool)) -> (u32, bool) {
    let (value, overflow) = f(a as i32, b as i32);
    (value as u32, overflow)
}

/// `(a << by) + b`, and whether that is more than 32 bits.
fn shifted(a: u32, by: u32, b: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}
