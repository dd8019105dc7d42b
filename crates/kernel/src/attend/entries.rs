//! Which slots the entries of a chunk are in.

use super::{
    Blueprint, EntriesBlueprint, ListBlueprint,
    kernel::{Arguments, Scalars},
    scratch::Scratch,
};
use crate::row::words::{self, NO_INDEX};
use cubecl::prelude::*;
use mla_prologue_operator::{Index, attend::CHUNK};

/// Finds the block and the token in it of each entry of a chunk.
#[cube]
pub fn find<N: Size>(
    tensors: &Arguments,
    scalars: &Scalars,
    scratch: &mut Scratch<N>,
    token: usize,
    chunk: u32,
    first_chunks: u32,
    #[comptime] blueprint: Blueprint,
) {
    let workers = comptime!(scratch.team.workers());
    let me = scratch.me();
    for step in 0..comptime!(CHUNK.div_ceil(workers)) {
        let key = step * workers + me;
        if key < CHUNK {
            let (mut block, mut at) = (NO_INDEX.runtime(), 0u32.runtime());
            if chunk < first_chunks {
                let entry = chunk * comptime!(CHUNK as u32) + key as u32;
                match comptime!(blueprint.entries) {
                    EntriesBlueprint::Slots(list) => {
                        let slot = listed(
                            &tensors.slots,
                            &tensors.lens,
                            token,
                            entry,
                            scalars.count,
                            list,
                        );
                        if slot / scalars.block_size < scalars.num_blocks {
                            block = slot / scalars.block_size;
                            at = slot % scalars.block_size;
                        }
                    }
                    EntriesBlueprint::Window { table, sequence_ids } => {
                        (block, at) = windowed(
                            tensors,
                            scalars,
                            token,
                            entry,
                            table,
                            sequence_ids,
                            blueprint,
                        );
                    }
                }
            } else {
                match comptime!(blueprint.extra) {
                    Some(list) => {
                        let entry = (chunk - first_chunks) * comptime!(CHUNK as u32) + key as u32;
                        let slot = listed(
                            &tensors.extra_slots,
                            &tensors.extra_lens,
                            token,
                            entry,
                            scalars.extra_count,
                            list,
                        );
                        if slot / scalars.extra_block_size < scalars.extra_num_blocks {
                            block = slot / scalars.extra_block_size;
                            at = slot % scalars.extra_block_size;
                        }
                    }
                    None => {}
                }
            }
            scratch.slots[2 * key] = block;
            scratch.slots[2 * key + 1] = at;
        }
    }
}

/// Does any entry of the chunk count?
#[cube]
pub fn any<N: Size>(scratch: &Scratch<N>) -> bool {
    let mut key = 0usize.runtime();
    let mut found = false.runtime();
    // It is mostly the first.
    while key < CHUNK {
        found = scratch.slots[2 * key] != NO_INDEX;
        key = select(found, CHUNK, key + 1);
    }
    found
}

/// An entry of a list of slots, or [`NO_INDEX`].
#[cube]
fn listed(
    slots: &[u32],
    lens: &[u32],
    token: usize,
    entry: u32,
    count: u32,
    #[comptime] list: ListBlueprint,
) -> u32 {
    let counted = match comptime!(list.lens) {
        Some(index) => min(count, length(lens, token, index)),
        None => count,
    };
    let mut slot = NO_INDEX.runtime();
    if entry < counted {
        slot = words::index(slots, token * count as usize + entry as usize, list.index_type);
    }
    slot
}

/// Element `i` of an array of lengths: negative ones are 0, those that are too large the largest.
#[cube]
fn length(lens: &[u32], i: usize, #[comptime] index: Index) -> u32 {
    match index {
        Index::I64 => {
            let (low, high) = (lens[2 * i], lens[2 * i + 1]);
            let large = select(high < 0x8000_0000, u32::MAX, 0u32);
            select(high == 0, low, large)
        }
        Index::I32 => {
            let value = lens[i];
            select(value < 0x8000_0000, value, 0u32)
        }
    }
}

/// An entry of a token's window: its block, or [`NO_INDEX`], and its token in it.
#[cube]
fn windowed(
    tensors: &Arguments,
    scalars: &Scalars,
    token: usize,
    entry: u32,
    #[comptime] table: Index,
    #[comptime] sequence_ids: Option<Index>,
    #[comptime] blueprint: Blueprint,
) -> (u32, u32) {
    let position = words::index(&tensors.positions, token, blueprint.position_type);
    let sequence = match comptime!(sequence_ids) {
        Some(index) => words::index(&tensors.sequence_ids, token, index),
        None => token as u32 / scalars.sequence_tokens,
    };
    // Positions that the table has blocks for are far from where this would wrap around.
    let reach = position + entry + 1;
    let seen = reach - scalars.count;
    let block_of_sequence = seen / scalars.block_size;
    let mut block = NO_INDEX.runtime();
    if entry < scalars.count
        && position < 0x8000_0000
        && reach >= scalars.count
        && sequence < scalars.sequences
        && block_of_sequence < scalars.table_blocks
    {
        let at = sequence as usize * scalars.table_blocks as usize + block_of_sequence as usize;
        block = words::index(&tensors.block_table, at, table);
        if block >= scalars.num_blocks {
            block = NO_INDEX.runtime();
        }
    }
    (block, seen % scalars.block_size)
}
