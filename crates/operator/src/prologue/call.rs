use super::{Problem, Tensors};
use crate::{Index, Invalid, Kind, Result};

/// A problem with its tensors in host memory, as little-endian bytes, checked: every tensor has its size, every
/// position is a row of the rotary table, every slot is in the cache and used once.
///
/// Running it fills `q_out` and updates `kv_cache`.
#[derive(Clone, Debug)]
pub struct Call {
    problem: Problem,
    tensors: Tensors<Vec<u8>>,
}

impl Call {
    /// Checks the tensors of a problem. `q_out` holds whatever is to be overwritten.
    ///
    /// # Errors
    /// The first tensor that has another size, or the first index that is out of range or used twice.
    pub fn new(problem: Problem, tensors: Tensors<Vec<u8>>) -> Result<Self> {
        problem.sizes().check(tensors.as_ref().map(Vec::len), true)?;
        problem.check_indices(&tensors.positions, &tensors.slot_mapping)?;
        Ok(Self { problem, tensors })
    }

    /// The shapes and options.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The tensors.
    pub const fn tensors(&self) -> &Tensors<Vec<u8>> {
        &self.tensors
    }

    /// The problem, the tensors that are read, and those that are written; each is empty in the other.
    pub fn split_mut(&mut self) -> (&Problem, Tensors<&[u8]>, Tensors<&mut [u8]>) {
        let (read, written) = self.tensors.split_mut();
        (&self.problem, read, written)
    }

    /// The tensors, to be used otherwise.
    pub fn into_tensors(self) -> Tensors<Vec<u8>> {
        self.tensors
    }

    /// The slots of the first tokens; negative: not inserted.
    pub fn slots(&self) -> impl Iterator<Item = i64> {
        self.problem.slots(&self.tensors.slot_mapping)
    }
}

impl Problem {
    /// The values of `positions`, one a token.
    pub fn positions(&self, positions: &[u8]) -> impl Iterator<Item = i64> {
        self.spec().position_type.values(positions)
    }

    /// The values of `slot_mapping`, one for each of the first tokens.
    pub fn slots(&self, slot_mapping: &[u8]) -> impl Iterator<Item = i64> {
        self.spec().key.map_or(Index::I64, |key| key.slot_type).values(slot_mapping)
    }

    /// Checks that every position is a row of the rotary table, and that every slot is in the cache and used once.
    ///
    /// # Errors
    /// The first index that is not.
    pub fn check_indices(&self, positions: &[u8], slot_mapping: &[u8]) -> Result<()> {
        let rows = self.spec().table.rows;
        let outside = |&(_, position): &(usize, i64)| {
            usize::try_from(position).map_or(true, |position| position >= rows)
        };
        if let Some((token, position)) = self.positions(positions).enumerate().find(outside) {
            let must = format_args!("from 0 to below the {rows} rows of cos_sin_cache");
            let error = Invalid::new(format_args!("positions[{token}]"), position, must);
            return Err(error.of(Kind::Index));
        }
        self.check_slots(slot_mapping)
    }

    fn check_slots(&self, slot_mapping: &[u8]) -> Result<()> {
        let Some(key) = self.spec().key else { return Ok(()) };
        let capacity = key.cache.capacity();
        let invalid = |token: usize, slot: i64, must: std::fmt::Arguments| {
            Err(Invalid::new(format_args!("slot_mapping[{token}]"), slot, must).of(Kind::Index))
        };
        let mut used: Vec<(i64, usize)> = Vec::new();
        for (token, slot) in self.slots(slot_mapping).enumerate() {
            if slot >= capacity as i64 {
                let must = format_args!("below the {capacity} slots of kv_cache, or negative");
                return invalid(token, slot, must);
            }
            if slot >= 0 {
                used.push((slot, token));
            }
        }
        used.sort_unstable();
        match used.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(&[(slot, first), (_, second)]) => {
                let must = format_args!("a slot of its own: slot_mapping[{first}] is the same");
                invalid(second, slot, must)
            }
            _ => Ok(()),
        }
    }
}
