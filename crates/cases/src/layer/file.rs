use crate::{
    Error, Result,
    file::{load, unreadable, write},
};
use half::{bf16, f16};
use mla_prologue_model::{Preset, Rotary};
use mla_prologue_operator::{HEAD_DIM, Invalid, ROPE_DIM};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    str::FromStr,
};

/// An attention layer in a safetensors file: its sizes, its input, and where its weights are.
#[derive(Clone, Debug)]
pub struct LayerFile {
    /// Where it was read from; the weights are there under `w.`.
    pub path: PathBuf,
    /// Heads, widths and groups.
    pub preset: Preset,
    /// Tokens that a token sees, itself included.
    pub window: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// `[tokens, hidden]`: hidden states at the positions from 0 on.
    pub x: Vec<f32>,
    /// `[tokens, 64]`: the rotary table of these positions.
    pub table: Vec<f32>,
    /// `[tokens, hidden]`: the output that somebody else computed, if the file has it.
    pub y: Option<Vec<f32>>,
}

impl LayerFile {
    /// Reads a layer.
    ///
    /// # Errors
    /// A file that cannot be read, or a tensor or size that is missing or wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = load(path)?;
        Self::parse(&bytes, path).map_err(|error| Error::input(path, error))
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, Invalid> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
        let none = HashMap::new();
        let named = header.metadata().as_ref().unwrap_or(&none);
        let size = |key: &str| {
            let must = "a whole number, 1 or more";
            let size = required::<usize>(named, key, must)?;
            if size == 0 { Err(Invalid::new(key, size, must)) } else { Ok(size) }
        };
        let preset = Preset {
            name: "the layer",
            heads: size("heads")?,
            hidden: size("hidden")?,
            layers: 1,
            q_lora_rank: size("q_lora")?,
            o_groups: size("o_groups")?,
            o_lora_rank: size("o_lora")?,
        };
        let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
        let x = file.tensor("x").map_err(|_| Invalid::new("x", "absent", "in the file"))?;
        let &[tokens, _] = x.shape() else {
            let must = format_args!("[tokens, {}]", preset.hidden);
            return Err(Invalid::shape("x", format!("{:?}", x.shape()), must));
        };
        check_weights(&file, &preset)?;
        let reals = |name: &str, shape: [usize; 2]| {
            file.tensor(name).ok().map(|view| values(name, &view, shape)).transpose()
        };
        let half_row = [tokens, ROPE_DIM / 2];
        let table = match (reals("cos", half_row)?, reals("sin", half_row)?) {
            (Some(cos), Some(sin)) => {
                let rows = cos.chunks(ROPE_DIM / 2).zip(sin.chunks(ROPE_DIM / 2));
                rows.flat_map(|(cos, sin)| [cos, sin].concat()).collect()
            }
            (None, None) => {
                let must = "a finite number above 0, where cos and sin are absent";
                let theta: f64 = required(named, "theta", must)?;
                if !(theta > 0.0 && theta.is_finite()) {
                    return Err(Invalid::new("theta", theta, must));
                }
                Rotary { theta, yarn: None }.table(0..tokens as u32)
            }
            _ => return Err(Invalid::new("cos or sin", "absent", "there, if the other is")),
        };
        Ok(Self {
            path: path.to_owned(),
            preset,
            window: size("window")?,
            eps: eps(named)?,
            x: values("x", &x, [tokens, preset.hidden])?,
            table,
            y: reals("y", [tokens, preset.hidden])?,
        })
    }

    /// Tokens of the input.
    pub fn tokens(&self) -> usize {
        self.x.len() / self.preset.hidden.max(1)
    }
}

/// Writes a layer's output `[tokens, hidden]` as `y`, whole or not at all.
///
/// # Errors
/// A path that is something other than a file, or a file that cannot be written.
pub fn write_layer(path: &Path, y: &[f32], hidden: usize) -> Result<()> {
    let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
    let shape = vec![y.len() / hidden.max(1), hidden];
    write(path, &BTreeMap::new(), &[("y", Dtype::F32, shape, &bytes)])
}

fn required<T: FromStr>(
    named: &HashMap<String, String>,
    key: &str,
    must: &str,
) -> Result<T, Invalid> {
    let value = named.get(key).map_or("absent", String::as_str);
    value.parse().map_err(|_| Invalid::new(key, value, must))
}

fn eps(named: &HashMap<String, String>) -> Result<f32, Invalid> {
    let must = "a finite f32, not negative";
    let eps: f32 = required(named, "eps", must)?;
    if eps.is_finite() && eps >= 0.0 { Ok(eps) } else { Err(Invalid::new("eps", eps, must)) }
}

/// The weights that `mla_prologue_model` will load must be there, in shapes that follow from the sizes.
fn check_weights(file: &SafeTensors, preset: &Preset) -> Result<(), Invalid> {
    let Preset { heads, hidden, q_lora_rank, o_groups, o_lora_rank, .. } = *preset;
    let group = heads / o_groups * HEAD_DIM;
    let weights: [(&str, &[usize]); 8] = [
        ("w.q_a_proj.weight", &[q_lora_rank, hidden]),
        ("w.q_a_norm.weight", &[q_lora_rank]),
        ("w.q_b_proj.weight", &[heads * HEAD_DIM, q_lora_rank]),
        ("w.kv_proj.weight", &[HEAD_DIM, hidden]),
        ("w.kv_norm.weight", &[HEAD_DIM]),
        ("w.sinks", &[heads]),
        ("w.o_a_proj.weight", &[o_groups * o_lora_rank, group]),
        ("w.o_b_proj.weight", &[hidden, o_groups * o_lora_rank]),
    ];
    if !heads.is_multiple_of(o_groups) {
        let must = format_args!("a divisor of the {heads} heads");
        return Err(Invalid::new("o_groups", o_groups, must));
    }
    weights.into_iter().try_for_each(|(name, wanted)| {
        let must = format!("in the file, {wanted:?}");
        let view = file.tensor(name).map_err(|_| Invalid::new(name, "absent", must))?;
        check_shape(name, &view, wanted)?;
        check_type(name, &view)
    })
}

fn check_shape(name: &str, view: &TensorView, wanted: &[usize]) -> Result<(), Invalid> {
    if view.shape() == wanted {
        return Ok(());
    }
    let is = format!("{:?}", view.shape());
    Err(Invalid::shape(name, is, format!("{wanted:?}")))
}

fn check_type(name: &str, view: &TensorView) -> Result<(), Invalid> {
    match view.dtype() {
        Dtype::F32 | Dtype::BF16 | Dtype::F16 => Ok(()),
        other => Err(Invalid::dtype(name, other, "F32, BF16 or F16")),
    }
}

/// A tensor's values as f32.
fn values(name: &str, view: &TensorView, shape: [usize; 2]) -> Result<Vec<f32>, Invalid> {
    check_shape(name, view, &shape)?;
    check_type(name, view)?;
    let data = view.data();
    let float16s = || data.chunks_exact(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    match view.dtype() {
        Dtype::BF16 => Ok(float16s().map(|bits| bf16::from_bits(bits).to_f32()).collect()),
        Dtype::F16 => Ok(float16s().map(|bits| f16::from_bits(bits).to_f32()).collect()),
        _ => {
            let words = data.chunks_exact(4);
            Ok(words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
        }
    }
}
