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
    w.memory.load(address, &mut loaded)?;
    loaded.iter().enumerate().try_for_each(|(n, &word)| w.set_scalar(&i.operands[0], n, word))
}

fn load<const N: usize>(w: &mut Wave, i: &Instruction) -> Result<(), String> {
    let addresses = Addresses::of(w, i, &i.operands[1], i.operands.get(2))?;
    let mut loaded = [[0; 64]; N];
    for lane in w.active() {
        let mut words = [0; N];
        let address = addresses.of_lane(lane);
        w.memory.load(address, &mut words).map_err(|why| format!("lane {lane} {why}"))?;
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
            .store(addresses.of_lane(lane), &words)
            .map_err(|why| format!("lane {lane} {why}"))?;
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
