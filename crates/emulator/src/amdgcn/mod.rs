//! An executor of AMD's machine code: the code object that the driver would load, instruction by
//! instruction, for a wave of 32 or 64 lanes.
//!
//! What it does not know stops it, with the name. It does not model time: wait counts, caches and the order
//! of memory accesses mean nothing to it.

mod division;
mod operand;
mod program;
mod scalar;
mod transfer;
mod vector;
mod wave;
mod wide;

pub use program::Program;

use crate::{
    Estimate, Kernel,
    memory::{Access, Buffer, Memory},
};
use mla_prologue_kernel::source::{Dispatch, UserRegisters};
use mla_prologue_operator::{Inputs, Outputs};
use operand::TTMP;
use program::Generation;
use std::cell::Cell;
use wave::Wave;

impl Kernel for Program {
    /// Every cube of the launch, one after the other.
    fn run(
        &mut self,
        dispatch: &Dispatch,
        inputs: &Inputs,
        outputs: Outputs,
    ) -> Result<(), String> {
        let after = self.launch(dispatch, crate::buffers(inputs, &outputs))?;
        outputs.q_out.copy_from_slice(&after[6].bytes);
        outputs.kv_cache.copy_from_slice(&after[7].bytes);
        Ok(())
    }

    fn set_estimate(&mut self, estimate: Estimate) {
        self.estimate = estimate;
    }

    fn coverage(&self) -> Vec<bool> {
        self.ran.iter().map(Cell::get).collect()
    }
}

impl Program {
    /// Runs a launch on buffers whose addresses are the kernel's first arguments; the last one is that of the
    /// launch's scalars.
    fn launch(&self, dispatch: &Dispatch, buffers: Vec<Buffer>) -> Result<Vec<Buffer>, String> {
        let descriptor = &self.descriptor;
        let modes = [descriptor.keeps_subnormals(), descriptor.rounds_to_nearest()];
        if modes.as_flattened().contains(&false) {
            return Err(
                "numbers are not rounded to nearest even, or subnormal ones are lost".into()
            );
        }
        let count = buffers.len();
        let mut memory = Memory::default();
        let mut addresses: Vec<u64> =
            buffers.into_iter().map(|buffer| memory.add(buffer)).collect();
        let mut add = |name, bytes| memory.add(Buffer { name, bytes, access: Access::Read });
        addresses.push(add("the scalars", dispatch.info.clone()));
        let arguments: Vec<u8> = addresses.into_iter().flat_map(u64::to_le_bytes).collect();
        if arguments.len() < descriptor.arguments as usize {
            return Err(format!("{} bytes of arguments are wanted", descriptor.arguments));
        }
        let start = Start {
            arguments: add("the arguments", arguments),
            packet: add("the dispatch packet", packet(dispatch)),
        };
        for cube in 0..dispatch.cubes {
            let units = (dispatch.cube[0] * dispatch.cube[1]) as usize;
            for first in (0..units).step_by(descriptor.wave_size()) {
                let mut wave = Wave::new(self, &mut memory);
                start.set_up(&mut wave, self, dispatch, cube, first)?;
                wave.run(self)
                    .map_err(|why| format!("cube {cube}, wave of unit {first}: {why}"))?;
            }
        }
        let mut buffers = memory.into_buffers();
        buffers.truncate(count);
        Ok(buffers)
    }
}

/// The parts of a dispatch packet that a kernel may read: the units of the whole grid.
fn packet(dispatch: &Dispatch) -> Vec<u8> {
    let [x, y] = dispatch.cube;
    let mut packet = vec![0; 64];
    for (at, units) in [(12, dispatch.cubes * x), (16, y), (20, 1)] {
        packet[at..at + 4].copy_from_slice(&units.to_le_bytes());
    }
    packet
}

/// Addresses that a wave starts with.
struct Start {
    arguments: u64,
    packet: u64,
}

impl Start {
    /// Sets the registers as the hardware does before the first instruction.
    fn set_up(
        &self,
        wave: &mut Wave,
        program: &Program,
        dispatch: &Dispatch,
        cube: u32,
        first: usize,
    ) -> Result<(), String> {
        let descriptor = &program.descriptor;
        let mut scalars = wave.scalars.iter_mut();
        for register in descriptor.user_registers()? {
            let address = match register {
                UserRegisters::DispatchPacket => self.packet,
                UserRegisters::Arguments => self.arguments,
            };
            for word in [address as u32, (address >> 32) as u32] {
                *scalars.next().ok_or("too many user registers")? = word;
            }
        }
        if program.generation == Generation::Gfx12 {
            wave.scalars[TTMP + 9] = cube;
            wave.scalars[TTMP + 7] = 0;
        } else {
            let given = descriptor.workgroup_ids().into_iter().zip([cube, 0, 0]);
            let ids = given.filter(|(given, _)| *given).map(|(_, id)| id);
            let at = descriptor.user_register_count();
            wave.scalars[at..].iter_mut().zip(ids).for_each(|(register, id)| *register = id);
        }
        let width = dispatch.cube[0];
        for (lane, register) in wave.vectors[0].iter_mut().enumerate() {
            let unit = (first + lane) as u32;
            *register = (unit % width) | ((unit / width) << 10);
        }
        Ok(())
    }
}
