use crate::as_option;
use crate::report::{Report, table};
use clap::Args;
use mla_prologue_cases::{Error, Result};
use mla_prologue_model::{AttentionBackend, Preset};
use mla_prologue_operator::Invalid;
use serde_json::json;

#[derive(Args)]
pub struct Plan {
    /// The model: v4-flash or v4-pro
    #[arg(long, default_value = "v4-pro")]
    pub model: String,
    /// Ranks of the tensor-parallel group
    #[arg(long, value_name = "RANKS", default_value_t = 1, allow_negative_numbers = true)]
    pub tp: usize,
    /// The attention kernel: flashmla, flashinfer, aiter or any
    #[arg(long, default_value = "flashmla")]
    pub backend: String,
    /// Tokens of a call
    #[arg(long, default_value_t = 4096, allow_negative_numbers = true)]
    pub tokens: usize,
    #[command(flatten)]
    pub report: Report,
}

/// The attention backend of that name.
pub fn backend(name: &str) -> Result<AttentionBackend> {
    let names = AttentionBackend::ALL.map(AttentionBackend::name).join(", ");
    let unknown = || Invalid::new("--backend", name, format_args!("one of {names}"));
    Ok(AttentionBackend::named(name).ok_or_else(unknown)?)
}

/// Shows what each rank of a tensor-parallel group holds.
pub fn plan(args: &Plan) -> Result<()> {
    args.report.check(&[], &[])?;
    let names = Preset::ALL.map(|preset| preset.name).join(" or ");
    let preset =
        Preset::named(&args.model).ok_or_else(|| Invalid::new("--model", &args.model, names))?;
    let backend = backend(&args.backend)?;
    let plan = mla_prologue_model::Plan::new(preset, args.tp, backend).map_err(Error::from);
    let plan = plan.map_err(as_option("the world size", "--tp"))?;
    let bytes = plan.q_out_bytes(args.tokens).map_err(Error::from);
    let bytes = bytes.map_err(as_option("tokens", "--tokens"))?;
    let cache = plan.cache(64, 1)?;
    let rows = plan.ranks().map(|rank| {
        vec![
            rank.index.to_string(),
            format!("{}..{}", rank.first_head, rank.first_head + rank.heads),
            rank.heads.to_string(),
            plan.padded_heads.to_string(),
            format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        ]
    });
    let mut text = format!(
        "{} with {} heads on {} ranks, attention by {}, {} tokens a call\n\n",
        preset.name,
        preset.heads,
        plan.world_size,
        backend.name(),
        args.tokens
    );
    text += &table(&["rank", "heads", "live", "padded", "q_out"], rows);
    text += &format!(
        "\ncache: blocks of 64 tokens take {} bytes and lie {} bytes apart\n",
        64 * 584,
        cache.block_stride
    );
    let ranks = plan.ranks().map(
        |rank| json!({"rank": rank.index, "first_head": rank.first_head, "heads": rank.heads}),
    );
    let json = json!({
        "model": preset.name,
        "backend": backend.name(),
        "world_size": plan.world_size,
        "live_heads": plan.live_heads,
        "padded_heads": plan.padded_heads,
        "tokens": args.tokens,
        "q_out_bytes": bytes,
        "block_stride": cache.block_stride,
        "ranks": ranks.collect::<Vec<_>>(),
    });
    args.report.write(&text, &json)
}
