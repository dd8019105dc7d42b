//! A kernel's instructions, ready to run.

use super::transfer::is_double;
use super::{
    operand::{Modifiers, Operand, Place, modifiers, operand},
    scalar, transfer, vector,
    wave::Wave,
    wide,
};
use crate::Estimate;
use mla_prologue_codegen::{CodeObject, Descriptor, Instruction as Text};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// What an instruction does to its wave.
pub type Execute = fn(&mut Wave, &Instruction) -> Result<(), String>;

/// An instruction, or two that run at once.
pub struct Instruction {
    /// LLVM's assembly.
    pub text: String,
    /// Its address.
    pub address: u64,
    /// Destinations first.
    pub operands: Vec<Operand>,
    /// How many these are.
    pub destinations: usize,
    pub modifiers: Modifiers,
    pub execute: Execute,
    /// The instruction to go on with if it branches.
    pub target: usize,
    /// What runs at the same time.
    pub twin: Option<Box<Instruction>>,
}

/// A kernel.
pub struct Program {
    pub instructions: Vec<Instruction>,
    pub descriptor: Descriptor,
    pub generation: Generation,
    pub estimate: Estimate,
    /// Registers of a lane.
    pub vgprs: usize,
    /// Bytes of shared memory that a launch gives a cube.
    pub shared: usize,
    /// Which instructions ran.
    pub ran: Vec<Cell<bool>>,
}

/// What differs between architectures, besides their instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// CDNA.
    Gfx9,
    /// RDNA 3.
    Gfx11,
    /// RDNA 4.
    Gfx12,
}

impl Program {
    /// Reads the kernel of a code object.
    ///
    /// # Errors
    /// Code that is not understood: the instruction, operand or modifier that is not known.
    pub fn load(binary: &[u8], shared: usize, arch: &str) -> Result<Self, String> {
        let generation = match arch {
            "gfx90a" | "gfx942" => Generation::Gfx9,
            _ if arch.starts_with("gfx11") => Generation::Gfx11,
            _ if arch.starts_with("gfx12") => Generation::Gfx12,
            _ => return Err(format!("{arch} is not known")),
        };
        let object = CodeObject::parse(binary, arch)?;
        let addresses: Vec<u64> = object.instructions.iter().map(|text| text.address).collect();
        let mut instructions = Vec::new();
        for text in &object.instructions {
            let known = instruction(text, &addresses).and_then(|known| {
                within(&known, object.vgprs as usize)?;
                Ok(known)
            });
            instructions.push(known.map_err(|why| format!("{why}, in {}", text.text))?);
        }
        Ok(Self {
            instructions,
            descriptor: object.descriptor,
            generation,
            estimate: Estimate::default(),
            vgprs: object.vgprs as usize,
            shared,
            ran: vec![Cell::new(false); object.instructions.len()],
        })
    }
}

fn instruction(text: &Text, addresses: &[u64]) -> Result<Instruction, String> {
    let mut parts = text.text.split(" :: ").map(|part| single(part, text));
    let mut first = parts.next().ok_or("nothing")??;
    first.twin = parts.next().transpose()?.map(Box::new);
    if let Some(distance) = branch(&text.text) {
        let target = text.address.wrapping_add_signed(4 + 4 * distance?);
        let index = addresses.binary_search(&target);
        first.target =
            index.map_err(|_| format!("a branch to {target:#x}, into an instruction"))?;
    }
    Ok(first)
}

/// Checks that a lane has the registers that an instruction names.
fn within(instruction: &Instruction, vgprs: usize) -> Result<(), String> {
    let outside = |operand: &&Operand| matches!(operand.place, Place::Vector(at) if at + operand.words > vgprs);
    match instruction.operands.iter().find(outside) {
        Some(operand) => Err(format!("{:?} of {vgprs} registers", operand.place)),
        None => instruction.twin.as_ref().map_or(Ok(()), |twin| within(twin, vgprs)),
    }
}

/// Words that a branch goes, from the next instruction; they are 16 bits with a sign.
fn branch(text: &str) -> Option<Result<i64, String>> {
    let (name, distance) = text.split_once(' ')?;
    let branches = name.starts_with("s_cbranch") || name == "s_branch";
    branches.then(|| match distance.parse::<i64>() {
        Ok(distance @ -0x8000..=0xFFFF) => Ok(i64::from(distance as i16)),
        _ => Err(format!("unknown distance {distance}")),
    })
}

/// Reads one instruction. `v_dual_` marks one of two; endings say how it is encoded.
fn single(part: &str, whole: &Text) -> Result<Instruction, String> {
    let (full, rest) = part.split_once(' ').unwrap_or((part, ""));
    let name = full.replacen("v_dual_", "v_", 1);
    let name = ["_e32", "_e64", "_dpp", "_sdwa"]
        .into_iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    let found = [
        (Kind::Scalar, scalar::find(name)),
        (Kind::Vector, vector::find(name)),
        (Kind::Wide, wide::find(name)),
        (Kind::Transfer, transfer::find(name)),
    ];
    let found = found.into_iter().find_map(|(kind, execute)| Some((kind, execute?)));
    let (kind, execute) = found.ok_or_else(|| format!("unknown instruction {full}"))?;
    let has_operands = !scalar::is_idle(name) && branch(part).is_none();
    let (operands, words) = if has_operands { split(rest) } else { (Vec::new(), Vec::new()) };
    let mut operands = operands.into_iter().map(operand).collect::<Result<Vec<_>, _>>()?;
    if matches!(
        name,
        "v_fmac_f32"
            | "s_fmac_f32"
            | "s_mulk_i32"
            | "s_addk_i32"
            | "s_addk_co_i32"
            | "s_bitset0_b32"
            | "s_bitset1_b32"
    ) {
        // Its destination is a source as well.
        operands.extend(operands.first().copied());
    }
    if has_operands
        && !arity(name, kind).contains(&(operands.len().wrapping_sub(destinations(name))))
    {
        return Err(format!("{} operands", operands.len()));
    }
    let modifiers = modifiers(words.into_iter())?;
    kind.understands(name, &operands, modifiers)?;
    Ok(Instruction {
        text: whole.text.clone(),
        address: whole.address,
        operands,
        destinations: destinations(name),
        modifiers,
        execute,
        target: 0,
        twin: None,
    })
}

/// Where an instruction is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Vector,
    Wide,
    Transfer,
}

impl Kind {
    /// Checks that what is said of an instruction's operands means something to what executes it.
    fn understands(
        self,
        name: &str,
        operands: &[Operand],
        modifiers: Modifiers,
    ) -> Result<(), String> {
        let mut rest = modifiers;
        let none = Modifiers::default();
        match self {
            Self::Scalar => {}
            Self::Transfer if is_double(name) => rest.offsets = none.offsets,
            Self::Transfer => rest.offset = none.offset,
            Self::Wide if name.starts_with("v_pk_") || name.starts_with("v_fma_mix") => {
                (rest.select, rest.select_high) = (none.select, none.select_high);
                if name.ends_with("_f32") && name.starts_with("v_pk_") {
                    (rest.negate_low, rest.negate_high) = (none.negate_low, none.negate_high);
                }
            }
            Self::Wide => {}
            Self::Vector if name == "ds_swizzle_b32" => rest.swap = none.swap,
            Self::Vector if name.starts_with("ds_") || name.starts_with("v_permlane") => {}
            Self::Vector => {
                (rest.lanes, rest.zero_inactive) = (none.lanes, none.zero_inactive);
                (rest.source, rest.destination, rest.preserve) =
                    (none.source, none.destination, none.preserve);
            }
        }
        if rest != none {
            return Err(format!("modifiers that mean nothing here: {rest:?}"));
        }
        // The sign is bit 31, and a constant a number, where the sources have 32 bits.
        let mixed = name.starts_with("v_fma_mix");
        let narrow = name.contains("16") && !name.starts_with("v_permlane") && !mixed;
        let signs = mixed
            || self == Self::Vector
                && !narrow
                && (name.ends_with("_f32") || matches!(name, "v_cndmask_b32" | "v_cvt_u32_f32"));
        let halves = modifiers.select_high.unwrap_or_default();
        for (index, operand) in operands.iter().enumerate() {
            let constant = matches!(operand.place, Place::Integer(_) | Place::Float(_));
            let half = mixed && index > 0 && halves.get(index - 1) == Some(&true);
            if (operand.absolute || operand.negative) && !signs {
                return Err(format!("a sign that means nothing here: {operand:?}"));
            }
            if constant && (half || narrow && matches!(operand.place, Place::Float(_))) {
                return Err(format!("a constant of 16 bits: {operand:?}"));
            }
        }
        Ok(())
    }
}

/// How many sources an instruction has.
fn arity(name: &str, kind: Kind) -> RangeInclusive<usize> {
    match name {
        // The mask may be VCC, which is not named.
        "v_cndmask_b32" => 2..=3,
        "v_addc_co_u32" | "v_add_co_ci_u32" => 3..=3,
        // An address of two registers, or of one and a base; the base may be `off`.
        _ if name.starts_with("global_store") => 3..=3,
        _ if name.starts_with("ds_read") || name.starts_with("ds_load") => 1..=1,
        _ if kind == Kind::Transfer && is_double(name) => 3..=3,
        _ if kind == Kind::Transfer => 2..=2,
        "ds_swizzle_b32"
        | "s_brev_b32"
        | "s_not_b32"
        | "s_not_b64"
        | "v_s_rcp_f32"
        | "v_readfirstlane_b32" => 1..=1,
        "v_bfrev_b32" | "v_rcp_f32" | "v_rcp_iflag_f32" | "v_sqrt_f32" => 1..=1,
        "v_permlanex16_b32" | "v_perm_b32" | "v_bfe_u32" | "v_mad_u64_u32" | "v_mad_co_u64_u32" => {
            3..=3
        }
        "s_fmac_f32" | "s_fmaak_f32" | "s_fmamk_f32" => 3..=3,
        "v_add_lshl_u32" | "v_fmac_f32" | "v_fmaak_f32" | "v_fmamk_f32" | "v_mad_u32_u24" => 3..=3,

        _ if name.contains("saveexec") => 1..=1,
        _ if name.starts_with("v_pk_mov") => 2..=2,
        _ if ["s_mov", "v_mov", "s_cvt", "v_cvt"].iter().any(|start| name.starts_with(start)) => {
            1..=1
        }
        _ if ["v_fma_", "v_pk_fma", "v_div_", "v_lshl_", "v_and_or"]
            .iter()
            .any(|start| name.starts_with(start)) =>
        {
            3..=3
        }
        _ if name.starts_with("v_") && name.contains("3_") => 3..=3,
        _ => 2..=2,
    }
}

/// Operands of an instruction that it writes.
fn destinations(name: &str) -> usize {
    match name {
        _ if ["v_cmpx", "s_cmp", "s_bitcmp"].iter().any(|start| name.starts_with(start)) => 0,
        _ if name.starts_with("global_store") => 0,
        _ if name.starts_with("ds_write") || name.starts_with("ds_store") => 0,
        "v_add_co_u32" | "v_addc_co_u32" | "v_add_co_ci_u32" | "v_div_scale_f32"
        | "v_mad_u64_u32" | "v_mad_co_u64_u32" => 2,
        _ => 1,
    }
}

/// Operands, which commas part, and the modifiers after the last one.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let mut depth = 0;
    let pieces = text.split(|c: char| {
        depth += i32::from(matches!(c, '[' | '(')) - i32::from(matches!(c, ']' | ')'));
        c == ',' && depth == 0
    });
    let mut operands: Vec<&str> = pieces.map(str::trim).collect();
    let last = operands.pop().unwrap_or("");
    let mut words = last.split(' ').filter(|word| !word.is_empty());
    operands.extend(words.next());
    (operands, words.collect())
}
