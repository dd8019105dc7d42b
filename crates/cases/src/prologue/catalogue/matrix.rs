//! The matrix of the base operator.

use super::{Case, Data, SlotPattern};
use fastrand::Rng;
use mla_prologue_operator::{
    CacheFormat, CacheLayout, Float16,
    prologue::{Key, Query, RotaryTable, Spec},
};

/// Token counts.
pub const TOKENS: [usize; 7] = [0, 1, 4, 17, 33, 64, 129];
/// Live heads.
pub const HEADS: [usize; 11] = [1, 3, 5, 7, 8, 16, 24, 40, 64, 96, 128];
/// Heads to pad to, besides the live heads themselves: what attention kernels take, and odd ones.
pub const PADDED_HEADS: [usize; 8] = [8, 16, 32, 64, 128, 9, 67, 131];
/// Tokens of a block of the cache.
pub const BLOCK_SIZES: [usize; 5] = [1, 2, 16, 64, 256];

/// How a block's stride follows from its contents.
const STRIDES: [fn(usize) -> usize; 3] =
    [|exact| exact, |exact| exact.next_multiple_of(576), |exact| exact + (1 << 20) + 8];

/// Every token count with every head count and padding; the other dimensions are drawn.
pub fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    for heads in HEADS {
        let paddings = PADDED_HEADS.into_iter().filter(|&padded| padded > heads);
        for padded_heads in paddings.chain([heads]) {
            for tokens in TOKENS {
                cases.push(case(cases.len(), tokens, heads, padded_heads));
            }
        }
    }
    cases
}

/// The case of that number, which is the seed of all choices.
fn case(number: usize, tokens: usize, heads: usize, padded_heads: usize) -> Case {
    let rng = &mut Rng::with_seed(number as u64);
    let dtype = Float16::ALL[rng.usize(..2)];
    let data = Data::ALL[rng.usize(..4)];
    let block_size = BLOCK_SIZES[rng.usize(..5)];
    let slots = [tokens, tokens, tokens / 2, 0][rng.usize(..4)];
    let patterns = [
        SlotPattern::Shuffled,
        SlotPattern::Shuffled,
        SlotPattern::SomeNegative,
        SlotPattern::AllNegative,
    ];
    let pattern = patterns[rng.usize(..4)];
    let format = CacheFormat::default();
    let dense = CacheLayout::new(format, block_size, tokens.div_ceil(block_size) + 1);
    // Blocks a megabyte apart are for few blocks.
    let strides = if block_size < 16 { 2 } else { 3 };
    let cache = dense.with_stride(STRIDES[rng.usize(..strides)](dense.block_stride));
    let query = Query::new(heads, padded_heads).norm(rng.usize(..3) > 0);
    let spec = Spec::new(tokens, RotaryTable::new(96))
        .dtype(dtype)
        .eps([1e-6, 1e-5, 0.0, 1e-42][rng.usize(..4)])
        .query(query)
        .key(Key::new(slots, cache));
    Case { spec, data, slots: pattern, seed: number as u64 }
}
