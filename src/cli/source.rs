use super::{args, report::print};
use mla_prologue::{
    Result,
    kernel::{Conversion, source},
    operator::{
        CacheFormat, CacheLayout, Half, Index, Key, Query, RotaryLayout, RotaryTable, RotaryType,
        Spec,
    },
};

/// Prints the code generated for a target, or the targets.
pub fn source(args: &args::Source) -> Result<()> {
    if args.target == "list" {
        return print(&source::targets().map(|target| format!("{target}\n")).collect::<String>());
    }
    let block_size = 64;
    let cache = CacheLayout {
        format: CacheFormat::default(),
        block_size,
        block_stride: block_size * 584,
        num_blocks: 1,
    };
    // Counts and sizes are arguments of the kernel: the code does not depend on them.
    let spec = Spec {
        tokens: 1,
        half: if args.f16 { Half::F16 } else { Half::Bf16 },
        eps: 1e-6,
        positions: Index::I64,
        table: RotaryTable { rows: 1, number: RotaryType::F32, layout: RotaryLayout::Halves },
        query: (args.padded_heads > 0).then(|| Query::new(1, args.padded_heads)),
        key: Some(Key::new(1, cache)),
    };
    let conversion = if args.integer { Conversion::Integer } else { Conversion::Native };
    print(&source::generate(&args.target, &spec.validate()?, conversion)?)
}
