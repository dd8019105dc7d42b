//! Problems from options alone, without a file.

use super::file;
use crate::file::{Described, take_type};
use mla_prologue_operator::{HEAD_DIM, Invalid, ROPE_DIM, Result, prologue::Problem};
use safetensors::Dtype;
use std::collections::HashMap;

/// Options of [`problem`] about tensors, besides a file's metadata keys: the name, its values, the
/// first of which is the default, and what it means.
pub const TENSOR_KEYS: [(&str, &str, &str); 6] = [
    ("heads", "1 or more", "heads of q"),
    ("dtype", "bf16, f16", "the type of q and kv"),
    ("positions", "i64, i32", "the type of positions"),
    ("slot_mapping", "i64, i32", "the type of slot_mapping"),
    ("cos_sin_cache", "f32, bf16, f16", "the type of cos_sin_cache"),
    ("kv_norm_weight", "absent, given", "RMSNorm of kv"),
];

/// Heads, or tokens of a block: the code depends on neither.
const MOST: usize = 65536;

/// The problem that these options describe: metadata keys, and [`TENSOR_KEYS`]. One token; a head padded
/// to 64, blocks of 64 tokens and a small `eps` by default.
///
/// # Errors
/// What is wrong with the options, as for a file.
///
/// ```
/// use mla_prologue_cases::prologue::problem;
/// let options = [("heads".into(), "8".into()), ("fp8".into(), "e4m3fnuz".into())];
/// let query = problem(options.into())?.spec().query;
/// assert_eq!(query.map(|query| (query.heads, query.padded_heads)), Some((8, 64)));
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
pub fn problem(mut keys: HashMap<String, String>) -> Result<Problem> {
    let work = keys.get("work").map_or("both", String::as_str);
    let (q, kv) = (work != "kv", work != "q");
    for (key, used) in [("heads", q), ("slot_mapping", kv), ("kv_norm_weight", kv)] {
        if let Some(value) = keys.get(key).filter(|_| !used) {
            return Err(Invalid::unexpected(key, value, format_args!("absent with work {work}")));
        }
    }
    let heads = keys.remove("heads").unwrap_or("1".into());
    let must = format!("a number from 1 to {MOST}");
    let count = heads.parse().ok().filter(|count| (1..=MOST).contains(count));
    let heads: usize = count.ok_or_else(|| Invalid::new("heads", &heads, &must))?;
    let mut dtype = |key: &str, types: &[Dtype]| {
        let named = take_type(&mut keys, key, types)?;
        Ok::<_, Invalid>(named.unwrap_or(types[0]))
    };
    let float16 = dtype("dtype", &[Dtype::BF16, Dtype::F16])?;
    let positions = dtype("positions", &[Dtype::I64, Dtype::I32])?;
    let slots = dtype("slot_mapping", &[Dtype::I64, Dtype::I32])?;
    let table = dtype("cos_sin_cache", &[Dtype::F32, Dtype::BF16, Dtype::F16])?;
    let weight = match keys.remove("kv_norm_weight").as_deref() {
        None | Some("absent") => false,
        Some("given") => true,
        Some(other) => return Err(Invalid::new("kv_norm_weight", other, "absent or given")),
    };
    let mut tensors =
        vec![("positions", positions, vec![1]), ("cos_sin_cache", table, vec![1, ROPE_DIM])];
    let mut defaults = vec![("eps", "1e-6")];
    if q {
        tensors.push(("q", float16, vec![1, heads, HEAD_DIM]));
        defaults.push(("padded_heads", "64"));
    }
    if kv {
        tensors.push(("kv", float16, vec![1, HEAD_DIM]));
        tensors.push(("slot_mapping", slots, vec![1]));
        defaults.push(("block_size", "64"));
    }
    if weight {
        tensors.push(("kv_norm_weight", float16, vec![HEAD_DIM]));
    }
    for (key, value) in defaults {
        keys.entry(key.into()).or_insert(value.into());
    }
    if kv {
        // Enough for every format. A value that is not a number is refused where the keys are read.
        let tokens = keys["block_size"].parse().unwrap_or(1);
        let tokens = Some(tokens).filter(|tokens| *tokens <= MOST);
        let tokens = tokens.ok_or_else(|| Invalid::new("block_size", &keys["block_size"], must))?;
        tensors.push(("kv_cache", Dtype::U8, vec![1, tokens * 2 * HEAD_DIM]));
    }
    file::problem(&Described::new(tensors), &keys)
}
