//! The gather on Burn's tensors.

use super::reference_rows;
use crate::{
    prologue::{burn::support::*, faults::ordinary},
    support::{i64s, reference, shared, spec},
};
use burn::tensor::Tensor;
use mla_prologue::{burn::Gather, operator::gather::Spec};

#[test]
fn what_was_inserted_is_gathered() {
    let _guard = shared();
    let call = ordinary(spec(9), 9);
    let layout = call.problem().spec().key.expect("it has keys").cache;
    let inserted = reference(&call);
    let inserted = &inserted.tensors().kv_cache;
    let want =
        |indices: &[u8], rows| reference_rows(Spec::new(layout, rows), inserted, indices, &[]);
    for (device, burn_device) in burn_devices() {
        let mut tensors = BurnCall::new(&call, &burn_device);
        tensors.run();
        let (cache, gather) = (&tensors.kv_cache, Gather::new());
        let slots = tensors.tokens.slot_mapping.clone();
        let rows = gather.slots(cache, slots).expect("the tensors are valid");
        let indices = &call.tensors().slot_mapping;
        assert!(bytes(rows) == want(indices, 9), "slots on {}", device.name());
        let tokens = Tensor::from_ints([5, 0, -1], &burn_device);
        let table = Tensor::from_ints([[2, 1]], &burn_device);
        let rows = gather.tokens(cache, tokens, table).expect("the tensors are valid");
        // Token 5 is token 1 of the second block in the table, block 1; token 0 of the first, block 2.
        assert!(bytes(rows) == want(&i64s([5, 8, -1]), 3), "tokens on {}", device.name());
    }
}
