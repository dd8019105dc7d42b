//! An executor of AMD's machine code: the code object that the driver would load, instruction by
//! instruction, for a wave of 32 or 64 lanes.
//!
//! What it does not know stops it, with the name. It does not model time: wait counts, caches and the order
//! of memory accesses mean nothing to it.

mod division;
mod operand;
mod program;
mod scalar;
mod shared;
mod transfer;
mod vector;
mod wave;
mod wide;

pub use program::Program;

use crate::{
    Buffer, Estimate, Executable,
    memory::{Buffers, Memory},
};
use mla_prologue_codegen::UserRegisters;
use mla_prologue_kernel::Dispatch;
use mla_prologue_operator::Access;
use operand::TTMP;
use program::Generation;
use shared::Shared;
use std::cell::{Cell, RefCell};
use wave::{Memories, State, Wave};

impl Executable for Program {
    /// On buffers of which no index reaches another.
    fn run(&mut self, dispatch: &Dispatch, buffers: &mut [Buffer]) -> Result<(), String> {
        let mut memory = Buffers::default();
        let mut addresses: Vec<u64> =
            buffers.iter().map(|buffer| memory.add(buffer.clone())).collect();
        let mut add = |name, bytes| memory.add(Buffer { name, bytes, access: Access::Read });
        addresses.push(add("the scalars", dispatch.info.clone()));
        let [x, y] = dispatch.cube;
        let grid = Grid { cubes: [dispatch.cubes, 1, 1], cube: [x, y, 1] };
        let arguments = addresses.into_iter().flat_map(u64::to_le_bytes).collect();
        let arguments = add("the arguments", arguments);
        let packet = add("the dispatch packet", grid.packet());
        self.launch(grid, self.shared, [arguments, packet], &mut memory)?;
        for (buffer, after) in buffers.iter_mut().zip(memory.into_buffers()) {
            buffer.bytes = after.bytes;
        }
        Ok(())
    }

    fn set_estimate(&mut self, estimate: Estimate) {
        self.estimate = estimate;
    }

    fn coverage(&self) -> Vec<bool> {
        self.ran.iter().map(Cell::get).collect()
    }
}

/// The cubes of a launch, and the units of a cube.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub cubes: [u32; 3],
    pub cube: [u32; 3],
}

impl Grid {
    /// The parts of a dispatch packet that a kernel may read: the units of the whole grid.
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; 64];
        for axis in 0..3 {
            let (at, units) = (12 + 4 * axis, self.cubes[axis] * self.cube[axis]);
            packet[at..at + 4].copy_from_slice(&units.to_le_bytes());
        }
        packet
    }
}

impl Program {
    /// Runs every cube of a launch, one after the other, given the bytes that a cube shares, and where the arguments and the dispatch
    /// packet are.
    pub fn launch(
        &self,
        grid: Grid,
        shared: usize,
        [arguments, packet]: [u64; 2],
        memory: &mut dyn Memory,
    ) -> Result<(), String> {
        let descriptor = &self.descriptor;
        let modes = [descriptor.keeps_subnormals(), descriptor.rounds_to_nearest()];
        if modes.as_flattened().contains(&false) {
            return Err(
                "numbers are not rounded to nearest even, or subnormal ones are lost".into()
            );
        }
        let start = Start { arguments, packet };
        let memory = RefCell::new(memory);
        let [x, y, z] = grid.cubes;
        for index in 0..x * y * z {
            let cube = [index % x, index / x % y, index / (x * y)];
            let shared = RefCell::new(Shared::new(shared));
            let memories = Memories { device: &memory, shared: &shared };
            self.run_cube(&start, grid, cube, memories)
                .map_err(|why| format!("cube {cube:?}, {why}"))?;
        }
        Ok(())
    }

    /// Runs the waves of a cube in turns, each to the next barrier.
    fn run_cube(
        &self,
        start: &Start,
        grid: Grid,
        cube: [u32; 3],
        memories: Memories,
    ) -> Result<(), String> {
        let units = grid.cube.iter().product::<u32>() as usize;
        let firsts = (0..units).step_by(self.descriptor.wave_size());
        let mut waves = Vec::new();
        for first in firsts {
            let mut wave = Wave::new(self, memories, first, units - first);
            start.set_up(&mut wave, self, grid, cube, first)?;
            waves.push(wave);
        }
        loop {
            let mut waiting = false;
            for wave in &mut waves {
                let state = wave.run(self);
                let state = state.map_err(|why| format!("wave {}: {why}", wave.number))?;
                waiting |= state == State::AtBarrier;
            }
            if !waiting {
                return Ok(());
            }
            memories.shared.borrow_mut().pass_barrier();
        }
    }
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
        grid: Grid,
        cube: [u32; 3],
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
            wave.scalars[TTMP + 9] = cube[0];
            wave.scalars[TTMP + 7] = cube[1] | cube[2] << 16;
        } else {
            let given = descriptor.workgroup_ids().into_iter().zip(cube);
            let ids = given.filter(|(given, _)| *given).map(|(_, id)| id);
            let at = descriptor.user_register_count();
            wave.scalars[at..].iter_mut().zip(ids).for_each(|(register, id)| *register = id);
        }
        // Ten bits for each axis.
        let [x, y, _] = grid.cube;
        for (lane, register) in wave.vectors[0].iter_mut().enumerate() {
            let unit = (first + lane) as u32;
            *register = (unit % x) | ((unit / x % y) << 10) | ((unit / (x * y)) << 20);
        }
        Ok(())
    }
}
