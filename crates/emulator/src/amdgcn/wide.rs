//! Instructions on two words, or two halves, of every lane at once.

use super::{
    operand::Place,
    program::{Execute, Instruction},
    vector::{Done, half_bits, masked},
    wave::Wave,
};
use half::f16;
use std::array::from_fn;

/// What such an instruction does.
pub fn find(name: &str) -> Option<Execute> {
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
        "v_fma_mix_f32" => |w, i| {
            let result = mixed(w, i)?.map(f32::to_bits);
            w.write(i, 0, &result)
        },
        "v_fma_mixlo_f16" => |w, i| mixed_half(w, i, 0),
        "v_fma_mixhi_f16" => |w, i| mixed_half(w, i, 16),
        "v_pk_mov_b32" => |w, i| {
            let word = |n: usize| w.lanes(&i.operands[1 + n], usize::from(i.modifiers.select[n]));
            let [low, high] = [word(0)?, word(1)?];
            w.write(i, 0, &low)?;
            w.write(i, 1, &high)
        },
        _ => return None,
    })
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
