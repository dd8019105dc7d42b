//! Reading the cache back.
//!
//! **Grid.** A row of work for each row of the result. **Lanes** as in the prologue. **Layout.** The cache in words of 8
//! bytes, the result in words of 16: 64 a row in 16 bits, 128 in f32.

use super::Blueprint;
use crate::{
    arguments::{arguments, scalars},
    row::{
        CacheWord, ROW_WORDS, Row, Word, cache, lanes,
        words::{self, NO_INDEX},
    },
};
use cubecl::prelude::*;
use mla_prologue_operator::gather::Tensors;

arguments! {
    /// The tensors, in words. Those that a blueprint does not use are never accessed.
    pub struct Arguments of Tensors {
        kv_cache: CacheWord = 8,
        indices: u32 = 4,
        block_table: u32 = 4,
        out: Word = 16,
    }
}

scalars! {
    /// The numbers of one launch.
    pub struct Scalars {
        /// Rows of the result.
        rows: u32,
        /// Rows of each sequence.
        rows_per_sequence: u32,
        /// Blocks of each sequence.
        table_blocks: u32,
        /// Blocks of the cache.
        num_blocks: u32,
        /// Tokens of a block.
        block_size: u32,
        /// Words from a block to the next.
        block_stride: u32,
        /// The scale of a cache of FP8 rows.
        scale: f32,
    }
}

/// Reads rows of the cache. Whatever the indices are, the kernel stays within its buffers.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn gather(tensors: &mut Arguments, scalars: &Scalars, #[comptime] blueprint: Blueprint) {
    let row = lanes::row(blueprint.lanes);
    if row < scalars.rows as usize {
        let mut x = Row::empty(blueprint.lanes, blueprint.codec);
        let (block, token) = find(&tensors.indices, &tensors.block_table, row, scalars, blueprint);
        if block < scalars.num_blocks {
            let slot = cache::locate(
                block,
                token,
                scalars.block_size,
                scalars.block_stride,
                blueprint.format,
            );
            x.read(&tensors.kv_cache, &slot, scalars.scale, blueprint.format);
        } else {
            x.zero();
        }
        if comptime!(blueprint.rounded) {
            x.store(&mut tensors.out, row * ROW_WORDS);
        } else {
            x.store_f32(&mut tensors.out, row * comptime!(2 * ROW_WORDS));
        }
    }
}

/// The block and the token in it of a row; no block where there is no token.
#[cube]
fn find(
    indices: &[u32],
    block_table: &[u32],
    row: usize,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) -> (u32, u32) {
    let index = words::index(indices, row, blueprint.index_type);
    let (mut block, token) = (index / scalars.block_size, index % scalars.block_size);
    if index == NO_INDEX {
        block = NO_INDEX;
    }
    match comptime!(blueprint.block_table) {
        Some(index_type) => {
            if block < scalars.table_blocks {
                let sequence = row / scalars.rows_per_sequence as usize;
                let entry = sequence * scalars.table_blocks as usize + block as usize;
                block = words::index(block_table, entry, index_type);
            } else {
                block = NO_INDEX.runtime();
            }
        }
        None => {}
    }
    (block, token)
}
