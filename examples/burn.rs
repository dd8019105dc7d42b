//! DeepSeek-V4's attention prologue in a Burn program: from a device to padded queries and a filled cache.
//!
//! `cargo run --release --example burn` (add `--features cuda` for a GPU; `BURN_DEVICE=cpu` chooses).

use burn::tensor::{Distribution, Int, Tensor};
use mla_prologue::{
    burn::{Gather, Prologue, device},
    model::{AttentionBackend, AttentionConfig, BlockPool, Preset, Rotary, StepMetadata},
    operator::HEAD_DIM,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = device("auto")?;

    // One of eight tensor-parallel ranks of V4-Pro: 16 query heads, which FlashMLA wants padded to 64.
    let config = AttentionConfig::new(Preset::V4_PRO, AttentionBackend::FlashMla, 64, 32)?;
    let heads = config.rank(8)?.preset.heads;
    let padded_heads = config.backend.padded_query_heads(heads)?;
    let prologue = Prologue::new(heads, padded_heads);

    // The cache, the pool of its blocks, and the rotary table.
    let mut kv_cache = config.empty_cache(&device)?;
    let mut pool = BlockPool::new(config.cache)?;
    let sequence = pool.open();
    let table = Rotary::WINDOW.tensor(4096, &device);

    // A prefill of 100 tokens, then two decode steps.
    for tokens in [100, 1, 1] {
        let step = StepMetadata::next(&mut pool, &[sequence], tokens, 32, &table)?;
        let q = Tensor::<3>::random([tokens, heads, HEAD_DIM], Distribution::Default, &device);
        let kv = Tensor::<2>::random([tokens, HEAD_DIM], Distribution::Default, &device);
        let q_out = prologue.run(q, kv, &step.tokens, &mut kv_cache)?;
        println!("{tokens} tokens: q_out {:?} {:?}", q_out.dims(), q_out.dtype());
    }

    // What an attention kernel would read of the newest two tokens.
    let newest = Tensor::<1, Int>::from_ints([100, 101], &device);
    let step = StepMetadata::next(&mut pool, &[sequence], 0, 32, &table)?;
    let keys = Gather::new().tokens(&kv_cache, newest, step.block_table)?;
    println!("keys {:?}, {}", keys.dims(), keys.slice([0..1, 0..3]));
    Ok(())
}
