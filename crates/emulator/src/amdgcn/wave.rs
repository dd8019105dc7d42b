//! A wave: its registers, and which of its lanes are active.

use super::shared::Shared;
use super::{
    operand::{EXEC, Half, Move, Operand, Part, Place, VCC},
    program::{Generation, Instruction, Program},
};
use crate::{Estimate, memory::Memory};
use std::cell::RefCell;

/// A register of every lane; the upper half is not used in waves of 32.
pub type Lanes = [u32; 64];

/// What a register holds before it is written: a NaN, and no index.
const NOTHING: u32 = 0x7FBA_DBAD;

/// Instructions after which a wave is taken to run for ever.
const MOST_STEPS: usize = 1 << 20;

/// Whether a wave goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Running,
    /// It waits for the others of its cube.
    AtBarrier,
    /// It is at its end.
    Ended,
}

/// Memory that the waves of a cube access, one after the other.
#[derive(Clone, Copy)]
pub struct Memories<'a> {
    /// That of the device.
    pub device: &'a RefCell<dyn Memory + 'a>,
    /// That of the cube.
    pub shared: &'a RefCell<Shared>,
}

/// A wave.
pub struct Wave<'a> {
    pub scalars: [u32; 128],
    pub vectors: Vec<Lanes>,
    pub scc: bool,
    pub width: usize,
    /// Its number in its cube.
    pub number: usize,
    pub memory: &'a RefCell<dyn Memory + 'a>,
    pub shared: &'a RefCell<Shared>,
    pub generation: Generation,
    pub estimate: Estimate,
    /// The next instruction.
    next: usize,
    state: State,
    /// Instructions that run at once write when all have read.
    delayed: Option<Vec<(usize, Lanes)>>,
}

impl<'a> Wave<'a> {
    /// A wave of a cube before its first instruction: its first unit, and how many the cube has from there on. Every register holds
    /// nothing.
    pub fn new(program: &Program, memories: Memories<'a>, first: usize, units: usize) -> Self {
        let width = program.descriptor.wave_size();
        let mut wave = Self {
            number: first / width,
            scalars: [NOTHING; 128],
            vectors: vec![[NOTHING; 64]; program.vgprs],
            scc: false,
            width,
            memory: memories.device,
            shared: memories.shared,
            generation: program.generation,
            estimate: program.estimate,
            next: 0,
            state: State::Running,
            delayed: None,
        };
        wave.set_mask(EXEC, u64::MAX >> (64 - units.min(width)));
        wave
    }

    /// Runs to the next barrier, or to the end.
    pub fn run(&mut self, program: &Program) -> Result<State, String> {
        if self.state == State::Ended {
            return Ok(State::Ended);
        }
        self.state = State::Running;
        for _ in 0..MOST_STEPS {
            let instruction = &program.instructions[self.next];
            program.ran[self.next].set(true);
            self.next += 1;
            self.step(instruction).map_err(|why| {
                format!("{:#x}: {}: {why}", instruction.address, instruction.text)
            })?;
            if self.state != State::Running {
                return Ok(self.state);
            }
        }
        Err(format!("no end after {MOST_STEPS} instructions"))
    }

    fn step(&mut self, instruction: &Instruction) -> Result<(), String> {
        let Some(twin) = &instruction.twin else {
            return (instruction.execute)(self, instruction);
        };
        self.delayed = Some(Vec::new());
        (instruction.execute)(self, instruction)?;
        (twin.execute)(self, twin)?;
        for (register, value) in self.delayed.take().unwrap_or_default() {
            self.vectors[register] = value;
        }
        Ok(())
    }

    pub fn jump(&mut self, to: &Instruction) {
        self.next = to.target;
    }

    pub fn end(&mut self) {
        self.state = State::Ended;
    }

    pub fn meet(&mut self) {
        self.state = State::AtBarrier;
    }

    /// A mask of lanes, in one register or two.
    pub fn mask(&self, register: usize) -> u64 {
        let high = if self.width == 64 { self.scalars[register + 1] } else { 0 };
        u64::from(self.scalars[register]) | u64::from(high) << 32
    }

    pub fn set_mask(&mut self, register: usize, mask: u64) {
        self.scalars[register] = mask as u32;
        if self.width == 64 {
            self.scalars[register + 1] = (mask >> 32) as u32;
        }
    }

    /// The mask that an operand names; VCC where none does.
    pub fn mask_of(&self, operand: Option<&Operand>) -> Result<u64, String> {
        match operand.map(|operand| operand.place) {
            None => Ok(self.mask(VCC)),
            Some(Place::Scalar(register)) => Ok(self.mask(register)),
            Some(Place::Integer(value)) => Ok(value as u64),
            Some(other) => Err(format!("{other:?} is no mask")),
        }
    }

    pub fn set_mask_of(&mut self, operand: &Operand, mask: u64) -> Result<(), String> {
        match operand.place {
            Place::Scalar(register) => self.set_mask(register, mask),
            Place::Null => {}
            other => return Err(format!("{other:?} is no mask")),
        }
        Ok(())
    }

    /// The active lanes.
    pub fn active(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask(EXEC);
        (0..self.width).filter(move |lane| mask >> lane & 1 == 1)
    }

    /// Is a lane active?
    pub fn is_active(&self, lane: usize) -> bool {
        self.mask(EXEC) >> lane & 1 == 1
    }

    /// A scalar operand of one word.
    pub fn scalar(&self, operand: &Operand, word: usize) -> Result<u32, String> {
        match operand.place {
            Place::Scalar(register) => Ok(self.scalars[register + word]),
            Place::Integer(value) => Ok((value >> (32 * word)) as u32),
            Place::Float(value) if word == 0 => Ok(value.to_bits()),
            Place::Null => Ok(0),
            other => Err(format!("{other:?} is no scalar")),
        }
    }

    /// A scalar operand of two words.
    pub fn scalar_pair(&self, operand: &Operand) -> Result<u64, String> {
        let [low, high] = [0, 1].map(|word| self.scalar(operand, word));
        Ok(u64::from(low?) | u64::from(high?) << 32)
    }

    pub fn set_scalar(&mut self, operand: &Operand, word: usize, value: u32) -> Result<(), String> {
        match operand.place {
            Place::Scalar(register) => self.scalars[register + word] = value,
            Place::Null => {}
            other => return Err(format!("{other:?} is no scalar register")),
        }
        Ok(())
    }

    /// A word of an operand in every lane, without its modifiers.
    pub fn lanes(&self, operand: &Operand, word: usize) -> Result<Lanes, String> {
        match operand.place {
            Place::Vector(register) => Ok(self.vectors[register + word]),
            _ => Ok([self.scalar(operand, word)?; 64]),
        }
    }

    /// A source in every lane, with its modifiers; 0 where there are fewer sources.
    pub fn source(&self, i: &Instruction, index: usize) -> Result<Lanes, String> {
        let Some(operand) = i.operands.get(i.destinations + index) else {
            return Ok([0; 64]);
        };
        let mut value = self.lanes(operand, 0)?;
        if let (Some(lanes), 0) = (i.modifiers.lanes, index) {
            value = self.moved(&value, lanes, i.modifiers.zero_inactive);
        }
        let part = match operand.half {
            Some(half) => Part { shift: if half == Half::High { 16 } else { 0 }, missing: 16 },
            None => i.modifiers.source.get(index).copied().unwrap_or_default(),
        };
        if part != Part::default() {
            value = value.map(|value| part.take(value));
        }
        if operand.absolute {
            value = value.map(|value| value & 0x7FFF_FFFF);
        }
        if operand.negative {
            value = value.map(|value| value ^ 0x8000_0000);
        }
        Ok(value)
    }

    /// The lane that each takes its source from.
    fn moved(&self, from: &Lanes, lanes: Move, zero_inactive: bool) -> Lanes {
        std::array::from_fn(|lane| {
            let other = moved_from(lanes, lane);
            if self.is_active(other) || !zero_inactive { from[other] } else { 0 }
        })
    }

    /// The active lanes whose source is one as well, or is taken as 0.
    fn writes(&self, i: &Instruction) -> u64 {
        let active = self.mask(EXEC);
        match i.modifiers.lanes {
            Some(lanes) if !i.modifiers.zero_inactive => (0..self.width)
                .filter(|&lane| active >> moved_from(lanes, lane) & 1 == 1)
                .fold(0, |mask, lane| mask | 1 << lane & active),
            _ => active,
        }
    }

    /// Writes a word of the first destination, in active lanes.
    pub fn write(&mut self, i: &Instruction, word: usize, value: &Lanes) -> Result<(), String> {
        let operand = i.operands.first().ok_or("no destination")?;
        let Place::Vector(register) = operand.place else {
            return Err(format!("{:?} is no vector register", operand.place));
        };
        let part = match operand.half {
            Some(half) => Part { shift: if half == Half::High { 16 } else { 0 }, missing: 16 },
            None => i.modifiers.destination,
        };
        let preserve = i.modifiers.preserve || operand.half.is_some();
        let active = self.writes(i);
        let mut result = self.vectors[register + word];
        for lane in 0..self.width {
            if active >> lane & 1 == 1 {
                let rest = if preserve { result[lane] } else { 0 };
                result[lane] = part.put(value[lane], rest);
            }
        }
        match &mut self.delayed {
            Some(writes) => writes.push((register + word, result)),
            None => self.vectors[register + word] = result,
        }
        Ok(())
    }
}

fn moved_from(lanes: Move, lane: usize) -> usize {
    match lanes {
        Move::Quad(of) => lane & !3 | of[lane & 3],
        Move::Rotate(by) => lane & !15 | (lane + 16 - by) & 15,
        Move::Xor(by) => lane ^ by,
        Move::Mirror(size) => lane ^ (size - 1),
    }
}
