//! The operator in a captured graph.

use super::support::*;
use crate::{
    gather::reference_rows,
    prologue::faults::ordinary,
    support::{alone, assert_exact, edited, spec},
};
use burn::tensor::{Tensor, capture, kind::Basic};
use mla_prologue::{
    burn::{Gather, PaddedQueries},
    operator::{Float16, gather::Spec},
};
use std::cell::RefCell;

/// A step in a captured graph, replayed with other contents: the output's padding heads, the cache's other slots
/// and what the gather finds are those of then.
#[test]
fn a_captured_step_is_replayed() {
    let _guard = alone();
    for (device, burn_device) in burn_devices() {
        let call = ordinary(spec(4), 10);
        let state = RefCell::new(BurnCall::new(&call, &burn_device));
        let mut q_out = PaddedQueries::new(4, 8, Float16::Bf16, &burn_device);
        let mut graph = capture(&burn_device, || {
            let BurnCall { prologue, q, kv, tokens, kv_cache } = &mut *state.borrow_mut();
            let (prologue, q) = (prologue.clone().unchecked(), q.clone().expect("it has queries"));
            let run = prologue.run_into(q, kv.clone(), tokens, kv_cache, &mut q_out);
            run.expect("the tensors are valid");
            let rows = Gather::new()
                .slots(kv_cache, tokens.slot_mapping.clone())
                .expect("the tensors are valid");
            (q_out.tensor().clone(), rows)
        });
        println!("{}: a graph of the hardware: {}", device.name(), graph.is_hardware());
        let mut cache = bytes(state.borrow().kv_cache.tensor.clone());
        for seed in 11..14 {
            let next = edited(ordinary(spec(4), seed), |tensors| tensors.kv_cache = cache);
            refresh(&mut state.borrow_mut(), &BurnCall::new(&next, &burn_device));
            // SAFETY: the tensors live, and are used by nothing else.
            let (q_out, rows) = unsafe { graph.replay() };
            let (q_out, rows) = (bytes(q_out.clone()), bytes(rows.clone()));
            cache = bytes(state.borrow().kv_cache.tensor.clone());
            let got = written(q_out, cache.clone());
            assert_exact(&next, &got, &format!("replay {seed} on {}", device.name()));
            let gather = Spec::new(next.problem().spec().key.expect("it has keys").cache, 4);
            let want = reference_rows(gather, &cache, &next.tensors().slot_mapping, &[]);
            assert!(rows == want, "replay {seed} on {}", device.name());
        }
    }
}

/// Writes the contents of other tensors into the buffers of these.
fn refresh(into: &mut BurnCall, from: &BurnCall) {
    fn write<const D: usize, K: Basic>(into: &mut Tensor<D, K>, from: &Tensor<D, K>) {
        let all = from.dims().map(|size| 0..size);
        into.inplace(|tensor| tensor.slice_assign(all, from.clone()));
    }
    if let (Some(into), Some(from)) = (&mut into.q, &from.q) {
        write(into, from);
    }
    write(&mut into.kv, &from.kv);
    write(&mut into.tokens.positions, &from.tokens.positions);
    write(&mut into.tokens.slot_mapping, &from.tokens.slot_mapping);
    write(&mut into.tokens.cos_sin_cache, &from.tokens.cos_sin_cache);
}
