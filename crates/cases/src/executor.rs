use crate::{Result, prologue::Rule};
use mla_prologue_kernel::{self as kernel, Device};
use mla_prologue_operator::prologue::{Call, Tensors};
use mla_prologue_reference as reference;

/// What runs a call: the reference on the CPU, or the kernel on a device.
#[derive(Debug)]
pub enum Executor {
    /// The reference: the unfused chain.
    Reference,
    /// The fused kernel.
    Device(Device),
}

impl Executor {
    /// The executor of that name: `reference`, or a device.
    ///
    /// # Errors
    /// An unknown name, or a device that cannot be used here.
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

    /// How alike the reference its results must be.
    pub fn rule(&self) -> Rule {
        match self {
            Self::Reference => Rule::Exact,
            Self::Device(device) => Rule::of(device.runtime()),
        }
    }

    /// Runs a call in place.
    ///
    /// # Errors
    /// A device that fails.
    pub fn run(&self, call: &mut Call) -> Result<()> {
        match self {
            Self::Reference => reference::prologue::run(call),
            Self::Device(device) => kernel::prologue::run(device, call)?,
        }
        Ok(())
    }

    /// What a call's tensors hold after it was run, on a copy of them.
    ///
    /// # Errors
    /// A device that fails.
    pub fn result(&self, call: &Call) -> Result<Tensors<Vec<u8>>> {
        let mut call = call.clone();
        self.run(&mut call)?;
        Ok(call.into_tensors())
    }
}
