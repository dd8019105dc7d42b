use crate::{Error, Result, verify::Rule};
use mla_prologue_kernel::Device;
use mla_prologue_operator::{Inputs, Outputs, Problem};

/// One call with its tensors, as little-endian bytes. What the problem has no use for is empty.
#[derive(Clone, Debug)]
pub struct Call {
    /// The shapes and options.
    pub problem: Problem,
    /// `[tokens, heads, 512]`.
    pub q: Vec<u8>,
    /// `[tokens, 512]`.
    pub kv: Vec<u8>,
    /// `[512]`.
    pub kv_norm_weight: Vec<u8>,
    /// `[tokens]`.
    pub positions: Vec<u8>,
    /// `[slots]`.
    pub slot_mapping: Vec<u8>,
    /// `[rows, 64]`.
    pub cos_sin_cache: Vec<u8>,
    /// `[num_blocks, block_stride]`, before the call.
    pub kv_cache: Vec<u8>,
}

/// What a call wrote; empty where it was not computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// `[tokens, padded_heads, 512]`.
    pub q_out: Vec<u8>,
    /// `[num_blocks, block_stride]`.
    pub kv_cache: Vec<u8>,
}

/// What runs a call: the unfused chain on the CPU, or the fused kernel on a device.
#[derive(Debug)]
pub enum Target {
    /// The unfused chain, which is the definition.
    Reference,
    /// The fused kernel.
    Device(Device),
}

impl Target {
    /// The target of that name: `reference`, or a device.
    ///
    /// # Errors
    /// A name that is none, or a device that cannot be used here.
    pub fn open(name: &str) -> Result<Self> {
        if name == "reference" {
            return Ok(Self::Reference);
        }
        let device = Device::open(name).map_err(|error| match error {
            mla_prologue_kernel::Error::Invalid(mut invalid) => {
                invalid.must += "; or reference";
                invalid.into()
            }
            other => other,
        });
        Ok(Self::Device(device?))
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Reference => "reference, the unfused chain".into(),
            Self::Device(device) => format!("{}, {}", device.name(), device.describe()),
        }
    }

    /// How like the definition's its results must be.
    pub fn rule(&self) -> Rule {
        match self {
            Self::Reference => Rule::Exact,
            Self::Device(device) => Rule::of(device.runtime()),
        }
    }

    /// Runs the work of a call.
    ///
    /// # Errors
    /// Inputs that are not as the problem says, or a device that fails.
    pub fn run(&self, problem: &Problem, inputs: &Inputs, outputs: Outputs) -> Result<()> {
        match self {
            Self::Reference => Ok(mla_prologue_reference::prologue(problem, inputs, outputs)?),
            Self::Device(device) => Ok(mla_prologue_kernel::run(device, problem, inputs, outputs)?),
        }
    }
}

impl Call {
    /// The tensors that the call reads.
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs {
            q: &self.q,
            kv: &self.kv,
            kv_norm_weight: &self.kv_norm_weight,
            positions: &self.positions,
            slot_mapping: &self.slot_mapping,
            cos_sin_cache: &self.cos_sin_cache,
        }
    }

    /// What the call writes, before it: `q_out` is full of random bytes, so that what is not written shows.
    ///
    /// # Errors
    /// More than the memory that is there.
    pub fn output(&self) -> Result<Output> {
        let q_out = random_bytes(self.problem.q_out_bytes())?;
        Ok(Output { q_out, kv_cache: self.kv_cache.clone() })
    }

    /// Runs the call.
    ///
    /// # Errors
    /// Inputs that are not as the problem says, or a device that fails.
    pub fn run(&self, target: &Target) -> Result<Output> {
        let mut output = self.output()?;
        target.run(&self.problem, &self.inputs(), output.as_mut())?;
        Ok(output)
    }
}

impl Output {
    /// As the tensors that are written.
    pub fn as_mut(&mut self) -> Outputs<'_> {
        Outputs { q_out: &mut self.q_out, kv_cache: &mut self.kv_cache }
    }
}

/// Random bytes for `q_out`.
///
/// # Errors
/// More than the memory that is there.
fn random_bytes(count: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(count);
    reserved.map_err(|_| Error::Memory { tensor: "q_out".into(), bytes: count })?;
    bytes.resize(count, 0);
    fastrand::Rng::with_seed(count as u64).fill(&mut bytes);
    Ok(bytes)
}
