//! What the tests share.

use mla_prologue::{
    kernel::{Device, prologue::Buffers},
    operator::{
        CacheFormat, CacheLayout, Float16,
        prologue::{Call, Key, Problem, Query, RotaryTable, Spec, Tensors},
    },
    reference::numbers::to_float16,
};
use mla_prologue_cases::{
    Executor, Rule, Runnable,
    prologue::{Case, Data, SlotPattern},
};
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A graph capture tolerates no other work in its process.
static CAPTURE: RwLock<()> = RwLock::new(());

/// Held by a test that uses devices.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    CAPTURE.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Held by a test that captures a graph.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    CAPTURE.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Every device here on which every bit is promised; says which are left out.
pub fn exact_devices() -> Vec<Device> {
    let stand_in = stand_in();
    let mut devices = Vec::new();
    for listing in Device::list() {
        if stand_in && !listing.name.starts_with("rocm") {
            continue;
        }
        match listing.state {
            Ok(_) => {
                let device = Device::open(&listing.name).expect("a listed device opens");
                if device.runtime().is_exact() {
                    devices.push(device);
                } else {
                    println!("{} left out: its results are promised within a band", listing.name);
                }
            }
            Err(error) => println!("{} left out: {error}", listing.name),
        }
    }
    assert!(!devices.is_empty(), "no device to test");
    devices
}

/// Is this process one that `rocm` started, in which a stand-in for AMD's driver emulates the only device?
fn stand_in() -> bool {
    let wanted = std::env::var_os("STAND_IN_ARCH").is_some();
    #[cfg(feature = "hip")]
    if wanted {
        mla_prologue_emulator::driver::attach().expect("the stand-in is where ROCM_PATH says");
    }
    wanted
}

/// The same as executors.
pub fn exact_executors() -> Vec<Executor> {
    exact_devices().into_iter().map(Executor::Device).collect()
}

/// What the reference makes of a call.
pub fn reference<C: Runnable>(call: &C) -> C {
    let mut call = call.clone();
    call.run_reference();
    call
}

/// What an executor makes of a call, after it was found equal to the reference.
pub fn run_exact<C: Runnable>(call: &C, executor: &Executor, name: &str) -> C::Tensors {
    let got = executor.result(call).expect("the executor runs");
    assert_exact(call, &got, &format!("{name} on {}", executor.describe()));
    got
}

/// Fails where a result is not the reference's.
pub fn assert_exact<C: Runnable>(call: &C, got: &C::Tensors, name: &str) {
    let found = reference(call).compare(got, Rule::Exact);
    assert!(found.holds(), "{name}: {:?}", found.first);
}

/// The call with other tensors, which must fit it.
pub fn edited(call: Call, edit: impl FnOnce(&mut Tensors<Vec<u8>>)) -> Call {
    let problem = *call.problem();
    of_problem(call, problem, edit)
}

/// The call's tensors, edited, for another problem, which they must fit.
pub fn of_problem(call: Call, problem: Problem, edit: impl FnOnce(&mut Tensors<Vec<u8>>)) -> Call {
    let mut tensors = call.into_tensors();
    edit(&mut tensors);
    Call::new(problem, tensors).expect("tensors that fit the problem")
}

/// The buffers of a call: uploaded, and an output and a cache of these contents.
pub fn buffers(device: &Device, problem: &Problem, tensors: &Tensors<Vec<u8>>) -> Buffers {
    let used = |(bytes, size): (&Vec<u8>, usize)| (size > 0).then(|| device.upload(bytes));
    tensors.as_ref().zip(problem.sizes()).map(used)
}

/// A file of the repository.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// An `fp8_ds_mla` cache without padding.
pub fn cache(block_size: usize, num_blocks: usize) -> CacheLayout {
    CacheLayout::new(CacheFormat::default(), block_size, num_blocks)
}

/// The base operator on that many tokens of 3 heads padded to 8, into a cache of blocks of 4.
pub fn spec(tokens: usize) -> Spec {
    Spec::new(tokens, RotaryTable::new(32))
        .query(Query::new(3, 8))
        .key(Key::new(tokens, cache(4, tokens.div_ceil(4) + 1)))
}

/// 16-bit values as bytes.
pub fn float16s(bits: impl IntoIterator<Item = u16>) -> Vec<u8> {
    bits.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// Indices as bytes.
pub fn i64s(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    values.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// A rotary table whose every row rotates by nothing.
pub fn identity_table(rows: usize) -> Vec<u8> {
    let row = [[1f32; 32], [0f32; 32]].concat();
    row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>().repeat(rows)
}

/// A query whose mean of squares is half of the smallest subnormal number, and an `eps` that is that number: the
/// mean is rounded, to 0, before `eps` is added. Rounded once, the sum would be twice as large.
pub fn half_of_the_smallest() -> Call {
    let spec = spec(1).eps(f32::from_bits(1)).key(None);
    let case = Case { spec, data: Data::Ordinary, slots: SlotPattern::Shuffled, seed: 0 };
    let call = case.call().expect("a valid case");
    // 2^-71, whose square is 2^-142; two of them, divided by 512.
    let bits = to_float16(2f32.powi(-71), Float16::Bf16);
    let head = (0..512).map(|i| if i < 2 { bits } else { 0 });
    edited(call, |tensors| tensors.q = float16s(head).repeat(3))
}
