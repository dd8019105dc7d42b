//! The attention layer against one of Hugging Face `transformers`.

use crate::support::{alone, exact_devices, shared};
use burn::tensor::{Device, Tensor, TensorData, capture};
use mla_prologue::{
    burn::{KvCache, device},
    model::{
        AttentionBackend, AttentionConfig, BlockPool, DeepSeekV4Attention, Preset, Rotary,
        Sequence, StepMetadata,
    },
    operator::Fp8,
};
use mla_prologue_cases::layer::{Cache, LayerFile, Options, relative_error, run};
use rstest::rstest;
use std::cell::RefCell;

fn file() -> LayerFile {
    let path = crate::support::file("examples/layer/attn_swa_8h.safetensors");
    LayerFile::read(&path).expect("the file is whole")
}

fn options(device: &str) -> Options {
    Options {
        devices: vec![device.into()],
        world_size: 1,
        backend: AttentionBackend::Any,
        cache: Cache::Rows16Bit,
        decode: false,
    }
}

fn outputs(options: &Options) -> Vec<f32> {
    run(&file(), options, |_| ()).expect("the layer runs")
}

#[rstest]
fn comes_close_to_the_published(
    #[values(Cache::Rows16Bit, Cache::NativeFp8, Cache::Fp8(Fp8::E4m3fnuz))] cache: Cache,
    #[values(false, true)] decode: bool,
) {
    let _guard = shared();
    let want = file().y.expect("the file has it");
    for device in exact_devices() {
        let y = outputs(&Options { cache, decode, ..options(device.name()) });
        let error = relative_error(&y, &want);
        let most = if cache == Cache::Rows16Bit { 1e-2 } else { 5e-2 };
        println!("{}: {error:.2e}", device.name());
        assert!(error < most, "{error} on {}", device.name());
    }
}

/// Ranks, and every backend's padding, change at most the order of additions.
#[rstest]
#[case(1, AttentionBackend::FlashMla)]
#[case(1, AttentionBackend::FlashInfer)]
#[case(2, AttentionBackend::FlashMla)]
#[case(2, AttentionBackend::Aiter)]
fn ranks_and_padding_change_nothing(#[case] world_size: usize, #[case] backend: AttentionBackend) {
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

/// More tokens than are attended to at once or fit a block of the cache, and blocks that are given back: a decode
/// agrees with a prefill.
#[rstest]
fn long_sequences(#[values(16, 100, 1000)] window: usize) {
    let _guard = shared();
    let short = file();
    let x = short.x.iter().chain(&short.x).chain(&short.x).chain(&short.x).copied().collect();
    let table = Rotary::WINDOW.table(0..160);
    let long = LayerFile { x, table, window, y: None, ..short };
    for device in exact_devices() {
        let options = options(device.name());
        let run = |decode| {
            run(&long, &Options { decode, ..options.clone() }, |_| ()).expect("the layer runs")
        };
        let (want, got) = (run(false), run(true));
        assert_eq!(want.len(), 160 * 128);
        let error = relative_error(&got, &want);
        assert!(error < 1e-5, "{error} on {}", device.name());
    }
}

/// A layer of the file with its cache, on a device.
struct Layer {
    layer: DeepSeekV4Attention,
    kv_cache: KvCache,
    pool: BlockPool,
    x: Tensor<2>,
    table: Tensor<2>,
}

/// Blocks of each sequence: so small that windows cross them.
const BLOCKS: usize = 8;

impl Layer {
    fn new(device: &Device) -> Self {
        let file = file();
        let config = AttentionConfig::new(file.preset, AttentionBackend::FlashInfer, 8, 2 * BLOCKS);
        let config = AttentionConfig {
            window: file.window,
            eps: file.eps,
            ..config.expect("valid").with_rows_16bit()
        };
        let tensor = |values: &[f32], width: usize| {
            let rows = values.len() / width;
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, width]), device)
        };
        Self {
            layer: DeepSeekV4Attention::load(config, &file.path, "w.", device)
                .expect("it is whole"),
            kv_cache: config.empty_cache(device).expect("valid"),
            pool: BlockPool::new(config.cache).expect("valid"),
            x: tensor(&file.x, file.preset.hidden),
            table: tensor(&file.table, 64),
        }
    }

    fn step(&mut self, sequences: &[Sequence], tokens: usize) -> StepMetadata {
        for &sequence in sequences {
            self.pool.slide(sequence, 16).expect("it is open");
        }
        let step = StepMetadata::next(&mut self.pool, sequences, tokens, BLOCKS, &self.table);
        step.expect("there is room")
    }

    /// Feeds tokens of the file, `each` of each sequence, beginning with these.
    fn feed(&mut self, sequences: &[Sequence], first: &[usize], each: usize) -> Vec<f32> {
        let step = self.step(sequences, each);
        let x = first.iter().map(|&first| self.x.clone().slice(first..first + each)).collect();
        let y = self.layer.forward(Tensor::cat(x, 0), &step, &mut self.kv_cache);
        y.expect("it runs").into_data().try_to_vec().expect("f32")
    }
}

/// Sequences of one batch do not see each other, in prefill and in decode.
#[test]
fn a_batch_is_what_its_sequences_are() {
    let _guard = shared();
    for name in exact_devices().iter().map(|device| device.name()) {
        let device = device(name).expect("it opens");
        let mut both = Layer::new(&device);
        let sequences = [both.pool.open(), both.pool.open()];
        let starts = [0, 7];
        let mut got = vec![both.feed(&sequences, &starts, 20)];
        got.extend((20..26).map(|i| both.feed(&sequences, &starts.map(|start| start + i), 1)));
        for (which, start) in starts.into_iter().enumerate() {
            let mut alone = Layer::new(&device);
            let sequence = [alone.pool.open()];
            let mut want = vec![alone.feed(&sequence, &[start], 20)];
            want.extend((20..26).map(|i| alone.feed(&sequence, &[start + i], 1)));
            for (got, want) in got.iter().zip(&want) {
                let error = relative_error(&got[which * want.len()..][..want.len()], want);
                assert!(error < 1e-5, "{error} on {name}");
            }
        }
    }
}

/// The whole layer's decode step in a graph, replayed with other tokens.
#[test]
fn a_captured_decode_step_is_replayed() {
    let _guard = alone();
    for name in exact_devices().iter().map(|device| device.name()) {
        let device = device(name).expect("it opens");
        let mut plain = Layer::new(&device);
        let sequence = [plain.pool.open()];
        plain.feed(&sequence, &[0], 20);
        let want: Vec<_> = (20..30).map(|token| plain.feed(&sequence, &[token], 1)).collect();

        let mut layer = Layer::new(&device);
        let sequence = [layer.pool.open()];
        layer.feed(&sequence, &[0], 20);
        let step = layer.step(&sequence, 1);
        // Of its own, not a view of all: it is written into.
        let x = Tensor::from_data(layer.x.clone().slice(20..21).into_data(), &device);
        let state = RefCell::new((x, step, layer.kv_cache.clone()));
        layer.kv_cache.tensor = Tensor::empty([0, 0], &device);
        let mut graph = capture(&device, || {
            let (x, step, kv_cache) = &mut *state.borrow_mut();
            layer.layer.forward_unchecked(x.clone(), step, kv_cache).expect("it runs")
        });
        println!("{name}: a graph of the hardware: {}", graph.is_hardware());
        for (token, want) in (20..30).zip(want) {
            if token > 20 {
                let next = StepMetadata::next(&mut layer.pool, &sequence, 1, BLOCKS, &layer.table);
                let (x, step, _) = &mut *state.borrow_mut();
                refresh(x, step, layer.x.clone().slice(token..token + 1), next.expect("room"));
            }
            // SAFETY: the tensors live, and are used by nothing else.
            let y = unsafe { graph.replay() }.clone();
            let y: Vec<f32> = y.into_data().try_to_vec().expect("f32");
            let error = relative_error(&y, &want);
            assert!(error < 1e-5, "{error} at token {token} on {name}");
        }
    }
}

/// Writes the next step into the tensors of the captured one.
fn refresh(x: &mut Tensor<2>, step: &mut StepMetadata, next_x: Tensor<2>, next: StepMetadata) {
    let tokens = &mut step.tokens;
    x.inplace(|x| x.slice_assign(0..1, next_x));
    tokens.positions.inplace(|t| t.slice_assign(0..1, next.tokens.positions));
    tokens.slot_mapping.inplace(|t| t.slice_assign(0..1, next.tokens.slot_mapping));
    step.block_table.inplace(|t| t.slice_assign(0..1, next.block_table));
}

#[test]
fn a_missing_weight_is_named() {
    let _guard = shared();
    let device = device("cpu").expect("it opens");
    let config = Layer::new(&device).layer.config().to_owned();
    let error = DeepSeekV4Attention::load(config, &file().path, "v.", &device).expect_err("no v.");
    assert_eq!(
        error.to_string(),
        "v.kv_norm.weight is absent; it must be in the file, of the configured shape"
    );
    let wide = Preset { hidden: 64, ..config.preset };
    let config = AttentionConfig { preset: wide, ..config };
    let error =
        DeepSeekV4Attention::load(config, &file().path, "w.", &device).expect_err("other shapes");
    assert!(error.to_string().contains("q_a_proj"), "{error}");
}
