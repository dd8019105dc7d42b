//! The attention layer against one of Hugging Face `transformers`.

use crate::support::{exact_devices, shared};
use mla_prologue::{
    file::LayerFile,
    layer::{Options, relative_error, run},
    model::AttentionBackend,
};
use rstest::rstest;
use std::path::Path;

fn file() -> LayerFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/layer/attn_swa_8h.safetensors");
    LayerFile::read(&path).expect("the file is whole")
}

fn options(device: &str) -> Options {
    Options {
        devices: vec![device.into()],
        world_size: 1,
        backend: AttentionBackend::Any,
        fp8: false,
        decode: false,
    }
}

fn outputs(options: &Options) -> Vec<f32> {
    run(&file(), options, |_| ()).expect("the layer runs")
}

#[rstest]
fn comes_close_to_the_published(
    #[values(false, true)] fp8: bool,
    #[values(false, true)] decode: bool,
) {
    let _guard = shared();
    let want = file().y.expect("the file has it");
    for device in exact_devices() {
        let y = outputs(&Options { fp8, decode, ..options(device.name()) });
        let error = relative_error(&y, &want);
        let most = if fp8 { 5e-2 } else { 1e-2 };
        println!("{}: {error:.2e}", device.name());
        assert!(error < most, "{error} on {}", device.name());
    }
}

/// Ranks, and every backend's padding, change at most the order of additions.
#[rstest]
fn ranks_and_padding_change_nothing(
    #[values(1, 2)] world_size: usize,
    #[values(AttentionBackend::FlashMla, AttentionBackend::FlashInfer, AttentionBackend::Any)]
    backend: AttentionBackend,
) {
    let _guard = shared();
    for device in exact_devices() {
        let want = outputs(&options(device.name()));
        let got = outputs(&Options { world_size, backend, ..options(device.name()) });
        let error = relative_error(&got, &want);
        println!("{}: {error:.2e}", device.name());
        assert!(error < 1e-3, "{error} on {}", device.name());
    }
}

#[rstest]
#[case(3, "the world size")]
#[case(4, "the world size")]
#[case(0, "the world size")]
fn ranks_that_do_not_divide_are_refused(#[case] world_size: usize, #[case] argument: &str) {
    let options = Options { world_size, ..options("cpu") };
    let error = run(&file(), &options, |_| ()).expect_err("8 heads and 2 groups");
    assert!(error.to_string().starts_with(argument), "{error}");
}
