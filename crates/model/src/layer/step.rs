use crate::{BlockPool, Sequence};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use mla_prologue_burn::{Attended, Tokens};
use mla_prologue_operator::{Invalid, Result};

/// The metadata of one step of a model on one or more sequences, each with the same number of new tokens: a prefill, or a
/// decode step. The same for all layers.
///
/// To replay a captured graph with another step, write its contents into the tensors of the first one.
#[derive(Clone, Debug)]
pub struct StepMetadata {
    /// Where the tokens go, and the rotary table; those of a sequence follow one another. A token's
    /// position is its number in its sequence.
    pub tokens: Tokens,
    /// `[sequences, blocks]` i32: the blocks of each sequence, negative where there is none.
    pub block_table: Tensor<2, Int>,
}

impl StepMetadata {
    /// Makes room for `tokens` more tokens of each sequence. `blocks` is the width of the block table, which a
    /// captured graph needs to be the same for every step: enough for the longest sequence.
    ///
    /// # Errors
    /// A sequence that was closed, too few free blocks (some sequences may have got theirs), a sequence that
    /// is longer than the block table or the rotary table, or slots that do not fit i32.
    pub fn next(
        pool: &mut BlockPool,
        sequences: &[Sequence],
        tokens: usize,
        blocks: usize,
        cos_sin_cache: &Tensor<2>,
    ) -> Result<Self> {
        let device = cos_sin_cache.device();
        let [rows, _] = cos_sin_cache.dims();
        for &sequence in sequences {
            let end = pool.len(sequence)?.saturating_add(tokens);
            if end > rows {
                let must = format!("at most the {rows} positions of the rotary table");
                return Err(Invalid::new("the length of a sequence", end, must));
            }
            let needed = end.div_ceil(pool.layout().block_size);
            if needed > blocks {
                let must = format!("at least the {needed} blocks of a sequence");
                return Err(Invalid::new("the width of block_table", blocks, must));
            }
        }
        let (mut positions, mut slots, mut table) = (Vec::new(), Vec::new(), Vec::new());
        for &sequence in sequences {
            let start = pool.len(sequence)?;
            slots.extend(pool.append(sequence, tokens)?);
            positions.extend(start..start + tokens);
            let held = pool.block_table(sequence)?;
            let none = blocks - held.len();
            table.extend(held.into_iter().chain(std::iter::repeat_n(None, none)));
        }
        let table: Vec<i64> =
            table.into_iter().map(|block| block.map_or(-1, |block| block as i64)).collect();
        let i64s = |values: Vec<usize>| values.into_iter().map(|value| value as i64).collect();
        Ok(Self {
            tokens: Tokens {
                positions: indices(i64s(positions), &device)?,
                slot_mapping: indices(i64s(slots), &device)?,
                cos_sin_cache: cos_sin_cache.clone(),
            },
            block_table: indices(table, &device)?.reshape([sequences.len(), blocks]),
        })
    }

    /// What the tokens attend to in a layer of sliding windows: the last `length` tokens of their sequences, with each head's sink; the
    /// rotation by their positions undone.
    pub fn window(&self, length: usize, sinks: Tensor<1>) -> Attended {
        let Tokens { positions, cos_sin_cache, .. } = &self.tokens;
        Attended::window(length, positions.clone(), self.block_table.clone())
            .sinks(sinks.cast(DType::F32))
            .rotate_back(positions.clone(), cos_sin_cache.clone())
    }

    /// The step on another device.
    pub fn to_device(&self, device: &Device) -> Self {
        Self {
            tokens: Tokens {
                positions: self.tokens.positions.clone().to_device(device),
                slot_mapping: self.tokens.slot_mapping.clone().to_device(device),
                cos_sin_cache: self.tokens.cos_sin_cache.clone().to_device(device),
            },
            block_table: self.block_table.clone().to_device(device),
        }
    }
}

fn indices(values: Vec<i64>, device: &Device) -> Result<Tensor<1, Int>> {
    let narrow = |value: i64| {
        i32::try_from(value).map_err(|_| Invalid::new("a slot", value, "at most 2^31 - 1"))
    };
    let values: Vec<i32> = values.into_iter().map(narrow).collect::<Result<_>>()?;
    let count = values.len();
    Ok(Tensor::from_data(TensorData::new(values, [count]), (device, DType::I32)))
}
