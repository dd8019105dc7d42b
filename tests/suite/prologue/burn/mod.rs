//! The operator on Burn's tensors, with and without Fusion, against the reference.

mod captured;
mod conversions;
mod refused;
pub mod support;

use crate::{
    prologue::faults::ordinary,
    support::{assert_exact, i64s, reference, shared, spec},
};
use burn::{
    backend::ops::{FloatTensorOps, IntTensorOps},
    tensor::{DType, Tensor},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use cubecl::zspace::metadata::Metadata;
use mla_prologue::{
    burn::{KeyTensors, PaddedQueries, PrologueOps, round, widen},
    operator::{Float16, HEAD_DIM, prologue::Query},
};
use mla_prologue_cases::prologue::catalogue;
use rstest::rstest;
use support::*;

/// Every pair of modes, and shapes of the matrix; Fusion and not.
#[test]
fn equals_the_definition() {
    let _guard = shared();
    let matrix = catalogue::matrix();
    let cases = catalogue::modes().into_iter().chain(matrix.into_iter().step_by(9));
    let mut left_out = [0, 0];
    for case in cases {
        let call = case.call().expect("a valid case");
        if call.problem().spec().key.is_none() {
            left_out[0] += 1;
            continue;
        }
        if call.problem().spec().query.is_some_and(|query| query.scale.is_some()) {
            left_out[1] += 1;
            continue;
        }
        for (device, burn_device) in burn_devices() {
            let name = format!("{case} on {}", device.name());
            assert_exact(&call, &fused(&call, &burn_device), &format!("{name}, Fusion"));
            assert_exact(&call, &unfused(&call, &device), &format!("{name}, no Fusion"));
        }
    }
    println!("{} calls without keys left out: the operator has keys", left_out[0]);
    println!("{} calls with queries in FP8 left out: Burn has no such type", left_out[1]);
}

#[test]
fn no_tokens() {
    let _guard = shared();
    let call = ordinary(spec(0), 1);
    for (device, burn_device) in burn_devices() {
        assert_exact(&call, &fused(&call, &burn_device), "Fusion");
        assert_exact(&call, &unfused(&call, &device), "no Fusion");
    }
}

/// A clone of the cache keeps its contents; without one, no other cache is made.
#[test]
fn a_shared_cache_is_copied() {
    let _guard = shared();
    let call = ordinary(spec(9), 2);
    for (device, burn_device) in burn_devices() {
        let mut tensors = BurnCall::new(&call, &burn_device);
        let kept = tensors.kv_cache.tensor.clone();
        assert_exact(&call, &tensors.run(), device.name());
        assert!(bytes(kept) == call.tensors().kv_cache, "the clone changed on {}", device.name());
    }
}

/// Also where the allocator put more between the blocks than the layout says.
#[rstest]
fn a_cache_of_ones_own_is_updated_in_place(#[values(0, 24)] apart: usize) {
    let _guard = shared();
    let call = ordinary(spec(9), 2);
    let want = reference(&call).into_tensors().kv_cache;
    for (device, _) in burn_devices() {
        let cubecl = device.cubecl();
        let int = |data| CubeBackend::int_from_data(data, cubecl);
        let float = |data| CubeBackend::float_from_data(data, cubecl);
        let table = float(data(
            &call.tensors().cos_sin_cache,
            [call.problem().spec().table.rows, 64],
            DType::F32,
        ));
        let insert = |cache| {
            let keys = KeyTensors {
                kv: float(data(&call.tensors().kv, [9, HEAD_DIM], DType::BF16)),
                kv_norm_weight: table.clone(),
                positions: int(data(&call.tensors().positions, [9], DType::I64)),
                slot_mapping: int(data(&call.tensors().slot_mapping, [9], DType::I64)),
                cos_sin_cache: table.clone(),
            };
            let problem = call.problem().spec().query(None).validate().expect("valid");
            CubeBackend::insert_keys(keys, cache, problem)
        };
        let layout = call.problem().spec().key.expect("it has keys").cache;
        let (blocks, block) = (layout.num_blocks, layout.block_stride);
        let pitch = block + apart;
        let mut flat = vec![0xAA; blocks * pitch];
        for (to, from) in
            flat.chunks_exact_mut(pitch).zip(call.tensors().kv_cache.chunks_exact(block))
        {
            to[..block].copy_from_slice(from);
        }
        let mut cache = int(data(&flat, [flat.len()], DType::U8));
        cache.meta = Box::new(Metadata::new([blocks, block], [pitch, 1]));
        let memory = |cache: &CubeTensor| std::ptr::from_ref(cache.handle.memory.descriptor());
        let before = memory(&cache);
        let cache = insert(cache);
        assert_eq!(before, memory(&cache), "copied on {}", device.name());
        let clone = cache.clone();
        let cache = insert(cache);
        assert_ne!(memory(&clone), memory(&cache), "not copied on {}", device.name());
        assert!(read(cache) == want && read(clone) == want, "on {}", device.name());
    }
}

/// An output that is used again: its padding heads are not written again, and a clone of it stays as it is.
#[test]
fn an_output_is_used_again() {
    let _guard = shared();
    for (device, burn_device) in burn_devices() {
        let mut q_out = PaddedQueries::new(9, 8, Float16::Bf16, &burn_device);
        let mut kept: Option<(Tensor<3>, Vec<u8>)> = None;
        for (seed, heads) in [3, 3, 5, 2, 2].into_iter().enumerate() {
            let spec = spec(9).query(Query::new(heads, 8));
            let call = ordinary(spec, seed as u64);
            let BurnCall { prologue, q, kv, tokens, mut kv_cache } =
                BurnCall::new(&call, &burn_device);
            let q = q.expect("the call has queries");
            let run = prologue.run_into(q, kv, &tokens, &mut kv_cache, &mut q_out);
            run.expect("the tensors are valid");
            let got = written(bytes(q_out.tensor().clone()), bytes(kv_cache.tensor));
            assert_exact(&call, &got, &format!("call {seed} on {}", device.name()));
            if let Some((kept, before)) = kept.take() {
                assert!(bytes(kept) == before, "the clone changed on {}", device.name());
            }
            kept = (seed == 2).then(|| (q_out.tensor().clone(), got.q_out));
        }
    }
}

/// What tensor-parallel ranks compute of their heads is what one computes of all.
#[test]
fn ranks_have_the_rows_of_the_whole() {
    let _guard = shared();
    let call = ordinary(spec(9).query(Query::new(4, 4)), 12);
    for (device, burn_device) in burn_devices() {
        let whole = fused(&call, &burn_device);
        for rank in 0..2 {
            let mut tensors = BurnCall::new(&call, &burn_device);
            let q = tensors.q.take().expect("the call has queries");
            tensors.q = Some(q.slice([0..9, 2 * rank..2 * rank + 2, 0..HEAD_DIM]));
            tensors.prologue.query = Query::new(2, 8);
            let share = tensors.run();
            assert!(share.kv_cache == whole.kv_cache, "rank {rank} on {}", device.name());
            let rows = share.q_out.chunks_exact(8 * 1024).zip(whole.q_out.chunks_exact(4 * 1024));
            for (share, whole) in rows {
                assert!(share[..2048] == whole[2048 * rank..][..2048], "rank {rank}");
            }
        }
    }
}

#[test]
fn f32_is_rounded_first() {
    let _guard = shared();
    for dtype in [Float16::Bf16, Float16::F16] {
        let call = ordinary(spec(5).dtype(dtype), 3);
        for (device, burn_device) in burn_devices() {
            let mut tensors = BurnCall::new(&call, &burn_device);
            tensors.q = tensors.q.map(|q| widen(q).expect("16 bits"));
            tensors.kv = widen(tensors.kv).expect("16 bits");
            assert_exact(&call, &tensors.run(), device.name());
        }
    }
}

/// Queries that lie head by head, as a matrix product of all heads leaves them, and rows that are not dense.
#[test]
fn views_are_read() {
    let _guard = shared();
    let call = ordinary(spec(7), 4);
    for (device, burn_device) in burn_devices() {
        let mut tensors = BurnCall::new(&call, &burn_device);
        let q = tensors.q.take().expect("the call has queries");
        let by_head =
            round(widen(q.clone()).expect("16 bits").swap_dims(0, 1) + 0.0, Float16::Bf16);
        tensors.q = Some(by_head.expect("f32").swap_dims(0, 1));
        assert_exact(&call, &tensors.run(), &format!("swapped, {}", device.name()));
        let mut tensors = BurnCall::new(&call, &burn_device);
        let by_value = round(widen(q).expect("16 bits").swap_dims(1, 2) + 0.0, Float16::Bf16);
        tensors.q = Some(by_value.expect("f32").swap_dims(1, 2));
        assert_exact(&call, &tensors.run(), &format!("transposed, {}", device.name()));
    }
}

#[test]
fn unchecked_is_the_same_and_survives_bad_indices() {
    let _guard = shared();
    let call = ordinary(spec(9), 5);
    for (device, burn_device) in burn_devices() {
        let mut tensors = BurnCall::new(&call, &burn_device);
        tensors.prologue = tensors.prologue.unchecked();
        assert_exact(&call, &tensors.run(), device.name());
        let mut tensors = BurnCall::new(&call, &burn_device);
        tensors.prologue = tensors.prologue.unchecked();
        tensors.tokens.slot_mapping = int(data(&i64s([1 << 40; 9]), [9], DType::I64), &burn_device);
        assert!(tensors.run().kv_cache == call.tensors().kv_cache, "inserted on {}", device.name());
    }
}

#[test]
fn warmed_up() {
    let _guard = shared();
    let call = ordinary(spec(9), 6);
    for (device, burn_device) in burn_devices() {
        let mut tensors = BurnCall::new(&call, &burn_device);
        let warm = tensors.prologue.warm_up(&tensors.tokens, &mut tensors.kv_cache);
        warm.expect("the tensors are valid");
        assert!(
            bytes(tensors.kv_cache.tensor.clone()) == call.tensors().kv_cache,
            "inserted on {}",
            device.name()
        );
        assert_exact(&call, &tensors.run(), device.name());
    }
}
