//! Instructions on the registers of every lane.

use super::{
    division,
    operand::{EXEC, Place},
    program::{Execute, Generation, Instruction},
    wave::{Lanes, Wave},
};
use half::f16;
use std::array::from_fn;

type Done = Result<(), String>;

/// What a vector instruction does, other than to load or store.
pub fn find(name: &str) -> Option<Execute> {
    words_of(name).or_else(|| numbers_of(name)).or_else(|| wide_of(name)).or_else(|| lanes_of(name))
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
        "v_cmpx_eq_u32" => |w, i| compare_active(w, i, |[a, b]| a == b),
        "v_cmpx_ne_u32" => |w, i| compare_active(w, i, |[a, b]| a != b),
        "v_cmpx_lt_u32" => |w, i| compare_active(w, i, |[a, b]| a < b),
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
        "v_rcp_f32" | "v_rcp_iflag_f32" => |w, i| {
            let estimate = w.estimate;
            floats(w, i, |[a, ..]| estimate.round(1.0 / f64::from(a)))
        },
        "v_sqrt_f32" => |w, i| {
            let estimate = w.estimate;
            floats(w, i, |[a, ..]| estimate.round(f64::from(a).sqrt()))
        },
        "v_div_scale_f32" => |w, i| {
            let results = numbers(w, i)?.map(division::scale);
            masked(w, i, &results.map(|(_, flag)| flag))?;
            w.write(i, 0, &results.map(|(value, _)| value.to_bits()))
        },
        "v_div_fmas_f32" => |w, i| {
            let (values, vcc) = (numbers(w, i)?, w.mask_of(None)?);
            let result =
                from_fn(|lane| division::fmas(values[lane], vcc >> lane & 1 == 1).to_bits());
            w.write(i, 0, &result)
        },
        "v_div_fixup_f32" => |w, i| floats(w, i, division::fixup),
        "v_cvt_f32_u32" => |w, i| each(w, i, |[a, ..]| (a as f32).to_bits()),
        "v_cvt_u32_f32" => |w, i| each(w, i, |[a, ..]| f32::from_bits(a) as u32),
        "v_cvt_f32_f16" => |w, i| each(w, i, |[a, ..]| f16::from_bits(a as u16).to_f32().to_bits()),
        "v_cvt_f16_f32" => |w, i| each(w, i, |[a, ..]| half_bits(f32::from_bits(a))),
        "v_pack_b32_f16" => |w, i| each(w, i, |[a, b, _]| a & 0xFFFF | b << 16),
        "v_fma_mix_f32" => |w, i| {
            let result = mixed(w, i)?.map(f32::to_bits);
            w.write(i, 0, &result)
        },
        "v_fma_mixlo_f16" => |w, i| mixed_half(w, i, 0),
        "v_fma_mixhi_f16" => |w, i| mixed_half(w, i, 16),
        "v_cmp_lt_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a < b)),
        "v_cmp_gt_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a > b)),
        "v_cmp_ge_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a >= b)),
        "v_cmp_le_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a <= b)),
        "v_cmp_u_f32" => |w, i| compare(w, i, |ab| test(ab, |a, b| a.is_nan() || b.is_nan())),
        "v_cmp_class_f32" => |w, i| compare(w, i, |[a, classes]| classes >> class(a) & 1 == 1),
        _ => return None,
    })
}

/// On two words at once.
fn wide_of(name: &str) -> Option<Execute> {
    Some(match name {
        "v_mov_b64" => |w, i| wide(w, i, &[2], |[a, ..]| a),
        "v_lshlrev_b64" => |w, i| wide(w, i, &[1, 2], |[by, a, _]| a << (by & 63)),
        "v_lshl_add_u64" => {
            |w, i| wide(w, i, &[2, 1, 2], |[a, by, b]| (a << (by & 7)).wrapping_add(b))
        }
        "v_mad_u64_u32" | "v_mad_co_u64_u32" => |w, i| {
            let sources = wide_sources(w, i, &[1, 1, 2])?;
            let results = sources.map(|[a, b, c]| (a * b).overflowing_add(c));
            masked(w, i, &results.map(|(_, carry)| carry))?;
            write_wide(w, i, &results.map(|(value, _)| value))
        },
        "v_pk_fma_f32" => |w, i| packed(w, i, |[a, b, c]| a.mul_add(b, c)),
        "v_pk_mul_f32" => |w, i| packed(w, i, |[a, b, _]| a * b),
        "v_pk_add_f32" => |w, i| packed(w, i, |[a, b, _]| a + b),
        "v_pk_mov_b32" => |w, i| {
            let word = |n: usize| w.lanes(&i.operands[1 + n], usize::from(i.modifiers.select[n]));
            let [low, high] = [word(0)?, word(1)?];
            w.write(i, 0, &low)?;
            w.write(i, 1, &high)
        },
        _ => return None,
    })
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
    w.write(i, 0, &from_fn(|lane| (mask[lane] & below(lane)).count_ones() + add[lane]))
}

/// The sources of each lane.
fn sources(w: &Wave, i: &Instruction) -> Result<[[u32; 3]; 64], String> {
    let [a, b, c] = [w.source(i, 0)?, w.source(i, 1)?, w.source(i, 2)?];
    Ok(from_fn(|lane| [a[lane], b[lane], c[lane]]))
}

fn numbers(w: &Wave, i: &Instruction) -> Result<[[f32; 3]; 64], String> {
    Ok(sources(w, i)?.map(|values| values.map(f32::from_bits)))
}

fn each(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 3]) -> u32) -> Done {
    let result: Lanes = sources(w, i)?.map(f);
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
fn masked(w: &mut Wave, i: &Instruction, flags: &[bool; 64]) -> Done {
    let mask = set(w, flags);
    w.set_mask_of(&i.operands[1], mask)
}

fn compare(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 2]) -> bool) -> Done {
    let flags = sources(w, i)?.map(|[a, b, _]| f([a, b]));
    let mask = set(w, &flags);
    w.set_mask_of(&i.operands[0], mask)
}

/// Compares, and leaves those active for which it holds.
fn compare_active(w: &mut Wave, i: &Instruction, f: impl Fn([u32; 2]) -> bool) -> Done {
    if w.generation == Generation::Gfx9 {
        return Err("it has another destination on this architecture".into());
    }
    let flags = sources(w, i)?.map(|[a, b, _]| f([a, b]));
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

/// Sources of one or two words.
fn wide_sources(w: &Wave, i: &Instruction, words: &[usize]) -> Result<[[u64; 3]; 64], String> {
    let mut sources = [[0; 3]; 64];
    for (index, &count) in words.iter().enumerate() {
        let operand = &i.operands[i.destinations + index];
        if matches!(operand.place, Place::Float(_)) && count == 2 {
            return Err("a number of 64 bits".into());
        }
        let low = w.lanes(operand, 0)?;
        let high = if count == 2 { w.lanes(operand, 1)? } else { [0; 64] };
        for (lane, source) in sources.iter_mut().enumerate() {
            source[index] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
        }
    }
    Ok(sources)
}

fn write_wide(w: &mut Wave, i: &Instruction, values: &[u64; 64]) -> Done {
    w.write(i, 0, &values.map(|value| value as u32))?;
    w.write(i, 1, &values.map(|value| (value >> 32) as u32))
}

fn wide(w: &mut Wave, i: &Instruction, words: &[usize], f: impl Fn([u64; 3]) -> u64) -> Done {
    let result = wide_sources(w, i, words)?.map(f);
    write_wide(w, i, &result)
}

/// Two numbers at once, each source's word chosen for each.
fn packed(w: &mut Wave, i: &Instruction, f: impl Fn([f32; 3]) -> f32) -> Done {
    let modifiers = &i.modifiers;
    let mut results = [[0; 64]; 2];
    for (word, result) in results.iter_mut().enumerate() {
        let (select, negate) = match word {
            0 => (modifiers.select, modifiers.negate_low),
            _ => (modifiers.select_high.unwrap_or([true; 3]), modifiers.negate_high),
        };
        let mut values = [[0; 64]; 3];
        for (index, operand) in i.operands[1..].iter().enumerate() {
            if matches!(operand.place, Place::Integer(_) | Place::Float(_)) && select[index] {
                return Err("the high word of a constant".into());
            }
            let value = w.lanes(operand, usize::from(select[index]))?;
            values[index] = value.map(|value| value ^ u32::from(negate[index]) << 31);
        }
        let [a, b, c] = values;
        *result = from_fn(|lane| f([a[lane], b[lane], c[lane]].map(f32::from_bits)).to_bits());
    }
    results.iter().enumerate().try_for_each(|(word, result)| w.write(i, word, result))
}

/// A fused multiply-add of numbers of which each has 32 bits or is half of a register.
fn mixed(w: &Wave, i: &Instruction) -> Result<[f32; 64], String> {
    let halves = i.modifiers.select_high.unwrap_or([false; 3]);
    let mut values = [[0f32; 64]; 3];
    for (index, value) in values.iter_mut().enumerate() {
        let operand = &i.operands[1 + index];
        let raw = w.lanes(operand, 0)?;
        let shift = if i.modifiers.select[index] { 16 } else { 0 };
        *value = raw.map(|raw| {
            let number = match halves[index] {
                true => f16::from_bits((raw >> shift) as u16).to_f32(),
                false => f32::from_bits(raw),
            };
            let number = if operand.absolute { number.abs() } else { number };
            if operand.negative { -number } else { number }
        });
    }
    let [a, b, c] = values;
    Ok(from_fn(|lane| a[lane].mul_add(b[lane], c[lane])))
}

/// The same, rounded once more, into half of a register.
fn mixed_half(w: &mut Wave, i: &Instruction, shift: u32) -> Done {
    let (result, old) = (mixed(w, i)?, w.lanes(&i.operands[0], 0)?);
    let kept = !(0xFFFF << shift);
    w.write(i, 0, &from_fn(|lane| half_bits(result[lane]) << shift | old[lane] & kept))
}

fn half_bits(value: f32) -> u32 {
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
