//! Problems from options alone, without a file.

use super::file;
use crate::file::{Described, take_optional_type, take_type};
use mla_prologue_operator::{HEAD_DIM, Invalid, ROPE_DIM, Result, attend::Problem};
use safetensors::Dtype;
use std::collections::HashMap;

/// Options of [`problem`] about tensors, besides a file's metadata keys: the name, its values, the first of which is the default,
/// and what it means.
pub const TENSOR_KEYS: [(&str, &str, &str); 9] = [
    ("dtype", "bf16, f16", "the type of q"),
    ("slots", "i32, i64", "the type of slots; not with block_table"),
    ("lens", "absent, i32, i64", "the type of lens; not with block_table"),
    ("block_table", "absent, i32, i64", "the type of block_table, in place of slots; with window"),
    ("extra_slots", "absent, i32, i64", "the type of extra_slots, with a second cache"),
    ("extra_lens", "absent, i32, i64", "the type of extra_lens; only with extra_slots"),
    ("sinks", "absent, f32", "a sink for each head"),
    ("positions", "i64, i32", "the type of positions; only with block_table or cos_sin_cache"),
    ("cos_sin_cache", "absent, f32, bf16, f16", "the rotation that is undone, and its type"),
];

const INDEX: [Dtype; 2] = [Dtype::I32, Dtype::I64];
const POSITION: [Dtype; 2] = [Dtype::I64, Dtype::I32];

/// The problem that these options describe: metadata keys, and [`TENSOR_KEYS`]. One token over 128 entries of 64 tokens a block; 16
/// heads by default.
///
/// # Errors
/// What is wrong with the options, as for a file.
///
/// ```
/// use mla_prologue_cases::attend::problem;
/// let problem = problem([("heads".into(), "8".into()), ("sinks".into(), "f32".into())].into())?;
/// assert_eq!((problem.spec().heads, problem.spec().sinks), (8, true));
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
pub fn problem(mut keys: HashMap<String, String>) -> Result<Problem> {
    let heads = keys.get("heads").map_or(Some(16), |text| text.parse().ok());
    let heads = heads
        .filter(|heads| (1..=1 << 16).contains(heads))
        .ok_or_else(|| Invalid::new("heads", &keys["heads"], "a number from 1 to 65536"))?;
    let mut tensors = Vec::new();
    let float16 = take_type(&mut keys, "dtype", &[Dtype::BF16, Dtype::F16])?;
    let float16 = float16.unwrap_or(Dtype::BF16);
    tensors.push(("q", float16, vec![1, heads, HEAD_DIM]));
    // Enough for every format.
    let cache = |block_size: usize| vec![4, block_size.min(1 << 16) * 2 * HEAD_DIM];
    let size =
        |keys: &HashMap<String, String>, key| keys.get(key).and_then(|n: &String| n.parse().ok());
    keys.entry("block_size".into()).or_insert("64".into());
    tensors.push(("kv_cache", Dtype::U8, cache(size(&keys, "block_size").unwrap_or(1))));
    let table = take_optional_type(&mut keys, "block_table", &INDEX)?;
    match (table, take_type(&mut keys, "slots", &INDEX)?) {
        (Some(table), None) => {
            keys.entry("window".into()).or_insert("128".into());
            tensors.push(("block_table", table, vec![1, 4]));
        }
        (Some(_), Some(_)) => {
            return Err(Invalid::unexpected("slots", "given", "absent with block_table"));
        }
        (None, slots) => tensors.push(("slots", slots.unwrap_or(Dtype::I32), vec![1, 128])),
    }
    let mut optional = |keys: &mut _, name, types: &[Dtype], shape: Vec<usize>| {
        let found = take_optional_type(keys, name, types)?;
        tensors.extend(found.map(|dtype| (name, dtype, shape)));
        Ok::<bool, Invalid>(found.is_some())
    };
    optional(&mut keys, "lens", &INDEX, vec![1])?;
    let extra = optional(&mut keys, "extra_slots", &INDEX, vec![1, 512])?;
    optional(&mut keys, "extra_lens", &INDEX, vec![1])?;
    optional(&mut keys, "sinks", &[Dtype::F32], vec![heads])?;
    let types = [Dtype::F32, Dtype::BF16, Dtype::F16];
    let rotated = optional(&mut keys, "cos_sin_cache", &types, vec![1, ROPE_DIM])?;
    let positions = take_type(&mut keys, "positions", &POSITION)?;
    if rotated || table.is_some() || positions.is_some() {
        tensors.push(("positions", positions.unwrap_or(Dtype::I64), vec![1]));
    }
    if extra {
        keys.entry("extra_block_size".into()).or_insert("64".into());
        let block_size = size(&keys, "extra_block_size").unwrap_or(1);
        tensors.push(("extra_kv_cache", Dtype::U8, cache(block_size)));
    }
    file::problem(&Described::new(tensors), &keys)
}
