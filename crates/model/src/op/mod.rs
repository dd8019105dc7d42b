//! The operators on Burn's tensors.

mod backend;
mod check;
mod padded;
mod prologue;
mod reader;

pub use backend::PrologueOps;
pub use padded::PaddedQueries;
pub use prologue::{Prologue, Tokens};
pub use reader::Reader;

use burn::{
    backend::{Dispatch, DispatchDevice},
    tensor::{DType, Device, Tensor},
};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{Half, Invalid};

/// The device that Burn's tensors live on, by the names of
/// [`mla_prologue_kernel::Device::open`]; `auto` is what the environment variable `BURN_DEVICE` names,
/// if it is set, and else the first that can be used of CUDA, ROCm, hardware Vulkan and the CPU.
///
/// Burn's own default takes the first runtime that is compiled in without looking whether it works.
///
/// # Errors
/// A name that is none, or a device that cannot be used here, with the reason.
///
/// ```
/// let device = mla_prologue_model::device("cpu")?;
/// assert!(mla_prologue_model::device("cuda:99").is_err());
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn device(name: &str) -> Result<Device> {
    let set = std::env::var("BURN_DEVICE").ok().filter(|set| name == "auto" && !set.is_empty());
    let device = mla_prologue_kernel::Device::open(set.as_deref().unwrap_or(name))?;
    Ok(Device::new(device.cubecl().clone()))
}

/// The kernel's name of a device of Burn's.
pub(crate) fn kernel_device(device: &Device) -> Result<mla_prologue_kernel::Device> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => mla_prologue_kernel::Device::of(device),
        #[allow(
            unreachable_patterns,
            reason = "there are others where another crate asks for them"
        )]
        other => Err(Invalid::new("the device", format!("{other:?}"), check::CUBE).into()),
    }
}

/// Rounds f32 values to 16 bits, to nearest even, on every device: Burn's own cast does not work on a
/// CPU without such instructions. A tensor of that type already is returned as it is.
///
/// # Errors
/// A tensor of another type, on an autodiff device, or whose values are no multiple of 8.
///
/// ```
/// # use burn::tensor::{DType, Tensor};
/// # use mla_prologue_model::{device, round, widen};
/// # use mla_prologue_operator::Half;
/// let x = Tensor::<1>::from_floats([1.0, 1.001953125, -2.0, 0.0, 3.0, 0.1, 5.0, 6.0], &device("cpu")?);
/// let x = round(x, Half::Bf16)?;
/// assert_eq!(x.dtype(), DType::BF16);
/// assert_eq!(widen(x)?.into_data().try_to_vec::<f32>().expect("f32")[..3], [1.0, 1.0, -2.0]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn round<const D: usize>(x: Tensor<D>, half: Half) -> Result<Tensor<D>> {
    if x.dtype() == backend::dtype(half) {
        return Ok(x);
    }
    check::dtype("the tensor", &x, &[DType::F32, backend::dtype(half)])?;
    convertible(&x)?;
    Ok(Tensor::from_dispatch(Dispatch::round_to_half(x.into_dispatch(), half)))
}

/// Converts 16-bit values to f32, exactly, on every device. An f32 tensor is returned as it is.
///
/// # Errors
/// A tensor of another type, on an autodiff device, or whose values are no multiple of 8.
pub fn widen<const D: usize>(x: Tensor<D>) -> Result<Tensor<D>> {
    if x.dtype() == DType::F32 {
        return Ok(x);
    }
    let half = check::half("the tensor", &x)?;
    convertible(&x)?;
    Ok(Tensor::from_dispatch(Dispatch::widen_from_half(x.into_dispatch(), half)))
}

fn convertible<const D: usize>(x: &Tensor<D>) -> Result<()> {
    check::backend("the tensor", x)?;
    let values = x.shape().num_elements();
    match values.is_multiple_of(8) {
        true => Ok(()),
        false => Err(Invalid::new("the size of the tensor", values, "a multiple of 8").into()),
    }
}
