//! The memory of the device: buffers at made-up addresses, with every access checked.

/// A buffer, and what a kernel may do with it.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// What to call it in an error.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// May it be read, and written?
    pub access: Access,
}

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Write each byte of it, once.
    Write,
    /// Read it, and write each byte once.
    ReadWrite,
}

/// Buffers far apart, so that no index out of one lands in another.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
    /// Which bytes were written.
    written: Vec<Vec<bool>>,
}

/// Addresses between the beginnings of two buffers.
const SPACING: u64 = 1 << 40;

impl Memory {
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

    /// Loads words.
    ///
    /// # Errors
    /// An access that is not within a buffer, not aligned, or not allowed.
    pub fn load<const N: usize>(&self, address: u64, count: usize) -> Result<[u32; N], String> {
        let (buffer, at) = self.find(address, count)?;
        if buffer.access == Access::Write {
            return Err(format!("reads {}, which holds nothing yet", buffer.name));
        }
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(buffer.bytes[at..at + 4 * count].chunks_exact(4))
        {
            *word = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        Ok(words)
    }

    /// Stores words.
    ///
    /// # Errors
    /// An access that is not within a buffer, not aligned, not allowed, or to a byte that was written before.
    pub fn store(&mut self, address: u64, words: &[u32]) -> Result<(), String> {
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

    /// The buffer of an access to words, and where in it.
    fn find(&self, address: u64, count: usize) -> Result<(&Buffer, usize), String> {
        let index = (address / SPACING).checked_sub(1).map(|index| index as usize);
        let Some(buffer) = index.and_then(|index| self.buffers.get(index)) else {
            return Err(format!("accesses {address:#x}, which is no buffer's"));
        };
        let at = address % SPACING;
        if at + 4 * count as u64 > buffer.bytes.len() as u64 {
            let (name, size) = (buffer.name, buffer.bytes.len());
            return Err(format!("accesses {count} words at byte {at} of {name}, which has {size}"));
        }
        // The code's own widths: vectors are aligned to their size.
        let alignment = if count.is_power_of_two() { 4 * count.min(4) as u64 } else { 4 };
        if buffer.access != Access::Read && !at.is_multiple_of(alignment) {
            return Err(format!("accesses {count} words at byte {at} of {}", buffer.name));
        }
        Ok((buffer, at as usize))
    }
}
