//! Attention on Burn's tensors.

use super::{list, windowed};
use crate::{
    prologue::burn::support::*,
    support::{alone, reference, shared},
};
use burn::tensor::{DType, Device as BurnDevice, Int, Tensor, capture};
use mla_prologue::{
    burn::{Attend, Attended, KvCache, SlotTensors},
    kernel::attend::{Call, Entries, SlotList, Spec, Tensors},
    operator::{CacheLayout, HEAD_DIM, Index},
};
use mla_prologue_cases::attend::catalogue;
use std::cell::RefCell;

/// A call of attention on a Burn device.
struct BurnAttend {
    attend: Attend,
    q: Tensor<3>,
    kv_cache: KvCache,
    to: Attended,
}

impl BurnAttend {
    fn new(call: &Call, device: &BurnDevice) -> Self {
        let (spec, tensors) = (call.problem().spec(), call.tensors());
        let mut attend = Attend::new(spec.heads).padded_heads(spec.padded_heads).scale(spec.scale);
        let q = rows(&tensors.q, spec.tokens, spec.stride(), spec.dtype);
        let q: Tensor<2> = float(q, device);
        let heads = spec.q_heads * HEAD_DIM;
        let q = q.slice([0..spec.tokens, 0..heads]).reshape([spec.tokens, spec.q_heads, HEAD_DIM]);
        let per_token = |bytes: &[u8], index: Index| -> Tensor<1, Int> {
            int(data(bytes, [spec.tokens], index_type(index)), device)
        };
        let mut to = match &spec.entries {
            Entries::Slots(slots) => {
                Attended::slots(list_of(&tensors.slots, &tensors.lens, spec, slots, device))
            }
            Entries::Window(window) => {
                let table = [window.table.sequences, window.table.blocks];
                let table = data(&tensors.block_table, table, index_type(window.table.index_type));
                let positions = per_token(&tensors.positions, spec.position_type);
                let to = Attended::window(window.length, positions, int(table, device));
                match window.sequence_ids {
                    Some(index) => to.sequence_ids(per_token(&tensors.sequence_ids, index)),
                    None => to,
                }
            }
        };
        if let Some(extra) = &spec.extra {
            let cache = cache_of(&tensors.extra_kv_cache, extra.cache, spec, device);
            let (slots, lens) = (&tensors.extra_slots, &tensors.extra_lens);
            to = to.extra(&cache, list_of(slots, lens, spec, &extra.slots, device));
        }
        if spec.sinks {
            to = to.sinks(float(data(&tensors.sinks, [spec.heads], DType::F32), device));
        }
        if let Some(table) = spec.rotary {
            attend.table_order = table.order;
            let dtype = table_type(table.dtype);
            let table = float(data(&tensors.cos_sin_cache, [table.rows, 64], dtype), device);
            to = to.rotate_back(per_token(&tensors.positions, spec.position_type), table);
        }
        Self { attend, q, kv_cache: cache_of(&tensors.kv_cache, spec.cache, spec, device), to }
    }

    fn run(&self) -> Tensor<3> {
        let out = self.attend.run(self.q.clone(), &self.kv_cache, &self.to);
        out.expect("the tensors are valid")
    }
}

fn cache_of(bytes: &[u8], layout: CacheLayout, spec: &Spec, device: &BurnDevice) -> KvCache {
    let shape = [layout.num_blocks, layout.block_stride];
    let cache = KvCache::from_tensor(int(data(bytes, shape, DType::U8), device), layout);
    cache.expect("a valid cache").dtype(spec.dtype).scale(spec.kv_scale)
}

fn list_of(
    slots: &[u8],
    lens: &[u8],
    spec: &Spec,
    list: &SlotList,
    device: &BurnDevice,
) -> SlotTensors {
    let tensor = data(slots, [spec.tokens, list.count], index_type(list.index_type));
    let lens = list.lens.map(|index| int(data(lens, [spec.tokens], index_type(index)), device));
    SlotTensors { slots: int(tensor, device), lens }
}

/// Burn has no tensors without elements on every backend.
fn calls() -> impl Iterator<Item = Call> {
    let calls = catalogue::modes().into_iter().map(|case| case.call().expect("a valid case"));
    calls.filter(|call| {
        let spec = call.problem().spec();
        spec.count() > 0 && spec.extra.is_none_or(|extra| extra.slots.count > 0)
    })
}

/// With and without Fusion, by the form that checks. The kernel is the one that takes all of the modes above.
#[test]
fn the_modes_are_equal_bit_for_bit() {
    let _guard = shared();
    let mut count = 0;
    for (device, burn_device) in burn_devices() {
        for call in calls().step_by(3) {
            let want = reference(&call);
            let tensors = BurnAttend::new(&call, &burn_device);
            let name = format!("{:?} on {}", call.problem().spec(), device.name());
            let out = bytes(tensors.run());
            assert_same(&call, &out, &want, &name);
            count += 1;
        }
    }
    assert!(count > 10, "{count} calls");
}

/// NaN of any kind for NaN, and else the same bits.
fn assert_same(call: &Call, out: &[u8], want: &Call, name: &str) {
    let want_tensors = want.tensors();
    let got = Tensors { out: out.to_vec(), ..want_tensors.clone() };
    let found = mla_prologue_cases::attend::compare(want, &got, mla_prologue_cases::Rule::Exact);
    assert!(found.holds(), "{name}: {:?}", found.first);
    assert_eq!(out.len(), call.problem().sizes().out);
}

#[test]
fn stats_are_the_references() {
    let _guard = shared();
    let call = list(3, 5, 70);
    let want = reference(&call);
    for (device, burn_device) in burn_devices() {
        let BurnAttend { attend, q, kv_cache, to } = BurnAttend::new(&call, &burn_device);
        attend.warm_up(5, &kv_cache, &to).expect("it compiles");
        let got = attend.run_with_stats(q, &kv_cache, &to).expect("the tensors are valid");
        assert_eq!(got.max.dims(), [3, 5]);
        let same = [
            (bytes(got.out), &want.tensors().out),
            (bytes(got.max), &want.tensors().max),
            (bytes(got.sum), &want.tensors().sum),
        ];
        for (i, (got, want)) in same.iter().enumerate() {
            assert!(got == *want, "output {i} on {}", device.name());
        }
    }
}

/// Queries whose heads do not lie one after the other are copied, those of a wider tensor read where they are.
#[test]
fn queries_may_lie_otherwise() {
    let _guard = shared();
    let call = list(3, 5, 70);
    let want = reference(&call);
    for (device, burn_device) in burn_devices() {
        let BurnAttend { attend, q, kv_cache, to } = BurnAttend::new(&call, &burn_device);
        let swapped = Tensor::cat(vec![q.clone().swap_dims(0, 1)], 0).swap_dims(0, 1);
        let wide = Tensor::cat(vec![q.clone(), q.clone()], 1);
        let part = wide.clone().slice([0..3, 5..10, 0..HEAD_DIM]);
        for q in [swapped, wide, part] {
            let out = attend.run(q, &kv_cache, &to).expect("the tensors are valid");
            assert!(bytes(out) == want.tensors().out, "on {}", device.name());
        }
    }
}

/// A captured call, replayed with other entries.
#[test]
fn a_captured_call_is_replayed() {
    let _guard = alone();
    for (device, burn_device) in burn_devices() {
        let call = list(3, 5, 70);
        let BurnAttend { attend, q, kv_cache, .. } = BurnAttend::new(&call, &burn_device);
        let spec = *call.problem().spec();
        let Entries::Slots(slots) = &spec.entries else { panic!("it is a list") };
        let listed =
            |call: &Call| list_of(&call.tensors().slots, &[], &spec, slots, &burn_device).slots;
        let sinks = float(data(&call.tensors().sinks, [5], DType::F32), &burn_device);
        let held = RefCell::new(listed(&call));
        let mut graph = capture(&burn_device, || {
            let to = Attended::slots(held.borrow().clone()).sinks(sinks.clone());
            let out = attend.unchecked().run(q.clone(), &kv_cache, &to);
            out.expect("the tensors are valid")
        });
        println!("{}: a graph of the hardware: {}", device.name(), graph.is_hardware());
        for first in [1, 40] {
            let next = super::edited(&call, |tensors| tensors.slots.rotate_left(4 * first));
            let other = listed(&next);
            held.borrow_mut().inplace(|slots| slots.slice_assign([0..3, 0..70], other));
            // SAFETY: the tensors live, and are used by nothing else.
            let out = unsafe { graph.replay() };
            let want = reference(&next);
            assert!(bytes(out.clone()) == want.tensors().out, "on {}", device.name());
        }
    }
}

#[test]
fn what_is_refused_is_named() {
    let _guard = shared();
    for (_, device) in burn_devices() {
        let call = windowed();
        let BurnAttend { attend, q, kv_cache, to } = BurnAttend::new(&call, &device);
        let [tokens, heads, _] = q.dims();
        let refused = |attend: Attend, q: Tensor<3>, to: &Attended, argument: &str| {
            let error = attend.run(q, &kv_cache, to).expect_err("invalid").to_string();
            assert!(error.starts_with(argument), "{error}");
        };
        refused(Attend::new(heads + 1), q.clone(), &to, "the head count of q");
        refused(attend.padded_heads(0), q.clone(), &to, "padded_heads");
        refused(attend.scale(f32::NAN), q.clone(), &to, "scale");
        refused(attend, q.clone().slice([0..1, 0..heads, 0..HEAD_DIM]), &to, "the shape of ");
        let sinks = Tensor::zeros([heads + 1], &device);
        refused(attend, q.clone(), &to.clone().sinks(sinks), "the shape of sinks");
        let table = Tensor::from_ints([[0, 1]], &device);
        let far = Attended::window(4, Tensor::full([tokens], 10_000, &device), table);
        refused(attend, q.clone(), &far, "positions[0] is 10000");
        let slots = Tensor::<2, Int>::zeros([tokens, 3], (&device, DType::I32));
        let lens = Some(Tensor::full([tokens], 4, (&device, DType::I32)));
        let long = Attended::slots(SlotTensors { slots, lens });
        refused(attend, q.clone(), &long, "lens[0] is 4");
        let unchecked = attend.unchecked().run(q.clone(), &kv_cache, &long);
        unchecked.expect("lengths are not read").into_data();
    }
}
