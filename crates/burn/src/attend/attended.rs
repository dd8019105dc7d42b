use super::AttendTensors;
use crate::{KvCache, check};
use burn::{
    backend::Dispatch,
    tensor::{DType, Device, Int, Tensor},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::{
    BlockTable, Index, Invalid, ROPE_DIM, RotaryTable, TableOrder,
    attend::{Entries, Extra, Problem, SlotList, Tensors, Window},
};

/// What each token attends to: a list of slots or a window of its sequence, and what may come with it.
#[derive(Clone, Debug)]
pub struct Attended {
    entries: EntryTensors,
    extra: Option<(KvCache, SlotTensors)>,
    sinks: Option<Tensor<1>>,
    positions: Option<Tensor<1, Int>>,
    cos_sin_cache: Option<Tensor<2>>,
}

#[derive(Clone, Debug)]
enum EntryTensors {
    Slots(SlotTensors),
    Window { length: usize, block_table: Tensor<2, Int>, sequence_ids: Option<Tensor<1, Int>> },
}

/// A list of slots for each token.
#[derive(Clone, Debug)]
pub struct SlotTensors {
    /// `[tokens, count]` i64 or i32: the slots of each token's entries; those outside the cache are skipped.
    pub slots: Tensor<2, Int>,
    /// `[tokens]` i64 or i32: how many of them count; all of them without it.
    pub lens: Option<Tensor<1, Int>>,
}

impl From<Tensor<2, Int>> for SlotTensors {
    fn from(slots: Tensor<2, Int>) -> Self {
        Self { slots, lens: None }
    }
}

impl Attended {
    /// The slots of a list.
    pub fn slots(list: impl Into<SlotTensors>) -> Self {
        Self::of(EntryTensors::Slots(list.into()))
    }

    /// The last `length` tokens of each token's sequence, itself the last: `positions` `[tokens]`, `block_table` `[sequences, blocks]`, both
    /// i64 or i32. Each sequence has tokens / sequences of the tokens, one sequence after the other.
    pub fn window(length: usize, positions: Tensor<1, Int>, block_table: Tensor<2, Int>) -> Self {
        let entries = EntryTensors::Window { length, block_table, sequence_ids: None };
        Self { positions: Some(positions), ..Self::of(entries) }
    }

    fn of(entries: EntryTensors) -> Self {
        Self { entries, extra: None, sinks: None, positions: None, cos_sin_cache: None }
    }

    /// Of a window: the sequence of each token, `[tokens]` i64 or i32, so that sequences may have any number of them. It has no
    /// effect on a list.
    #[must_use]
    pub fn sequence_ids(mut self, ids: Tensor<1, Int>) -> Self {
        if let EntryTensors::Window { sequence_ids, .. } = &mut self.entries {
            *sequence_ids = Some(ids);
        }
        self
    }

    /// And entries of a second cache, of the same format.
    #[must_use]
    pub fn extra(self, kv_cache: &KvCache, list: impl Into<SlotTensors>) -> Self {
        Self { extra: Some((kv_cache.clone(), list.into())), ..self }
    }

    /// `[heads]` f32: a logit of each head that takes its share and gives nothing.
    #[must_use]
    pub fn sinks(self, sinks: Tensor<1>) -> Self {
        Self { sinks: Some(sinks), ..self }
    }

    /// The rotation of the output by the token's position is undone: `positions` `[tokens]` i64 or i32, `cos_sin_cache` `[positions, 64]` f32,
    /// bf16 or f16.
    #[must_use]
    pub fn rotate_back(self, positions: Tensor<1, Int>, cos_sin_cache: Tensor<2>) -> Self {
        Self { positions: Some(positions), cos_sin_cache: Some(cos_sin_cache), ..self }
    }

    pub(super) fn token_count(&self) -> usize {
        match (&self.entries, &self.positions) {
            (EntryTensors::Slots(list), _) => list.slots.dims()[0],
            (_, Some(positions)) => positions.dims()[0],
            (_, None) => 0,
        }
    }

    pub(super) fn entries_spec(&self, tokens: usize) -> Result<Entries> {
        Ok(match &self.entries {
            EntryTensors::Slots(list) => {
                Entries::Slots(slot_list(list, tokens, ["slots", "lens"])?)
            }
            EntryTensors::Window { length, block_table, sequence_ids } => {
                let [sequences, blocks] = block_table.dims();
                let index_type = check::index("block_table", block_table)?;
                let window = Window::new(*length, BlockTable { sequences, blocks, index_type });
                Entries::Window(match sequence_ids {
                    Some(ids) => window.sequence_ids(indices("sequence_ids", ids, tokens)?),
                    None => window,
                })
            }
        })
    }

    pub(super) fn extra_spec(&self, tokens: usize, kv_cache: &KvCache) -> Result<Option<Extra>> {
        let Some((cache, list)) = &self.extra else { return Ok(None) };
        cache.check().map_err(|error| match error {
            Error::Invalid(invalid) => {
                let argument = invalid.argument.replace("kv_cache", "extra_kv_cache");
                invalid.named(argument).into()
            }
            other => other,
        })?;
        if (cache.dtype, cache.scale) != (kv_cache.dtype, kv_cache.scale) {
            let is = format!("of {} with scale {:?}", cache.dtype.name(), cache.scale);
            let must = format!(
                "of {} with scale {:?}, as kv_cache",
                kv_cache.dtype.name(),
                kv_cache.scale
            );
            return Err(Invalid::new("extra_kv_cache", is, must).into());
        }
        let slots = slot_list(list, tokens, ["extra_slots", "extra_lens"])?;
        Ok(Some(Extra { cache: cache.layout, slots }))
    }

    pub(super) fn has_sinks(&self) -> bool {
        self.sinks.is_some()
    }

    pub(super) fn check_sinks(&self, heads: usize) -> Result<()> {
        let Some(sinks) = &self.sinks else { return Ok(()) };
        check::shape("sinks", sinks, [heads])?;
        check::dtype("sinks", sinks, &[DType::F32]).map(|_| ())
    }

    pub(super) fn position_type(&self, tokens: usize) -> Result<Index> {
        let positions = self.positions.as_ref();
        positions.map_or(Ok(Index::default()), |tensor| indices("positions", tensor, tokens))
    }

    pub(super) fn rotary_spec(&self, order: TableOrder) -> Result<Option<RotaryTable>> {
        let Some(table) = &self.cos_sin_cache else { return Ok(None) };
        let [rows, _] = table.dims();
        check::shape("cos_sin_cache", table, [rows, ROPE_DIM])?;
        Ok(Some(RotaryTable { rows, dtype: check::rotary("cos_sin_cache", table)?, order }))
    }

    /// Every tensor must be where the cache is.
    pub(super) fn check_devices(&self, device: &Device) -> Result<()> {
        let list = |list: &SlotTensors, [slots, lens]: [&str; 2]| {
            check::same_device(slots, &list.slots, device)?;
            list.lens.iter().try_for_each(|tensor| check::same_device(lens, tensor, device))
        };
        match &self.entries {
            EntryTensors::Slots(slots) => list(slots, ["slots", "lens"])?,
            EntryTensors::Window { block_table, sequence_ids, .. } => {
                check::same_device("block_table", block_table, device)?;
                let mut ids = sequence_ids.iter();
                ids.try_for_each(|ids| check::same_device("sequence_ids", ids, device))?;
            }
        }
        if let Some((cache, slots)) = &self.extra {
            check::same_device("extra_kv_cache", &cache.tensor, device)?;
            list(slots, ["extra_slots", "extra_lens"])?;
        }
        self.sinks.iter().try_for_each(|sinks| check::same_device("sinks", sinks, device))?;
        let mut positions = self.positions.iter();
        positions.try_for_each(|tensor| check::same_device("positions", tensor, device))?;
        let mut table = self.cos_sin_cache.iter();
        table.try_for_each(|table| check::same_device("cos_sin_cache", table, device))
    }

    /// Reads lengths, positions and what they depend on back, and checks them.
    pub(super) fn check_indices(&self, problem: &Problem) -> Result<()> {
        let (lens, sequence_ids) = match &self.entries {
            EntryTensors::Slots(list) => (list.lens.as_ref(), None),
            EntryTensors::Window { sequence_ids, .. } => (None, sequence_ids.as_ref()),
        };
        let extra_lens = self.extra.as_ref().and_then(|(_, list)| list.lens.as_ref());
        let positions = self.positions.as_ref().filter(|_| problem.spec().has_positions());
        let read = |tensor: Option<&Tensor<1, Int>>| match tensor {
            Some(tensor) => check::read_back(tensor),
            None => Ok(Vec::new()),
        };
        let (lens, sequence_ids) = (read(lens)?, read(sequence_ids)?);
        let (extra_lens, positions) = (read(extra_lens)?, read(positions)?);
        Ok(problem.check_indices(&Tensors {
            lens: &lens,
            sequence_ids: &sequence_ids,
            extra_lens: &extra_lens,
            positions: &positions,
            ..Tensors::default()
        })?)
    }

    /// The tensors for the backend.
    pub(super) fn tensors(&self, q: &Tensor<3>, kv_cache: &KvCache) -> AttendTensors<Dispatch> {
        // In place of those that are not there: they are not accessed.
        let int = || kv_cache.tensor.clone().into_dispatch();
        let float = || q.clone().into_dispatch();
        let list = |list: Option<&SlotTensors>| match list {
            Some(SlotTensors { slots, lens }) => (
                slots.clone().into_dispatch(),
                lens.as_ref().map_or_else(int, |lens| lens.clone().into_dispatch()),
            ),
            None => (int(), int()),
        };
        let (slots, block_table, sequence_ids) = match &self.entries {
            EntryTensors::Slots(slots) => (Some(slots), None, None),
            EntryTensors::Window { block_table, sequence_ids, .. } => {
                (None, Some(block_table), sequence_ids.as_ref())
            }
        };
        let (slots, lens) = list(slots);
        let extra = self.extra.as_ref();
        let (extra_slots, extra_lens) = list(extra.map(|(_, slots)| slots));
        AttendTensors {
            kv_cache: int(),
            slots,
            lens,
            block_table: block_table.map_or_else(int, |table| table.clone().into_dispatch()),
            sequence_ids: sequence_ids.map_or_else(int, |ids| ids.clone().into_dispatch()),
            extra_kv_cache: extra
                .map_or_else(int, |(cache, _)| cache.tensor.clone().into_dispatch()),
            extra_slots,
            extra_lens,
            sinks: self.sinks.clone().map_or_else(float, Tensor::into_dispatch),
            positions: self.positions.clone().map_or_else(int, Tensor::into_dispatch),
            cos_sin_cache: self.cos_sin_cache.clone().map_or_else(float, Tensor::into_dispatch),
        }
    }
}

fn slot_list(list: &SlotTensors, tokens: usize, [slots, lens]: [&str; 2]) -> Result<SlotList> {
    let [_, count] = list.slots.dims();
    check::shape(slots, &list.slots, [tokens, count])?;
    let spec = SlotList::new(count).index_type(check::index(slots, &list.slots)?);
    Ok(match &list.lens {
        Some(tensor) => spec.lens(indices(lens, tensor, tokens)?),
        None => spec,
    })
}

/// The type of an index for each token.
fn indices(name: &str, tensor: &Tensor<1, Int>, tokens: usize) -> Result<Index> {
    check::shape(name, tensor, [tokens])?;
    check::index(name, tensor)
}
