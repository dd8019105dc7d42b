use crate::{AttentionBackend, Preset};
use mla_prologue_operator::{CacheFormat, CacheLayout, HEAD_DIM, Invalid, Result};

/// What each rank of a tensor-parallel group holds: the query heads are divided, the key is on every
/// rank.
///
/// ```
/// use mla_prologue_model::{AttentionBackend, Plan, Preset};
/// let plan = Plan::new(Preset::V4_PRO, 8, AttentionBackend::FlashMla)?;
/// assert_eq!((plan.live_heads, plan.padded_heads), (16, 64));
/// assert_eq!(plan.rank(7)?.first_head, 112);
/// assert_eq!(plan.q_out_bytes(4096)?, 4096 * 64 * 512 * 2);
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The model.
    pub preset: Preset,
    /// The attention kernel.
    pub backend: AttentionBackend,
    /// Ranks of the group.
    pub world_size: usize,
    /// Query heads of a rank.
    pub live_heads: usize,
    /// Heads that they are padded to.
    pub padded_heads: usize,
}

/// One rank of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number, from 0.
    pub index: usize,
    /// The first of the model's query heads that it holds.
    pub first_head: usize,
    /// How many it holds.
    pub heads: usize,
}

impl Plan {
    /// Divides a model's heads among `world_size` ranks.
    ///
    /// # Errors
    /// A world size that does not divide the heads and the output groups, or more heads than the
    /// backend takes.
    pub fn new(preset: Preset, world_size: usize, backend: AttentionBackend) -> Result<Self> {
        let divides = |count: usize| world_size > 0 && count.is_multiple_of(world_size);
        if !divides(preset.heads) || !divides(preset.o_groups) {
            let must = format!(
                "a divisor of the {} heads and {} output groups of {}",
                preset.heads, preset.o_groups, preset.name
            );
            return Err(Invalid::new("the world size", world_size, must));
        }
        let live_heads = preset.heads / world_size;
        let padded_heads = backend.padded_query_heads(live_heads)?;
        Ok(Self { preset, backend, world_size, live_heads, padded_heads })
    }

    /// The rank of that number.
    ///
    /// # Errors
    /// A number that is no rank.
    pub fn rank(&self, index: usize) -> Result<Rank> {
        if index >= self.world_size {
            return Err(Invalid::new(
                "the rank",
                index,
                format_args!("below the world size {}", self.world_size),
            ));
        }
        Ok(Rank { index, first_head: index * self.live_heads, heads: self.live_heads })
    }

    /// Every rank.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        (0..self.world_size).filter_map(|index| self.rank(index).ok())
    }

    /// Bytes of a rank's padded queries for that many tokens.
    ///
    /// # Errors
    /// More tokens than the prologue takes.
    pub fn q_out_bytes(&self, tokens: usize) -> Result<usize> {
        let rows = tokens.checked_mul(self.padded_heads).filter(|rows| *rows < 1 << 31);
        let must = "few enough for less than 2^31 rows of q_out";
        rows.map(|rows| rows * HEAD_DIM * 2).ok_or_else(|| Invalid::new("tokens", tokens, must))
    }

    /// The layout of a rank's `fp8_ds_mla` cache of one layer.
    ///
    /// # Errors
    /// A block of no tokens, or a cache too large to be counted.
    pub fn cache(&self, block_size: usize, num_blocks: usize) -> Result<CacheLayout> {
        let layout = CacheLayout::new(CacheFormat::default(), block_size, num_blocks);
        let layout = layout.align_stride(self.backend.block_alignment());
        layout.validate().map(|()| layout)
    }
}
