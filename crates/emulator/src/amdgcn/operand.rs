//! Operands and modifiers, from LLVM's assembly.

/// An operand. Its meaning as a number depends on the instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    pub place: Place,
    /// Registers of the range.
    pub words: usize,
    /// Which half of a register is meant, where an instruction works on 16 bits.
    pub half: Option<Half>,
    /// The sign is cleared, before it is flipped.
    pub absolute: bool,
    pub negative: bool,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// The first of a range of registers of every lane.
    Vector(usize),
    /// The first of a range of registers of the wave, numbered as the hardware does.
    Scalar(usize),
    /// An integer, of 32 bits or extended to 64.
    Integer(i64),
    /// A number.
    Float(f32),
    /// Nowhere: reads as 0, and forgets what is written.
    Null,
    /// No scalar base address.
    Off,
}

/// A half of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Low,
    High,
}

/// The scalar registers with names of their own, as the hardware numbers them.
pub const VCC: usize = 106;
pub const TTMP: usize = 108;
pub const M0: usize = 125;
pub const EXEC: usize = 126;

/// Reads an operand.
pub fn operand(text: &str) -> Result<Operand, String> {
    if let Some(rest) = text.strip_prefix("neg(").and_then(|rest| rest.strip_suffix(')')) {
        return Ok(Operand { negative: true, ..operand(rest)? });
    }
    let bars = |text: &str| text.strip_prefix('|')?.strip_suffix('|').map(str::to_owned);
    if let Some(rest) = bars(text) {
        return Ok(Operand { absolute: true, ..operand(&rest)? });
    }
    if let Some(rest) = text.strip_prefix('-').filter(|rest| rest.starts_with(['v', 's', '|'])) {
        return Ok(Operand { negative: true, ..operand(rest)? });
    }
    let (name, half) = match text.rsplit_once('.') {
        Some((name, "l")) => (name, Some(Half::Low)),
        Some((name, "h")) => (name, Some(Half::High)),
        _ => (text, None),
    };
    let place = place(name).ok_or_else(|| format!("unknown operand {text}"))?;
    // `v[7:8]` is two.
    let range =
        name.split_once('[').and_then(|(_, range)| range.strip_suffix(']')?.split_once(':'));
    let words = match range.map(|(first, last)| (first.parse::<usize>(), last.parse::<usize>())) {
        Some((Ok(first), Ok(last))) if last >= first => last - first + 1,
        _ => 1,
    };
    Ok(Operand { place, words, half, absolute: false, negative: false })
}

fn place(name: &str) -> Option<Place> {
    // `v7`, or the first of `v[7:8]`.
    let register = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let range = rest.strip_prefix('[').and_then(|rest| rest.split(':').next());
        range.unwrap_or(rest).parse::<usize>().ok()
    };
    match name {
        "off" => return Some(Place::Off),
        "null" => return Some(Place::Null),
        "vcc" | "vcc_lo" => return Some(Place::Scalar(VCC)),
        "vcc_hi" => return Some(Place::Scalar(VCC + 1)),
        "exec" | "exec_lo" => return Some(Place::Scalar(EXEC)),
        "exec_hi" => return Some(Place::Scalar(EXEC + 1)),
        "m0" => return Some(Place::Scalar(M0)),
        _ => {}
    }
    let hexadecimal = || i64::from_str_radix(name.strip_prefix("0x")?, 16).ok();
    register("v")
        .map(Place::Vector)
        .or_else(|| register("s").map(Place::Scalar))
        .or_else(|| register("ttmp").map(|index| Place::Scalar(TTMP + index)))
        .or_else(|| name.parse().ok().or_else(hexadecimal).map(Place::Integer))
        .or_else(|| name.parse().ok().map(Place::Float))
}

/// Where a data-parallel instruction takes its first source from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Within four lanes, from the one that is named for each.
    Quad([usize; 4]),
    /// Within 16 lanes, from so many lanes below, around.
    Rotate(usize),
    /// Within 16 lanes, from the lane at this distance.
    Xor(usize),
    /// From the other lane of a mirrored row, or half of a row.
    Mirror(usize),
}

/// What is said after the operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// Bytes added to an address.
    pub offset: i64,
    /// Of two accesses to the memory of a cube: what is added to the address of each, in accesses.
    pub offsets: [u32; 2],
    /// The mask of a swizzle that swaps lanes.
    pub swap: Option<usize>,
    /// The first source is of another lane.
    pub lanes: Option<Move>,
    /// Where that lane is not active, 0 is taken; else nothing is written.
    pub zero_inactive: bool,
    /// Which half of each source, for the low result; and for the high one, where that is not as usual.
    pub select: [bool; 3],
    pub select_high: Option<[bool; 3]>,
    /// Sources whose low, or high half is negated.
    pub negate_low: [bool; 3],
    pub negate_high: [bool; 3],
    /// Bits of the sources, and of the destination.
    pub source: [Part; 2],
    pub destination: Part,
    /// The destination's other bits stay.
    pub preserve: bool,
}

/// Part of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first bit.
    pub shift: u32,
    /// How many there are less than 32.
    pub missing: u32,
}

impl Part {
    /// Its bits of a register.
    pub fn take(self, value: u32) -> u32 {
        value >> self.shift & (u32::MAX >> self.missing)
    }

    /// A register with these bits.
    pub fn put(self, value: u32, rest: u32) -> u32 {
        let mask = u32::MAX >> self.missing << self.shift;
        value << self.shift & mask | rest & !mask
    }
}

/// Reads the modifiers. Those that only say how memory is cached mean nothing here.
pub fn modifiers<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Modifiers, String> {
    let mut modifiers = Modifiers::default();
    for text in texts {
        read(text, &mut modifiers).ok_or_else(|| format!("unknown modifier {text}"))?;
    }
    Ok(modifiers)
}

fn read(text: &str, to: &mut Modifiers) -> Option<()> {
    let (key, value) = text.split_once(':').unwrap_or((text, ""));
    match key {
        "offset" => match value.strip_prefix("swizzle(SWAP,") {
            Some(mask) => to.swap = Some(mask.strip_suffix(')')?.parse().ok()?),
            None => to.offset = value.parse().ok()?,
        },
        "offset0" => to.offsets[0] = value.parse().ok()?,
        "offset1" => to.offsets[1] = value.parse().ok()?,
        "quad_perm" => {
            let lanes = list(value)?;
            to.lanes = Some(Move::Quad(lanes.try_into().ok()?));
        }
        "row_ror" => to.lanes = Some(Move::Rotate(value.parse().ok()?)),
        "row_xmask" => to.lanes = Some(Move::Xor(value.parse().ok()?)),
        "row_mirror" => to.lanes = Some(Move::Mirror(16)),
        "row_half_mirror" => to.lanes = Some(Move::Mirror(8)),
        // All lanes take part.
        "row_mask" | "bank_mask" if value == "0xf" => {}
        "bound_ctrl" if value == "1" => to.zero_inactive = true,
        "op_sel" => to.select = flags(value)?,
        "op_sel_hi" => to.select_high = Some(flags(value)?),
        "neg_lo" => to.negate_low = flags(value)?,
        "neg_hi" => to.negate_high = flags(value)?,
        "src0_sel" => to.source[0] = part(value)?,
        "src1_sel" => to.source[1] = part(value)?,
        "dst_sel" => to.destination = part(value)?,
        "dst_unused" => match value {
            "UNUSED_PAD" => {}
            "UNUSED_PRESERVE" => to.preserve = true,
            _ => return None,
        },
        "nt" | "sc0" | "sc1" | "glc" | "slc" | "dlc" | "th" | "scope" => {}
        _ => return None,
    }
    Some(())
}

fn list(text: &str) -> Option<Vec<usize>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.split(',').map(|value| value.parse().ok()).collect()
}

fn flags(text: &str) -> Option<[bool; 3]> {
    let values = list(text)?;
    let mut flags = [false; 3];
    (values.len() <= 3).then_some(())?;
    flags.iter_mut().zip(values).for_each(|(flag, value)| *flag = value == 1);
    Some(flags)
}

fn part(name: &str) -> Option<Part> {
    let (unit, index) = match name.split_once('_') {
        Some((unit, index)) => (unit, index.parse::<u32>().ok()?),
        None => (name, 0),
    };
    let bits = match unit {
        "DWORD" => 32,
        "WORD" => 16,
        "BYTE" => 8,
        _ => return None,
    };
    Some(Part { shift: index * bits, missing: 32 - bits })
}
