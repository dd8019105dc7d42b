//! The memory of the device, with every access checked.

use crate::Buffer;
use mla_prologue_operator::Access;

/// Memory that a kernel accesses in words.
pub trait Memory {
    /// Loads words.
    ///
    /// # Errors
    /// An access that is not within the memory, not aligned, or not allowed.
    fn load(&self, address: u64, words: &mut [u32]) -> Result<(), String>;

    /// Stores words.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), String>;
}

impl Memory for &mut (dyn Memory + '_) {
    fn load(&self, address: u64, words: &mut [u32]) -> Result<(), String> {
        (**self).load(address, words)
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), String> {
        (**self).store(address, words)
    }
}

/// Buffers at made-up addresses, far apart, so that no index out of one lands in another.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    buffers: Vec<Buffer>,
    /// Which bytes were written.
    written: Vec<Vec<bool>>,
}

/// Addresses between the beginnings of two buffers.
const SPACING: u64 = 1 << 40;

impl Buffers {
    /// Adds a buffer; gives its address.
    pub fn add(&mut self, buffer: Buffer) -> u64 {
        let size = if buffer.access == Access::Read { 0 } else { buffer.bytes.len() };
        self.written.push(vec![false; size]);
        self.buffers.push(buffer);
        self.buffers.len() as u64 * SPACING
    }

    /// The buffers, in the order in which they were added.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.buffers
    }

    /// The buffer of an access to words, and where in it.
    fn find(&self, address: u64, count: usize) -> Result<(&Buffer, usize), String> {
        let index = (address / SPACING).checked_sub(1).map(|index| index as usize);
        let Some(buffer) = index.and_then(|index| self.buffers.get(index)) else {
            return Err(format!("accesses {address:#x}, which is outside of every buffer"));
        };
        let at = address % SPACING;
        if at + 4 * count as u64 > buffer.bytes.len() as u64 {
            let (name, size) = (buffer.name, buffer.bytes.len());
            return Err(format!("accesses {count} words at byte {at} of {name}, which has {size}"));
        }
        // A store is as wide as the code's own vectors, which are aligned to their size.
        let alignment = match buffer.access {
            Access::Read => 4,
            _ => 4 * count as u64,
        };
        if !at.is_multiple_of(alignment) {
            return Err(format!("accesses {count} words at byte {at} of {}", buffer.name));
        }
        Ok((buffer, at as usize))
    }
}

impl Memory for Buffers {
    fn load(&self, address: u64, words: &mut [u32]) -> Result<(), String> {
        let (buffer, at) = self.find(address, words.len())?;
        if buffer.access == Access::Write {
            return Err(format!("reads {}, which holds nothing yet", buffer.name));
        }
        let bytes = buffer.bytes[at..at + 4 * words.len()].chunks_exact(4);
        for (word, bytes) in words.iter_mut().zip(bytes) {
            *word = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        Ok(())
    }

    /// No byte is written twice.
    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), String> {
        let (buffer, at) = self.find(address, words.len())?;
        let (name, range) = (buffer.name, at..at + 4 * words.len());
        if buffer.access == Access::Read {
            return Err(format!("writes {name}"));
        }
        let index = (address / SPACING - 1) as usize;
        let written = &mut self.written[index][range.clone()];
        if written.contains(&true) {
            return Err(format!("writes {name} a second time, at byte {at}"));
        }
        written.fill(true);
        let bytes = self.buffers[index].bytes[range].chunks_exact_mut(4);
        bytes.zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        Ok(())
    }
}
