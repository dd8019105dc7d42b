//! DeepSeek-V4's attention prologue in a Burn program: from a device to padded queries and a filled cache.
//!
//! `cargo run --release --example burn` (add `--features cuda` for a GPU; `BURN_DEVICE=cpu` chooses).

use burn::tensor::{Distribution, Int, Tensor};
use mla_prologue::{
    model::{
        AttentionBackend, AttentionConfig, Pages, Preset, Prologue, Reader, Rotary, Step, device,
    },
    operator::HEAD_DIM,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = device("auto")?;

    // One of eight tensor-parallel ranks of V4-Pro: 16 query heads, which FlashMLA wants padded to 64.
    let config = AttentionConfig::new(Preset::V4_PRO, AttentionBackend::FlashMla, 64, 32)?;
    let heads = config.rank(8)?.shape.heads;
    let padded_heads = config.backend.padded_query_heads(heads)?;
    let prologue = Prologue::new(heads, padded_heads, config.cache);

    // The cache, who holds which of its blocks, and the rotary table.
    let mut kv_cache = config.empty_cache(&device)?;
    let mut pages = Pages::new(config.cache)?;
    let sequence = pages.open();
    let table = Rotary::WINDOW.tensor(4096, &device);

    // A prefill of 100 tokens, then two decode steps.
    for tokens in [100, 1, 1] {
        let step = Step::next(&mut pages, &[sequence], tokens, 32, &table)?;
        let q = Tensor::<3>::random([tokens, heads, HEAD_DIM], Distribution::Default, &device);
        let kv = Tensor::<2>::random([tokens, HEAD_DIM], Distribution::Default, &device);
        let q_out = prologue.run(q, kv, &step.tokens, &mut kv_cache)?;
        println!("{tokens} tokens: q_out {:?} {:?}", q_out.dims(), q_out.dtype());
    }

    // What an attention kernel would read of the newest two tokens.
    let newest = Tensor::<1, Int>::from_ints([100, 101], &device);
    let step = Step::next(&mut pages, &[sequence], 0, 32, &table)?;
    let keys = Reader::new(config.cache).tokens(kv_cache, newest, step.block_table)?;
    println!("keys {:?}, {}", keys.dims(), keys.slice([0..1, 0..3]));
    Ok(())
}
