//! What the tests share.

use mla_prologue::{
    Call, Output, Target,
    catalogue::{Case, Data, Slots},
    kernel::Device,
    operator::{
        CacheFormat, CacheLayout, Half, Index, Key, Query, RotaryLayout, RotaryTable, RotaryType,
        Spec,
    },
    reference::numbers::to_half,
    verify::{Rule, compare},
};
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

/// The same as targets.
pub fn exact_targets() -> Vec<Target> {
    exact_devices().into_iter().map(Target::Device).collect()
}

/// A call's output on a target, after it was found equal to the definition's.
pub fn run_exact(call: &Call, target: &Target, name: &str) -> Output {
    let want = call.run(&Target::Reference).expect("the reference runs");
    let got = call.run(target).expect("the device runs");
    let found = compare(call, &want, &got, Rule::Exact);
    assert!(found.holds(), "{name} on {}: {:?}", target.describe(), found.first);
    got
}

/// An `fp8_ds_mla` cache without padding.
pub fn cache(block_size: usize, num_blocks: usize) -> CacheLayout {
    CacheLayout {
        format: CacheFormat::default(),
        block_size,
        block_stride: block_size * 584,
        num_blocks,
    }
}

/// The base operator on that many tokens of 3 heads padded to 8, into a cache of blocks of 4.
pub fn spec(tokens: usize) -> Spec {
    Spec {
        tokens,
        half: Half::Bf16,
        eps: 1e-6,
        positions: Index::I64,
        table: RotaryTable { rows: 32, number: RotaryType::F32, layout: RotaryLayout::Halves },
        query: Some(Query::new(3, 8)),
        key: Some(Key::new(tokens, cache(4, tokens.div_ceil(4) + 1))),
    }
}

/// 16-bit values as bytes.
pub fn halves(bits: impl IntoIterator<Item = u16>) -> Vec<u8> {
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
    let spec = Spec { eps: f32::from_bits(1), key: None, ..spec(1) };
    let case = Case { spec, data: Data::Ordinary, slots: Slots::Shuffled, seed: 0 };
    let mut call = case.call().expect("a sensible case");
    // 2^-71, whose square is 2^-142; two of them, divided by 512.
    let bits = to_half(2f32.powi(-71), Half::Bf16);
    let head = (0..512).map(|i| if i < 2 { bits } else { 0 });
    call.q = halves(head).repeat(3);
    call
}
