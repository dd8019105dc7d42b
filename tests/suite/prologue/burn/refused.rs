//! What the operator refuses.

use super::support::*;
use crate::{
    prologue::faults::ordinary,
    support::{shared, spec},
};
use burn::tensor::{DType, Device as BurnDevice, Tensor};
use mla_prologue::{
    burn::{KeyNorm, device},
    kernel::Device,
    operator::{
        CacheFormat, CacheLayout, HEAD_DIM, Rounding,
        prologue::{Key, Query},
    },
};

type Spoil = fn(&mut BurnCall, &BurnDevice);

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
    (|t, d| t.kv_cache.tensor = Tensor::zeros([1, 8], (d, DType::U8)), "the shape of kv_cache"),
    (
        |t, d| t.kv_cache.tensor = Tensor::zeros(t.kv_cache.tensor.dims(), (d, DType::I32)),
        "the type of kv_cache",
    ),
    (
        |t, d| {
            let weight = Tensor::zeros([511], (d, DType::BF16));
            t.prologue.key_norm = Some(KeyNorm { weight, rounding: Rounding::None });
        },
        "the shape of kv_norm_weight",
    ),
    (|t, _| t.kv_cache.scale = Some(1.0), "kv_scale"),
    (|t, _| t.prologue.query.scale = Some(1.0), "q_scale"),
];

#[test]
fn wrong_tensors_are_refused() {
    let _guard = shared();
    let call = ordinary(spec(9), 7);
    for (device, burn_device) in burn_devices() {
        for (spoil, argument) in WRONG {
            let mut tensors = BurnCall::new(&call, &burn_device);
            spoil(&mut tensors, &burn_device);
            let before = bytes(tensors.kv_cache.tensor.clone());
            let q = tensors.q.clone().expect("the call has queries");
            let error = tensors
                .prologue
                .run(q, tensors.kv.clone(), &tensors.tokens, &mut tensors.kv_cache)
                .expect_err(argument);
            assert!(error.to_string().starts_with(argument), "{error} on {}", device.name());
            assert!(bytes(tensors.kv_cache.tensor) == before, "written on {}", device.name());
        }
    }
}

#[test]
fn tensors_of_another_device_are_refused() {
    let _guard = shared();
    let devices: Vec<BurnDevice> =
        Device::list().iter().filter_map(|listing| device(&listing.name).ok()).collect();
    let [first, second, ..] = devices.as_slice() else {
        println!("left out: there is one device here");
        return;
    };
    let call = ordinary(spec(9), 7);
    let mut tensors = BurnCall::new(&call, first);
    let q = tensors.q.take().expect("the call has queries");
    let kv = float(data(&call.tensors().kv, [9, HEAD_DIM], DType::BF16), second);
    let run = tensors.prologue.run(q, kv, &tensors.tokens, &mut tensors.kv_cache);
    let error = run.expect_err("two devices").to_string();
    assert!(error.starts_with("the device of kv is"), "{error}");
}

#[test]
fn queries_in_fp8_are_refused() {
    let _guard = shared();
    let (_, device) = burn_devices().remove(0);
    let layout = CacheLayout::new(CacheFormat::RowsFp8 { fp8: Default::default() }, 4, 4);
    let key = Key::new(9, layout).scale(Some(1.0));
    let query = Query::new(3, 8).scale(Some(1.0));
    let call = ordinary(spec(9).query(query).key(key), 8);
    let mut tensors = BurnCall::new(&call, &device);
    let q = tensors.q.take().expect("the call has queries");
    let error = tensors.prologue.run(q, tensors.kv, &tensors.tokens, &mut tensors.kv_cache);
    assert!(error.expect_err("no such type").to_string().starts_with("q_scale"));
}
