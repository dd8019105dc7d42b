//! What the operator refuses.

use super::support::*;
use crate::{
    faults::ordinary,
    support::{cache, shared, spec},
};
use burn::tensor::{DType, Device as BurnDevice, Tensor};
use mla_prologue::{
    kernel::Device,
    operator::{CacheFormat, HEAD_DIM, Key, Query, Spec},
};

type Spoil = fn(&mut Tensors, &BurnDevice);

/// What is wrong with the tensors, and what the error begins with.
const WRONG: &[(Spoil, &str)] = &[
    (|t, _| t.prologue.query.heads = 2, "the shape of q"),
    (|t, _| t.prologue.query.padded_heads = 2, "padded_heads"),
    (|t, _| t.prologue.query.padded_heads = usize::MAX, "padded_heads"),
    (|t, _| t.prologue.query.padded_heads = 1 << 30, "q_out"),
    (|t, _| t.prologue.eps = f32::NAN, "eps"),
    (|t, d| t.kv = Tensor::zeros([9, 511], (d, DType::BF16)), "the shape of kv"),
    (|t, d| t.kv = Tensor::zeros([8, 512], (d, DType::BF16)), "the shape of q"),
    (|t, d| t.kv = Tensor::zeros([9, 512], (d, DType::F16)), "the type of kv"),
    (|t, d| t.q = Some(Tensor::zeros([9, 3, 512], (d, DType::F64))), "the type of q"),
    (|t, d| t.tokens.positions = Tensor::zeros([8], (d, DType::I64)), "the shape of positions"),
    (|t, d| t.tokens.positions = Tensor::zeros([9], (d, DType::U8)), "the type of positions"),
    (|t, d| t.tokens.positions = Tensor::full([9], 32, (d, DType::I64)), "positions[0]"),
    (
        |t, d| t.tokens.slot_mapping = Tensor::zeros([10], (d, DType::I64)),
        "the length of slot_mapping",
    ),
    (|t, d| t.tokens.slot_mapping = Tensor::full([9], 4096, (d, DType::I32)), "slot_mapping[0]"),
    (|t, d| t.tokens.slot_mapping = Tensor::zeros([9], (d, DType::I64)), "slot_mapping[1]"),
    (|t, d| t.tokens.cos_sin_cache = Tensor::zeros([32, 63], d), "the shape of cos_sin_cache"),
    (|t, d| t.kv_cache = Tensor::zeros([1, 8], (d, DType::U8)), "the shape of kv_cache"),
    (|t, d| t.kv_cache = Tensor::zeros(t.kv_cache.dims(), (d, DType::I32)), "the type of kv_cache"),
    (|t, _| t.prologue.key.norm = Some(mla_prologue::operator::Rounding::None), "kv_norm_weight"),
    (|t, _| t.prologue.query.scale = Some(1.0), "q_scale"),
];

#[test]
fn wrong_tensors_are_refused() {
    let _guard = shared();
    let call = ordinary(spec(9), 7);
    for (device, burn_device) in burn_devices() {
        for (spoil, argument) in WRONG {
            let mut tensors = Tensors::new(&call, &burn_device);
            spoil(&mut tensors, &burn_device);
            let before = bytes(tensors.kv_cache.clone());
            let q = tensors.q.clone().expect("the call has queries");
            let error = tensors
                .prologue
                .run(q, tensors.kv.clone(), &tensors.tokens, &mut tensors.kv_cache)
                .expect_err(argument);
            assert!(error.to_string().starts_with(argument), "{error} on {}", device.name());
            assert!(bytes(tensors.kv_cache) == before, "written on {}", device.name());
        }
    }
}

#[test]
fn tensors_of_another_device_are_refused() {
    let _guard = shared();
    let devices: Vec<BurnDevice> = Device::list()
        .iter()
        .filter_map(|listing| mla_prologue::model::device(&listing.name).ok())
        .collect();
    let [first, second, ..] = devices.as_slice() else {
        println!("left out: there is one device here");
        return;
    };
    let call = ordinary(spec(9), 7);
    let mut tensors = Tensors::new(&call, first);
    let q = tensors.q.take().expect("the call has queries");
    let kv = float(data(&call.kv, [9, HEAD_DIM], DType::BF16), second);
    let run = tensors.prologue.run(q, kv, &tensors.tokens, &mut tensors.kv_cache);
    let error = run.expect_err("two devices").to_string();
    assert!(error.starts_with("the device of kv is"), "{error}");
}

#[test]
fn queries_in_fp8_are_refused() {
    let _guard = shared();
    let (_, device) = burn_devices().remove(0);
    let format = CacheFormat::RowsFp8 { fp8: Default::default() };
    let layout = mla_prologue::operator::CacheLayout { format, block_stride: 2048, ..cache(4, 4) };
    let key = Key { scale: Some(1.0), ..Key::new(9, layout) };
    let query = Some(Query { scale: Some(1.0), ..Query::new(3, 8) });
    let call = ordinary(Spec { query, key: Some(key), ..spec(9) }, 8);
    let mut tensors = Tensors::new(&call, &device);
    let q = tensors.q.take().expect("the call has queries");
    let error = tensors.prologue.run(q, tensors.kv, &tensors.tokens, &mut tensors.kv_cache);
    assert!(error.expect_err("no such type").to_string().starts_with("q_scale"));
}
