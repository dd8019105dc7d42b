//! Faults that engines have had in this op, each ruled out by a test named for it. Number 17 is in
//! `graph`.

mod calls;
mod numbers;

use crate::support::{halves, i64s, identity_table, spec};
use mla_prologue::{
    Call,
    catalogue::{Case, Data, Slots},
    operator::{Half, Key, Spec},
};

pub fn ordinary(spec: Spec, seed: u64) -> Call {
    let case = Case { spec, data: Data::Ordinary, slots: Slots::Shuffled, seed };
    case.call().expect("a sensible case")
}

/// A call for one key of these values, in one block of one token.
fn one_key(values: &[u16], half: Half, key: Key) -> Call {
    let spec = Spec { half, query: None, key: Some(key), ..spec(1) };
    let mut call = ordinary(spec, 0);
    call.kv = halves(values.iter().copied().cycle().take(512));
    call.cos_sin_cache = identity_table(32);
    call.slot_mapping = i64s([0]);
    call
}
