//! Indices that the checked forms refuse: the kernel stays within its buffers, and clamps or skips.

use super::list;
use crate::support::{exact_devices, reference, shared};
use mla_prologue::{
    kernel::{
        self, Device,
        attend::{BlockTable, Buffers, Call, Entries, Problem, SlotList, Spec, Tensors, Window},
    },
    operator::{HEAD_DIM, Index, RotaryTable},
};

/// What a device makes of tensors that were not checked.
fn unchecked(device: &Device, problem: &Problem, tensors: &Tensors<Vec<u8>>) -> Vec<u8> {
    let used = |(bytes, size): (&Vec<u8>, usize)| (size > 0).then(|| device.upload(bytes));
    let buffers: Buffers = tensors.as_ref().zip(problem.sizes()).map(used);
    kernel::attend::launch(device, problem, &buffers).expect("the device runs");
    let out = buffers.out.expect("an output");
    device.read(&out, problem.sizes().out).expect("the device runs")
}

fn i32s(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

#[test]
fn lengths_are_clamped() {
    let _guard = shared();
    let call = list(4, 3, 70);
    let with_lens = |lens: [i64; 4], index| {
        let entries = Entries::Slots(SlotList::new(70).lens(index));
        let problem = call.problem().spec().entries(entries).validate().expect("valid");
        let lens = lens.into_iter().flat_map(|len| match index {
            Index::I64 => len.to_le_bytes().to_vec(),
            Index::I32 => (len.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes().into(),
        });
        (problem, Tensors { lens: lens.collect(), ..call.tensors().clone() })
    };
    for device in exact_devices() {
        for &index in Index::ALL {
            let (problem, clamped) = with_lens([0, 70, 70, 69], index);
            let want = reference_call(problem, clamped);
            let (problem, wild) = with_lens([-5, 71, i64::MAX, 69], index);
            assert!(Call::new(problem, wild.clone()).is_err(), "refused where it is checked");
            assert!(unchecked(&device, &problem, &wild) == want.tensors().out);
        }
    }
}

fn reference_call(problem: Problem, tensors: Tensors<Vec<u8>>) -> Call {
    reference(&Call::new(problem, tensors).expect("valid"))
}

/// Entries that are in no block, of a sequence that is not there, at a position that no token has: as if they were not there.
#[test]
fn a_window_outside_its_table_is_empty() {
    let _guard = shared();
    let call = list(4, 3, 70);
    let table = BlockTable { sequences: 2, blocks: 3, index_type: Index::I32 };
    let window = Window::new(70, table).sequence_ids(Index::I32);
    let spec: Spec = call.problem().spec().entries(Entries::Window(window));
    let spec = spec.position_type(Index::I32).rotary(RotaryTable::new(8));
    let problem = spec.validate().expect("valid");
    let tensors = Tensors {
        slots: Vec::new(),
        // 12 blocks there are.
        block_table: i32s([-1, 12, i32::MAX, i32::MIN, 5, 1]),
        sequence_ids: i32s([0, 2, -1, 1]),
        positions: i32s([47, 3, 3, i32::MAX]),
        cos_sin_cache: vec![0; problem.sizes().cos_sin_cache],
        ..call.tensors().clone()
    };
    assert!(Call::new(problem, tensors.clone()).is_err(), "refused where it is checked");
    for device in exact_devices() {
        assert!(unchecked(&device, &problem, &tensors) == vec![0; 4 * 3 * HEAD_DIM * 2]);
    }
}

/// Random bytes for everything that is an index.
#[test]
fn random_indices_do_no_harm() {
    let _guard = shared();
    let rng = &mut fastrand::Rng::with_seed(1);
    for round in 0..20 {
        let call = list(3, 5, 66);
        let mut tensors = call.tensors().clone();
        rng.fill(&mut tensors.slots);
        let want = reference_call(*call.problem(), tensors.clone());
        for device in exact_devices() {
            let got = unchecked(&device, call.problem(), &tensors);
            assert!(got == want.tensors().out, "round {round}");
        }
    }
}
