//! The operator in a captured graph.

use super::support::*;
use crate::{
    faults::ordinary,
    support::{alone, spec},
};
use burn::tensor::{Tensor, capture, kind::Basic};
use mla_prologue::{
    Output,
    model::{PaddedQueries, Reader},
    operator::{Gather, Half},
    reference,
};
use std::cell::RefCell;

/// A step in a captured graph, replayed with other contents: the output's added heads, the cache's other slots
/// and what the reader finds are those of then.
#[test]
fn a_captured_step_is_replayed() {
    let _guard = alone();
    for (device, burn_device) in burn_devices() {
        let call = ordinary(spec(4), 10);
        let state = RefCell::new(Tensors::new(&call, &burn_device));
        let mut q_out = PaddedQueries::new(4, 8, Half::Bf16, &burn_device);
        let mut graph = capture(&burn_device, || {
            let Tensors { prologue, q, kv, tokens, kv_cache } = &mut *state.borrow_mut();
            let (prologue, q) = (prologue.clone().unchecked(), q.clone().expect("it has queries"));
            let run = prologue.run_into(q, kv.clone(), tokens, kv_cache, &mut q_out);
            run.expect("the tensors are right");
            let rows = Reader::new(prologue.key.cache)
                .slots(kv_cache.clone(), tokens.slot_mapping.clone())
                .expect("the tensors are right");
            (q_out.tensor().clone(), rows)
        });
        println!("{}: a graph of the hardware: {}", device.name(), graph.is_hardware());
        let mut cache = bytes(state.borrow().kv_cache.clone());
        for seed in 11..14 {
            let mut next = ordinary(spec(4), seed);
            next.kv_cache = cache;
            refresh(&mut state.borrow_mut(), &Tensors::new(&next, &burn_device));
            // SAFETY: the tensors live, and nobody else uses them.
            let (q_out, rows) = unsafe { graph.replay() };
            let (q_out, rows) = (bytes(q_out.clone()), bytes(rows.clone()));
            cache = bytes(state.borrow().kv_cache.clone());
            let got = Output { q_out, kv_cache: cache.clone() };
            assert_exact(&next, &got, &format!("replay {seed} on {}", device.name()));
            let gather = Gather::new(next.problem.key.expect("it has keys").cache, 4);
            let want = reference::gather(&gather, &cache, &next.slot_mapping, &[]);
            assert!(rows == want.expect("sensible"), "replay {seed} on {}", device.name());
        }
    }
}

/// Writes the contents of other tensors into the buffers of these.
fn refresh(into: &mut Tensors, from: &Tensors) {
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
