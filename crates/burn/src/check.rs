//! What is checked of a tensor before an operator sees it.

use burn::{
    backend::{DispatchAutodiffContext, DispatchTensorKind},
    tensor::{DType, Device, Int, Tensor, kind::Basic},
};
use mla_prologue_kernel::{Error, Result};
use mla_prologue_operator::{Float16, Index, Invalid, Kind, RotaryType};

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
            reason = "there are other backends where another crate asks for them"
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
    Err(Invalid::dtype(name, dtype.name(), names.join(" or ")).into())
}

/// A 16-bit type.
pub fn float16<const D: usize>(name: &str, tensor: &Tensor<D>) -> Result<Float16> {
    Ok(match dtype(name, tensor, &[DType::BF16, DType::F16])? {
        DType::F16 => Float16::F16,
        _ => Float16::Bf16,
    })
}

/// The type of a rotary table.
pub fn rotary<const D: usize>(name: &str, tensor: &Tensor<D>) -> Result<RotaryType> {
    Ok(match dtype(name, tensor, &[DType::F32, DType::BF16, DType::F16])? {
        DType::BF16 => RotaryType::Bf16,
        DType::F16 => RotaryType::F16,
        _ => RotaryType::F32,
    })
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
    Err(Invalid::shape(name, format_args!("{dims:?}"), format_args!("{wanted:?}")).into())
}

/// Reads a tensor of indices back from its device, as bytes.
pub fn read_back(tensor: &Tensor<1, Int>) -> Result<Vec<u8>> {
    let data = tensor.clone().try_into_data().map_err(|error| Error::Failed {
        doing: "reading indices back",
        reason: error.to_string(),
    });
    Ok(data?.as_bytes().to_vec())
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
    let error = Invalid::new(format_args!("the device of {name}"), value, must);
    Err(error.of(Kind::Device).into())
}
