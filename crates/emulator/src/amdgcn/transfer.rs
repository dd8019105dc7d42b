//! Loads and stores.

use super::{
    operand::{Operand, Place},
    program::{Execute, Instruction},
    wave::{Lanes, Wave},
};

/// What a load or store does.
pub fn find(name: &str) -> Option<Execute> {
    let (kind, width) = name.rsplit_once('_')?;
    Some(match (kind, words(width)?) {
        ("s_load", 1) => |w, i| load_scalars::<1>(w, i),
        ("s_load", 2) => |w, i| load_scalars::<2>(w, i),
        ("s_load", 3) => |w, i| load_scalars::<3>(w, i),
        ("s_load", 4) => |w, i| load_scalars::<4>(w, i),
        ("s_load", 8) => |w, i| load_scalars::<8>(w, i),
        ("s_load", 16) => |w, i| load_scalars::<16>(w, i),
        ("global_load", 1) => |w, i| load::<1>(w, i),
        ("global_load", 2) => |w, i| load::<2>(w, i),
        ("global_load", 4) => |w, i| load::<4>(w, i),
        ("global_store", 1) => |w, i| store::<1>(w, i),
        ("global_store", 2) => |w, i| store::<2>(w, i),
        ("global_store", 4) => |w, i| store::<4>(w, i),
        ("ds_read2" | "ds_load_2addr", 1) => |w, i| load_two::<1>(w, i),
        ("ds_read2" | "ds_load_2addr", 2) => |w, i| load_two::<2>(w, i),
        ("ds_write2" | "ds_store_2addr", 1) => |w, i| store_two::<1>(w, i),
        ("ds_write2" | "ds_store_2addr", 2) => |w, i| store_two::<2>(w, i),
        ("ds_read" | "ds_load", 1) => |w, i| load_shared::<1>(w, i),
        ("ds_read" | "ds_load", 2) => |w, i| load_shared::<2>(w, i),
        ("ds_read" | "ds_load", 3) => |w, i| load_shared::<3>(w, i),
        ("ds_read" | "ds_load", 4) => |w, i| load_shared::<4>(w, i),
        ("ds_write" | "ds_store", 1) => |w, i| store_shared::<1>(w, i),
        ("ds_write" | "ds_store", 2) => |w, i| store_shared::<2>(w, i),
        ("ds_write" | "ds_store", 3) => |w, i| store_shared::<3>(w, i),
        ("ds_write" | "ds_store", 4) => |w, i| store_shared::<4>(w, i),
        _ => return None,
    })
}

/// Words of an access: CDNA counts words of 32 bits, RDNA bits.
fn words(width: &str) -> Option<usize> {
    match width.strip_prefix("dword") {
        Some("") => Some(1),
        Some(count) => count.strip_prefix('x')?.parse().ok(),
        None => width.strip_prefix('b')?.parse::<usize>().ok().map(|bits| bits / 32),
    }
}

fn load_scalars<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let offset = i.operands.get(2).map_or(Ok(0), |offset| w.scalar(offset, 0))?;
    let base = w.scalar_pair(&i.operands[1])?;
    let address = base.wrapping_add(u64::from(offset)).wrapping_add_signed(i.modifiers.offset);
    let mut loaded = [0; N];
    w.memory.borrow().load(address, &mut loaded)?;
    loaded.iter().enumerate().try_for_each(|(n, &word)| w.set_scalar(&i.operands[0], n, word))
}

fn load<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let addresses = Addresses::of(w, i, &i.operands[1], i.operands.get(2))?;
    let mut loaded = [[0; 64]; N];
    for lane in w.active() {
        let mut words = [0; N];
        let address = addresses.of_lane(lane);
        w.memory.borrow().load(address, &mut words).map_err(|why| format!("lane {lane} {why}"))?;
        loaded.iter_mut().zip(words).for_each(|(register, word)| register[lane] = word);
    }
    loaded.iter().enumerate().try_for_each(|(n, register)| w.write(i, n, register))
}

fn store<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let addresses = Addresses::of(w, i, &i.operands[0], i.operands.get(2))?;
    let mut registers = [[0; 64]; N];
    for (n, register) in registers.iter_mut().enumerate() {
        *register = w.lanes(&i.operands[1], n)?;
    }
    for lane in w.active() {
        let words = registers.map(|register| register[lane]);
        w.memory
            .borrow_mut()
            .store(addresses.of_lane(lane), &words)
            .map_err(|why| format!("lane {lane} {why}"))?;
    }
    Ok(())
}

/// Are these two accesses to the memory of a cube?
pub fn is_double(name: &str) -> bool {
    name.starts_with("ds_") && (name.contains("2addr") || name.contains("2_"))
}

fn load_shared<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    load_words::<N>(w, i, 0, i.modifiers.offset as u32)
}

fn store_shared<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    store_words::<N>(w, i, 1, i.modifiers.offset as u32)
}

fn load_two<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let [first, second] = i.modifiers.offsets.map(|offset| offset * 4 * N as u32);
    // The address may be one of the registers that are written.
    let at = w.lanes(&i.operands[1], 0)?;
    load_words_at::<N>(w, i, 0, &at, first)?;
    load_words_at::<N>(w, i, N, &at, second)
}

fn store_two<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let [first, second] = i.modifiers.offsets.map(|offset| offset * 4 * N as u32);
    store_words::<N>(w, i, 1, first)?;
    store_words::<N>(w, i, 2, second)
}

fn load_words<const N: usize>(
    w: &mut Wave,
    i: &Instruction,
    to: usize,
    offset: u32,
) -> Result<(), String> {
    let at = w.lanes(&i.operands[1], 0)?;
    load_words_at::<N>(w, i, to, &at, offset)
}

/// Loads words of the cube's memory into registers from `to` on. Addresses have 32 bits.
fn load_words_at<const N: usize>(
    w: &mut Wave,
    i: &Instruction,
    to: usize,
    at: &Lanes,
    offset: u32,
) -> Result<(), String> {
    let mut loaded = [[0; 64]; N];
    for lane in w.active() {
        let mut words = [0; N];
        let address = u64::from(at[lane].wrapping_add(offset));
        let found = w.shared.borrow_mut().load(w.number, address, &mut words);
        found.map_err(|why| format!("lane {lane} {why}"))?;
        loaded.iter_mut().zip(words).for_each(|(register, word)| register[lane] = word);
    }
    loaded.iter().enumerate().try_for_each(|(n, register)| w.write(i, to + n, register))
}

/// Stores the words of an operand.
fn store_words<const N: usize>(
    w: &mut Wave,
    i: &Instruction,
    operand: usize,
    offset: u32,
) -> Result<(), String> {
    let at = w.lanes(&i.operands[0], 0)?;
    let mut registers = [[0; 64]; N];
    for (n, register) in registers.iter_mut().enumerate() {
        *register = w.lanes(&i.operands[operand], n)?;
    }
    for lane in w.active() {
        let words = registers.map(|register| register[lane]);
        let address = u64::from(at[lane].wrapping_add(offset));
        let stored = w.shared.borrow_mut().store(w.number, address, &words);
        stored.map_err(|why| format!("lane {lane} {why}"))?;
    }
    Ok(())
}

/// Where each lane accesses memory.
struct Addresses {
    low: Lanes,
    high: Lanes,
    base: u64,
}

impl Addresses {
    /// From a pair of registers of each lane; or from one, and a base of the wave.
    fn of(
        w: &Wave,
        i: &Instruction,
        lanes: &Operand,
        base: Option<&Operand>,
    ) -> Result<Self, String> {
        let base = base.filter(|base| base.place != Place::Off);
        let low = w.lanes(lanes, 0)?;
        let high = if base.is_some() { [0; 64] } else { w.lanes(lanes, 1)? };
        let base = base.map_or(Ok(0), |base| w.scalar_pair(base))?;
        Ok(Self { low, high, base: base.wrapping_add_signed(i.modifiers.offset) })
    }

    fn of_lane(&self, lane: usize) -> u64 {
        let address = u64::from(self.low[lane]) | u64::from(self.high[lane]) << 32;
        address.wrapping_add(self.base)
    }
}
