use crate::{Comparison, Result, Rule};
use mla_prologue_kernel::{self as kernel, Device};
use std::path::Path;

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

    /// Why it cannot run attention, if it cannot.
    pub fn refuses_attention(&self) -> Option<kernel::Error> {
        match self {
            Self::Reference => None,
            Self::Device(device) => kernel::attend::check_device(device).err(),
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

    /// What a call's tensors hold after it was run, on a copy of them.
    ///
    /// # Errors
    /// A device that fails.
    pub fn result<C: Runnable>(&self, call: &C) -> Result<C::Tensors> {
        let mut call = call.clone();
        self.run(&mut call)?;
        Ok(call.into_tensors())
    }
}

/// A call of some operator, which can be run and judged.
pub trait Runnable: Clone {
    /// Its tensors.
    type Tensors;

    /// Runs it by the reference.
    fn run_reference(&mut self);

    /// Runs it by the kernel on a device.
    ///
    /// # Errors
    /// A device that fails.
    fn run_on(&mut self, device: &Device) -> kernel::Result<()>;

    /// The tensors as they are.
    fn into_tensors(self) -> Self::Tensors;

    /// Compares tensors that somebody wrote with this call's, after the reference ran it.
    fn compare(&self, got: &Self::Tensors, rule: Rule) -> Comparison;

    /// Reads the tensors that somebody wrote for this call.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else.
    fn read_output(&self, path: &Path) -> Result<Self::Tensors>;

    /// The rule for what somebody else wrote.
    fn foreign_rule() -> Rule;
}

macro_rules! runnable {
    ($($operator:ident: $foreign:expr),+) => {
        $(impl Runnable for mla_prologue_operator::$operator::Call {
            type Tensors = mla_prologue_operator::$operator::Tensors<Vec<u8>>;

            fn run_reference(&mut self) {
                mla_prologue_reference::$operator::run(self);
            }

            fn run_on(&mut self, device: &Device) -> kernel::Result<()> {
                kernel::$operator::run(device, self)
            }

            fn into_tensors(self) -> Self::Tensors {
                Self::into_tensors(self)
            }

            fn compare(&self, got: &Self::Tensors, rule: Rule) -> Comparison {
                crate::$operator::compare(self, got, rule)
            }

            fn read_output(&self, path: &Path) -> Result<Self::Tensors> {
                crate::$operator::read_output(path, self.problem())
            }

            fn foreign_rule() -> Rule {
                $foreign
            }
        })+
    };
}
// Another prologue has the same arithmetic; another attention kernel has sums in an order of its own.
runnable!(prologue: Rule::Exact, attend: Rule::Bound);
