//! Faults that engines have had in this op, each ruled out by a test named for it. Number 17 is in
//! `graph`.

mod calls;
mod numbers;

use crate::support::{edited, float16s, i64s, identity_table, spec};
use mla_prologue::operator::{
    Float16,
    prologue::{Call, Key, Spec},
};
use mla_prologue_cases::prologue::{Case, Data, SlotPattern};

/// A call of ordinary numbers.
pub fn ordinary(spec: Spec, seed: u64) -> Call {
    let case = Case { spec, data: Data::Ordinary, slots: SlotPattern::Shuffled, seed };
    case.call().expect("a valid case")
}

/// A call for one key of these values, in one block of one token.
fn one_key(values: &[u16], dtype: Float16, key: Key) -> Call {
    edited(ordinary(spec(1).dtype(dtype).query(None).key(key), 0), |tensors| {
        tensors.kv = float16s(values.iter().copied().cycle().take(512));
        tensors.cos_sin_cache = identity_table(32);
        tensors.slot_mapping = i64s([0]);
    })
}
