//! What is checked of a tensor before an operator sees it.

use super::backend::half as half_of;
use burn::{
    backend::{DispatchAutodiffContext, DispatchTensorKind},
    tensor::{DType, Device, Tensor, kind::Basic},
};
use mla_prologue_kernel::Result;
use mla_prologue_operator::{Half, Index, Invalid};

/// Where tensors must be.
pub const CUBE: &str = "on CUDA, ROCm, Vulkan or CubeCL's CPU";

/// The tensor must be of CubeCL's backend, and without gradients.
pub fn backend<const D: usize, K: Basic>(name: &str, tensor: &Tensor<D, K>) -> Result<()> {
    let tensor = tensor.clone().into_dispatch();
    if tensor.autodiff != DispatchAutodiffContext::Disabled {
        let must =
            "on a device without autodiff: the operator is for inference and has no gradient";
        return Err(Invalid::new(name, "on an autodiff device", must).into());
    }
    match tensor.kind {
        DispatchTensorKind::Cube(_) => Ok(()),
        #[allow(
            unreachable_patterns,
            reason = "there are others where another crate asks for them"
        )]
        _ => Err(Invalid::new(name, "on another backend", CUBE).into()),
    }
}

/// The tensor's type must be one of these.
pub fn dtype<const D: usize, K: Basic>(
    name: &str,
    tensor: &Tensor<D, K>,
    types: &[DType],
) -> Result<DType> {
    let dtype = tensor.dtype();
    if types.contains(&dtype) {
        return Ok(dtype);
    }
    let names: Vec<String> = types.iter().map(|dtype| dtype.name().to_string()).collect();
    let name = format_args!("the type of {name}");
    Err(Invalid::new(name, dtype.name(), names.join(" or ")).into())
}

/// A 16-bit type.
pub fn half<const D: usize>(name: &str, tensor: &Tensor<D>) -> Result<Half> {
    let dtype = dtype(name, tensor, &[DType::BF16, DType::F16])?;
    Ok(half_of(dtype).unwrap_or_default())
}

/// A type of indices.
pub fn index<const D: usize, K: Basic>(name: &str, tensor: &Tensor<D, K>) -> Result<Index> {
    Ok(match dtype(name, tensor, &[DType::I64, DType::I32])? {
        DType::I32 => Index::I32,
        _ => Index::I64,
    })
}

/// The tensor's shape must be this.
pub fn shape<const D: usize, K: Basic>(
    name: &str,
    tensor: &Tensor<D, K>,
    wanted: [usize; D],
) -> Result<()> {
    let dims = tensor.dims();
    if dims == wanted {
        return Ok(());
    }
    let name = format_args!("the shape of {name}");
    Err(Invalid::new(name, format_args!("{dims:?}"), format_args!("{wanted:?}")).into())
}

/// The tensor must be on this device, which an operator's other tensors are on.
pub fn same_device<const D: usize, K: Basic>(
    name: &str,
    tensor: &Tensor<D, K>,
    device: &Device,
) -> Result<()> {
    backend(name, tensor)?;
    if tensor.device() == *device {
        return Ok(());
    }
    let value = format!("{:?}", tensor.device());
    let must = format!("{device:?}, where the cache is");
    Err(Invalid::new(format_args!("the device of {name}"), value, must).into())
}
