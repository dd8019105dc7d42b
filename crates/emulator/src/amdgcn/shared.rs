//! What the waves of a cube share: its memory, and who accessed it since the last barrier.

use std::fmt;

/// Shared memory of a cube, of which every access is checked: within it, aligned, of what was written, and not of what another wave
/// accesses without a barrier between.
pub struct Shared {
    words: Vec<Word>,
    /// Barriers that were passed.
    barriers: u32,
}

/// A word, and its last accesses.
#[derive(Clone, Copy, Default)]
struct Word {
    value: u32,
    written: Option<Access>,
    read: Option<Access>,
    /// Other waves read it too since the same barrier.
    read_by_more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Access {
    barriers: u32,
    wave: usize,
}

impl Shared {
    /// So many bytes, which hold nothing yet.
    pub fn new(bytes: usize) -> Self {
        Self { words: vec![Word::default(); bytes / 4], barriers: 0 }
    }

    /// Every wave has met the others.
    pub fn pass_barrier(&mut self) {
        self.barriers += 1;
    }

    /// Loads words for a wave.
    pub fn load(&mut self, wave: usize, address: u64, words: &mut [u32]) -> Result<(), String> {
        let me = Access { barriers: self.barriers, wave };
        let found = self.at(address, words.len())?;
        for (n, (to, word)) in words.iter_mut().zip(found).enumerate() {
            let at = Byte(address + 4 * n as u64);
            let writer = word.written.ok_or_else(|| format!("reads {at}, which holds nothing"))?;
            if writer.barriers == me.barriers && writer.wave != wave {
                return Err(format!("reads {at}, which wave {} writes meanwhile", writer.wave));
            }
            let since = word.read.filter(|read| read.barriers == me.barriers);
            word.read_by_more = since.is_some_and(|read| word.read_by_more || read.wave != wave);
            word.read = Some(me);
            *to = word.value;
        }
        Ok(())
    }

    /// Stores words of a wave.
    pub fn store(&mut self, wave: usize, address: u64, words: &[u32]) -> Result<(), String> {
        let me = Access { barriers: self.barriers, wave };
        let found = self.at(address, words.len())?;
        for (n, (from, word)) in words.iter().zip(found).enumerate() {
            let at = Byte(address + 4 * n as u64);
            let meanwhile = |access: &Access| access.barriers == me.barriers;
            let reader = word.read.filter(meanwhile);
            if reader.is_some_and(|read| word.read_by_more || read.wave != wave) {
                return Err(format!("writes {at}, which another wave reads meanwhile"));
            }
            if word.written.filter(meanwhile).is_some_and(|writer| writer.wave != wave) {
                return Err(format!("writes {at}, which another wave writes meanwhile"));
            }
            (word.value, word.written) = (*from, Some(me));
        }
        Ok(())
    }

    fn at(&mut self, address: u64, count: usize) -> Result<&mut [Word], String> {
        let size = 4 * self.words.len();
        let alignment = 4 * count.next_power_of_two() as u64;
        if !address.is_multiple_of(alignment) || address + 4 * count as u64 > size as u64 {
            return Err(format!("accesses {count} words at {}, of {size} bytes", Byte(address)));
        }
        Ok(&mut self.words[address as usize / 4..][..count])
    }
}

struct Byte(u64);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of shared memory", self.0)
    }
}
