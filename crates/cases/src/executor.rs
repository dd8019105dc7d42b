use crate::{Result, Rule};
use mla_prologue_kernel::{self as kernel, Device};

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
    pub fn run(&self, call: &mut impl Runnable) -> Result<()> {
        match self {
            Self::Reference => call.run_reference(),
            Self::Device(device) => call.run_on(device)?,
        }
        Ok(())
    }

    /// A copy of a call after it was run.
    ///
    /// # Errors
    /// A device that fails.
    pub fn result<C: Runnable + Clone>(&self, call: &C) -> Result<C> {
        let mut call = call.clone();
        self.run(&mut call)?;
        Ok(call)
    }
}

/// A call of some operator.
pub trait Runnable {
    /// Runs it by the reference.
    fn run_reference(&mut self);

    /// Runs it by the kernel on a device.
    ///
    /// # Errors
    /// A device that fails.
    fn run_on(&mut self, device: &Device) -> kernel::Result<()>;
}

macro_rules! runnable {
    ($($operator:ident),+) => {
        $(impl Runnable for mla_prologue_operator::$operator::Call {
            fn run_reference(&mut self) {
                mla_prologue_reference::$operator::run(self);
            }

            fn run_on(&mut self, device: &Device) -> kernel::Result<()> {
                kernel::$operator::run(device, self)
            }
        })+
    };
}
runnable!(prologue, attend, gather);
