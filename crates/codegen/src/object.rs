//! AMD's code objects: their machine code, and what they tell the driver.

use object::{Object, ObjectSection, ObjectSymbol, read::elf::ElfFile64};
use rmpv::Value;
use std::{
    ffi::{CStr, CString, c_char, c_void},
    fmt,
    sync::Once,
};

/// A kernel as a driver loads it, disassembled by LLVM.
#[derive(Clone, Debug)]
pub struct CodeObject {
    /// What the hardware is told.
    pub descriptor: Descriptor,
    /// Registers of a lane.
    pub vgprs: u32,
    /// Registers of a wave.
    pub sgprs: u32,
    /// Registers that did not fit.
    pub spills: u32,
    /// The code, without the padding after it.
    pub instructions: Vec<Instruction>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address, in bytes from the entry.
    pub address: u64,
    /// Bytes that it takes.
    pub size: u64,
    /// LLVM's assembly.
    pub text: String,
}

/// The kernel descriptor, as LLVM's *User Guide for AMDGPU Backend* lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Bytes of memory that a lane is given of its own, for what does not fit into registers.
    pub scratch: u32,
    /// Bytes that the lanes of a cube share.
    pub shared: u32,
    /// Bytes of arguments.
    pub arguments: u32,
    resources: [u32; 2],
    properties: u16,
    preload: u16,
}

/// A value that the hardware puts into scalar registers before the first instruction, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRegisters {
    /// The address of the dispatch packet: two registers.
    DispatchPacket,
    /// The address of the arguments: two registers.
    Arguments,
}

impl Descriptor {
    /// Lanes of a wave.
    pub fn wave_size(&self) -> usize {
        if self.properties & 1 << 10 == 0 { 64 } else { 32 }
    }

    /// Are subnormal numbers of 32 bits kept, and those of 16 and 64 bits?
    pub fn keeps_subnormals(&self) -> [bool; 2] {
        [16, 18].map(|bit| self.resources[0] >> bit & 3 == 3)
    }

    /// Are numbers of 32, and of 16 and 64 bits rounded to nearest even?
    pub fn rounds_to_nearest(&self) -> [bool; 2] {
        [12, 14].map(|bit| self.resources[0] >> bit & 3 == 0)
    }

    /// What the first scalar registers hold.
    ///
    /// # Errors
    /// A value that none of our kernels needs.
    pub fn user_registers(&self) -> Result<Vec<UserRegisters>, String> {
        if self.preload != 0 || self.properties & 0b111_0101 != 0 {
            return Err(format!("unknown user registers: {self:?}"));
        }
        let known = [(1, UserRegisters::DispatchPacket), (3, UserRegisters::Arguments)];
        let wanted = known.into_iter().filter(|(bit, _)| self.properties >> bit & 1 == 1);
        let registers: Vec<_> = wanted.map(|(_, register)| register).collect();
        let count = self.resources[1] >> 1 & 31;
        if count < 2 * registers.len() as u32 {
            return Err(format!("{count} user registers for {registers:?}"));
        }
        Ok(registers)
    }

    /// How many scalar registers the hardware sets before those of [`workgroup_ids`](Self::workgroup_ids).
    pub fn user_register_count(&self) -> usize {
        (self.resources[1] >> 1 & 31) as usize
    }

    /// Which coordinates of the cube the hardware gives.
    pub fn workgroup_ids(&self) -> [bool; 3] {
        [7, 8, 9].map(|bit| self.resources[1] >> bit & 1 == 1)
    }
}

impl CodeObject {
    /// Reads the one kernel of a code object for an architecture.
    ///
    /// # Errors
    /// What is not as the ABI says, or code that LLVM cannot disassemble.
    pub fn parse(binary: &[u8], arch: &str) -> Result<Self, String> {
        let file: ElfFile64 = ElfFile64::parse(binary).map_err(|error| error.to_string())?;
        let symbol = |wanted: &dyn Fn(&str) -> bool| {
            let mut symbols = file.dynamic_symbols();
            symbols.find(|symbol| symbol.name().is_ok_and(wanted))
        };
        let table = symbol(&|name| name.ends_with(".kd")).ok_or("no kernel descriptor")?;
        let data = bytes(&file, table.address(), 64)?;
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes"));
        let half = |at: usize| u16::from_le_bytes(data[at..at + 2].try_into().expect("2 bytes"));
        let descriptor = Descriptor {
            shared: word(0),
            scratch: word(4),
            arguments: word(8),
            resources: [word(48), word(52)],
            properties: half(56),
            preload: half(58),
        };
        let offset = i64::from_le_bytes(data[16..24].try_into().expect("8 bytes"));
        let entry = table.address().wrapping_add_signed(offset);
        let function = symbol(&|name| table.name() == Ok(&format!("{name}.kd")));
        let function = function.filter(|function| function.address() == entry);
        let size = function.ok_or("no function at the entry")?.size();
        let metadata = metadata(&file)?;
        let count = |key: &str| {
            let entry = metadata.iter().find(|(name, _)| name.as_str() == Some(key));
            let value = entry.and_then(|(_, value)| value.as_u64());
            value.map(|value| value as u32).ok_or_else(|| format!("no {key} in the note"))
        };
        Ok(Self {
            descriptor,
            vgprs: count(".vgpr_count")?,
            sgprs: count(".sgpr_count")?,
            spills: count(".vgpr_spill_count")? + count(".sgpr_spill_count")?,
            instructions: disassemble(bytes(&file, entry, size)?, arch)?,
        })
    }

    /// What is done, in LLVM's assembly: of two operations that are one instruction, each.
    pub fn operations(&self) -> impl Iterator<Item = &str> {
        self.instructions.iter().flat_map(|instruction| instruction.text.split(" :: "))
    }

    /// Fused multiply-adds of every kind, besides the one that ends a division. A packed one does two.
    pub fn fused(&self) -> usize {
        let names = self.operations().filter_map(|operation| operation.split(' ').next());
        let count = |name: &str| match name {
            _ if name.starts_with("v_div_fmas") => 0,
            _ if name.starts_with("v_pk_fma") => 2,
            _ => usize::from(
                ["fma", "_mac_", "mad_f", "_dot"].iter().any(|kind| name.contains(kind)),
            ),
        };
        names.map(count).sum()
    }

    /// Instructions whose text has this in it.
    pub fn count(&self, text: &str) -> usize {
        self.instructions.iter().filter(|instruction| instruction.text.contains(text)).count()
    }
}

impl fmt::Display for CodeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptor, vgprs, sgprs, spills, instructions } = self;
        writeln!(
            f,
            "; waves of {}; {vgprs} VGPRs, {sgprs} SGPRs, {spills} spilled, {} bytes of scratch",
            descriptor.wave_size(),
            descriptor.scratch
        )?;
        instructions
            .iter()
            .try_for_each(|Instruction { address, text, .. }| writeln!(f, "{address:6x}: {text}"))
    }
}

/// Bytes of the loaded image.
fn bytes<'a>(file: &ElfFile64<'a>, address: u64, size: u64) -> Result<&'a [u8], String> {
    let found =
        file.sections().find_map(|section| section.data_range(address, size).ok().flatten());
    found.ok_or_else(|| format!("nothing at {address:#x}"))
}

/// What the note of the code object says of its kernel.
fn metadata(file: &ElfFile64) -> Result<Vec<(Value, Value)>, String> {
    let note = file.section_by_name(".note").ok_or("no note")?;
    let data = note.data().map_err(|error| error.to_string())?;
    // A note: the sizes of its name and contents, its type, and both, each padded to 4 bytes.
    let name = data.get(..4).map(|size| u32::from_le_bytes(size.try_into().expect("4 bytes")));
    let start = 12 + name.ok_or("an empty note")?.next_multiple_of(4) as usize;
    let mut contents = data.get(start..).ok_or("a short note")?;
    let root = rmpv::decode::read_value(&mut contents).map_err(|error| error.to_string())?;
    match root["amdhsa.kernels"][0].clone() {
        Value::Map(entries) => Ok(entries),
        _ => Err("no kernel in the note".into()),
    }
}

/// LLVM's assembly of machine code, without the padding after its end.
fn disassemble(code: &[u8], arch: &str) -> Result<Vec<Instruction>, String> {
    use llvm_sys::{disassembler, target};
    unsafe extern "C" {
        /// Declared by llvm-c/Target.h, not by llvm-sys.
        fn LLVMInitializeAMDGPUDisassembler();
    }
    static INITIALIZED: Once = Once::new();
    // SAFETY: LLVM's own order; each may be called again.
    INITIALIZED.call_once(|| unsafe {
        target::LLVMInitializeAMDGPUTargetInfo();
        target::LLVMInitializeAMDGPUTargetMC();
        LLVMInitializeAMDGPUDisassembler();
    });
    let arch = CString::new(arch).map_err(|error| error.to_string())?;
    let triple = c"amdgcn-amd-amdhsa".as_ptr();
    // SAFETY: the strings end in zero; there are no callbacks.
    let context = unsafe {
        let none = std::ptr::null_mut::<c_void>();
        disassembler::LLVMCreateDisasmCPU(triple, arch.as_ptr(), none.cast(), 0, None, None)
    };
    if context.is_null() {
        return Err(format!("LLVM cannot disassemble code for {arch:?}"));
    }
    let mut instructions = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let mut text = [0 as c_char; 512];
        // SAFETY: both buffers are as long as LLVM is told; it reads the code and ends the text in zero.
        let (size, text) = unsafe {
            let (rest, left) = (code[at..].as_ptr().cast_mut(), (code.len() - at) as u64);
            let size = disassembler::LLVMDisasmInstruction(
                context,
                rest,
                left,
                at as u64,
                text.as_mut_ptr(),
                text.len(),
            );
            (size, CStr::from_ptr(text.as_ptr()))
        };
        if size == 0 {
            break;
        }
        let text = text.to_string_lossy().trim().replace('\t', " ");
        instructions.push(Instruction { address: at as u64, size: size as u64, text });
        at += size;
    }
    // SAFETY: made above, and not used again.
    unsafe { disassembler::LLVMDisasmDispose(context) };
    if at < code.len() {
        return Err(format!("LLVM cannot disassemble the code at {at:#x}"));
    }
    // The padding after the code, which may end in a branch.
    let padding = |text: &str| text == "s_code_end" || text.starts_with("s_nop");
    let end = instructions.iter().rposition(|instruction| !padding(&instruction.text));
    instructions.truncate(end.ok_or("there is no code")? + 1);
    Ok(instructions)
}
