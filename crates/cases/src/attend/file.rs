//! Calls in files.

use super::metadata::KEYS;
use crate::{
    Error, Result,
    file::{
        Described, Dim, Keys, Tensor, float16, load, random_bytes, read_exactly, unreadable, write,
    },
};
use mla_prologue_operator::{
    CacheFormat, HEAD_DIM, Index, Invalid, SCALE_RANGE,
    attend::{
        BlockTable, Call, Entries, Extra, Problem, RotaryTable, SCALE, SlotList, Spec, Tensors,
        Window,
    },
};
use safetensors::{Dtype, SafeTensors};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// Reads a call from a safetensors file.
///
/// # Errors
/// A file that cannot be read, or whose contents are invalid: not safetensors, a tensor or key that is missing, unknown,
/// wrong or without effect, a length or position out of range.
pub fn read(path: &Path) -> Result<Call> {
    parse(&load(path)?).map_err(|error| match error {
        Error::Invalid(invalid) => Error::input(path, invalid),
        other => other,
    })
}

/// Reads a call from the bytes of a safetensors file.
///
/// # Errors
/// The first thing in it that is invalid.
pub fn parse(bytes: &[u8]) -> Result<Call> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let described = file.iter().map(|(name, view)| (name, view.dtype(), view.shape().to_vec()));
    let none = HashMap::new();
    let named = header.metadata().as_ref().unwrap_or(&none);
    let problem = problem(&Described::new(described), named)?;
    let data = |name| file.tensor(name).map_or_else(|_| Vec::new(), |view| view.data().to_vec());
    let tensors = Tensors { out: "", max: "", sum: "", ..Tensors::NAMES }.map(data);
    Ok(Call::new(problem, unwritten(tensors, &problem)?)?)
}

/// The same tensors, with those that the call writes full of what is to be overwritten.
pub(super) fn unwritten(tensors: Tensors<Vec<u8>>, problem: &Problem) -> Result<Tensors<Vec<u8>>> {
    let sizes = problem.sizes();
    Ok(Tensors {
        out: random_bytes("out", sizes.out)?,
        max: random_bytes("max", sizes.max)?,
        sum: random_bytes("sum", sizes.sum)?,
        ..tensors
    })
}

/// The problem that tensors and metadata describe.
pub fn problem(file: &Described, named: &HashMap<String, String>) -> Result<Problem, Invalid> {
    let known = Tensors { sequence_ids: "", out: "", max: "", sum: "", ..Tensors::NAMES };
    let known: Vec<&str> = known.named().map(|(_, name)| name).collect();
    let keys = Keys::new(named, KEYS, &file.names(), &known)?;
    let dtype = file.float16("q")?;
    let [tokens, q_heads, _] =
        file.shape("q", [Dim::Any("tokens"), Dim::Any("heads"), Dim::Is(HEAD_DIM)])?;
    let heads = keys.optional("heads", "a number of heads, 1 or more")?.unwrap_or(q_heads);
    // Before what is as long.
    require_heads(heads, q_heads)?;
    let padded_heads = keys.optional("padded_heads", "a number of heads")?.unwrap_or(heads);
    let format = keys.cache_format()?;
    let must = "a number of tokens, 1 or more";
    let cache = file.cache("kv_cache", format, keys.required("block_size", must)?)?;
    let scale = keys.finite("scale", "a number that is finite in f32")?.unwrap_or(SCALE);
    let kv_scale = keys.real("kv_scale", SCALE_RANGE)?;
    let entries = entries(file, &keys, tokens)?;
    let extra = extra(file, &keys, tokens, format)?;
    let sinks = file.find("sinks").is_some();
    if sinks {
        file.shape("sinks", [Dim::Is(heads)])?;
        file.dtype("sinks", &[Dtype::F32])?;
    }
    let windowed = matches!(entries, Entries::Window(_));
    let (position_type, rotary) = rotation(file, &keys, tokens, windowed)?;
    Spec::new(tokens, heads, cache, entries)
        .q_heads(q_heads)
        .padded_heads(padded_heads)
        .dtype(dtype)
        .scale(scale)
        .kv_scale(kv_scale)
        .extra(extra)
        .sinks(sinks)
        .position_type(position_type)
        .rotary(rotary)
        .stats(true)
        .validate()
}

fn require_heads(heads: usize, q_heads: usize) -> Result<(), Invalid> {
    if (1..=q_heads).contains(&heads) {
        return Ok(());
    }
    Err(Invalid::new("heads", heads, format_args!("from 1 to the {q_heads} heads of q")))
}

/// The list of slots, or the block table with its window.
fn entries(file: &Described, keys: &Keys, tokens: usize) -> Result<Entries, Invalid> {
    if file.find("block_table").is_none() && keys.get("window").is_none() {
        return Ok(Entries::Slots(list(file, ["slots", "lens"], tokens)?));
    }
    file.absent(&["slots", "lens"], "absent with block_table")?;
    let (index_type, [sequences, blocks]) =
        file.index("block_table", [Dim::Any("sequences"), Dim::Any("blocks")])?;
    let window = keys.required("window", "a number of tokens, 1 or more")?;
    let table = BlockTable { sequences, blocks, index_type };
    Ok(Entries::Window(Window::new(window, table)))
}

fn list(file: &Described, names: [&str; 2], tokens: usize) -> Result<SlotList, Invalid> {
    let [slots, lens] = names;
    let (index_type, [_, count]) = file.index(slots, [Dim::Is(tokens), Dim::Any("entries")])?;
    let list = SlotList::new(count).index_type(index_type);
    if file.find(lens).is_none() {
        return Ok(list);
    }
    Ok(list.lens(file.index(lens, [Dim::Is(tokens)])?.0))
}

/// The second cache and its entries, if there are any.
fn extra(
    file: &Described,
    keys: &Keys,
    tokens: usize,
    format: CacheFormat,
) -> Result<Option<Extra>, Invalid> {
    let names = ["extra_kv_cache", "extra_slots", "extra_lens"];
    let given = names.iter().any(|name| file.find(name).is_some());
    if !given && keys.get("extra_block_size").is_none() {
        return Ok(None);
    }
    let block_size = keys.required("extra_block_size", "a number of tokens, 1 or more")?;
    let cache = file.cache("extra_kv_cache", format, block_size)?;
    Ok(Some(Extra { cache, slots: list(file, ["extra_slots", "extra_lens"], tokens)? }))
}

/// The type of the positions, and the table of the rotation that is undone.
fn rotation(
    file: &Described,
    keys: &Keys,
    tokens: usize,
    windowed: bool,
) -> Result<(Index, Option<RotaryTable>), Invalid> {
    let rotated = file.find("cos_sin_cache").is_some();
    keys.refuse(rotated, "rotary_layout", "absent without cos_sin_cache")?;
    if !rotated && !windowed {
        file.absent(&["positions"], "absent without cos_sin_cache and block_table")?;
        return Ok((Index::default(), None));
    }
    let (position_type, _) = file.index("positions", [Dim::Is(tokens)])?;
    let order = keys.table_order()?;
    Ok((position_type, rotated.then(|| file.table(order)).transpose()?))
}

/// The call of the first tokens of another, which has no tensors that all tokens share but caches, block table, sinks and rotary table.
///
/// # Errors
/// More tokens than there are, or a count that the sequences do not divide.
pub fn first_tokens(call: &Call, tokens: usize) -> Result<Call> {
    let spec = *call.problem().spec();
    if tokens > spec.tokens {
        let must = format_args!("at most the {} tokens of the call", spec.tokens);
        return Err(Invalid::new("tokens", tokens, must).into());
    }
    let problem = spec.tokens(tokens).validate()?;
    let all = call.tensors().clone().zip(problem.sizes());
    let tensors = all.map(|(mut bytes, size)| {
        bytes.truncate(size);
        bytes
    });
    Ok(Call::new(problem, tensors)?)
}

/// Writes what a call wrote, whole or not at all. Equal outputs give equal files.
///
/// # Errors
/// A path that is something other than a file, or a file that cannot be written.
pub fn write_output(path: &Path, call: &Call) -> Result<()> {
    write(path, &BTreeMap::new(), &outputs(call.problem().spec(), call.tensors()))
}

/// Reads what somebody's call for `problem` wrote: `out`, `max` and `sum`; the others are empty.
///
/// # Errors
/// A file that cannot be read, or whose tensors are not those of the problem.
pub fn read_output(path: &Path, problem: &Problem) -> Result<Tensors<Vec<u8>>> {
    let none = Tensors::default();
    let wanted = outputs(problem.spec(), &none);
    let mut contents = read_exactly(path, &wanted, &BTreeMap::new())?.into_iter();
    let mut next = || contents.next().unwrap_or_default();
    Ok(Tensors { out: next(), max: next(), sum: next(), ..Tensors::default() })
}

fn outputs<'a>(spec: &Spec, tensors: &'a Tensors<Vec<u8>>) -> Vec<Tensor<'a>> {
    let stats = vec![spec.tokens, spec.heads];
    let out = vec![spec.tokens, spec.padded_heads, HEAD_DIM];
    vec![
        ("out", float16(spec.dtype), out, &tensors.out),
        ("max", Dtype::F32, stats.clone(), &tensors.max),
        ("sum", Dtype::F32, stats, &tensors.sum),
    ]
}
