//! Conversions between f32 and 16 bits, which work on every device.

use crate::{
    check,
    tensors::{self, device, empty, expected, packed},
};
use burn::{
    backend::{
        Backend, Dispatch, TensorMetadata, backend_extension, fusion::custom::TensorSpec,
        tensor::FloatTensor,
    },
    tensor::{DType, Tensor},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use mla_prologue_kernel::{Result, convert};
use mla_prologue_operator::{Float16, Invalid};

/// Rounds f32 values to 16 bits, to nearest even, on every device: Burn's own cast does not work on a
/// CPU without such instructions. A tensor of that type already is returned as it is.
///
/// # Errors
/// A tensor of another type, on an autodiff device, or whose values are no multiple of 8.
///
/// ```
/// # use burn::tensor::{DType, Tensor};
/// # use mla_prologue_burn::{device, round, widen};
/// # use mla_prologue_operator::Float16;
/// let x = Tensor::<1>::from_floats([1.0, 1.001953125, -2.0, 0.0, 3.0, 0.1, 5.0, 6.0], &device("cpu")?);
/// let x = round(x, Float16::Bf16)?;
/// assert_eq!(x.dtype(), DType::BF16);
/// assert_eq!(widen(x)?.into_data().try_to_vec::<f32>().expect("f32")[..3], [1.0, 1.0, -2.0]);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
pub fn round<const D: usize>(x: Tensor<D>, dtype: Float16) -> Result<Tensor<D>> {
    if x.dtype() == tensors::dtype(dtype) {
        return Ok(x);
    }
    check::dtype("the tensor", &x, &[DType::F32, tensors::dtype(dtype)])?;
    convertible(&x)?;
    Ok(Tensor::from_dispatch(Dispatch::round(x.into_dispatch(), dtype)))
}

/// Converts 16-bit values to f32, exactly, on every device. An f32 tensor is returned as it is.
///
/// # Errors
/// A tensor of another type, on an autodiff device, or whose values are no multiple of 8.
pub fn widen<const D: usize>(x: Tensor<D>) -> Result<Tensor<D>> {
    if x.dtype() == DType::F32 {
        return Ok(x);
    }
    let dtype = check::float16("the tensor", &x)?;
    convertible(&x)?;
    Ok(Tensor::from_dispatch(Dispatch::widen(x.into_dispatch(), dtype)))
}

fn convertible<const D: usize>(x: &Tensor<D>) -> Result<()> {
    check::backend("the tensor", x)?;
    let values = x.shape().num_elements();
    match values.is_multiple_of(8) {
        true => Ok(()),
        false => Err(Invalid::new("the size of the tensor", values, "a multiple of 8").into()),
    }
}

/// The conversions for a backend. [`round`] and [`widen`] check types before they call them.
#[backend_extension(Cube, Fusion)]
pub trait ConvertOps: Backend {
    /// f32 values rounded to 16 bits, to nearest even.
    #[fusion(meta = |x, dtype| TensorSpec::new(x.shape.clone(), tensors::dtype(*dtype)))]
    fn round(x: FloatTensor<Self>, dtype: Float16) -> FloatTensor<Self>;

    /// 16-bit values as f32, exactly.
    #[fusion(meta = |x, _dtype| TensorSpec::new(x.shape.clone(), DType::F32))]
    fn widen(x: FloatTensor<Self>, dtype: Float16) -> FloatTensor<Self>;
}

impl ConvertOps for CubeBackend {
    fn round(x: CubeTensor, dtype: Float16) -> CubeTensor {
        let out = empty(&x, x.shape(), tensors::dtype(dtype));
        let (device, values) = (device(&x), x.shape().num_elements());
        expected(convert::round(&device, values, dtype, &packed(x), &out.handle));
        out
    }

    fn widen(x: CubeTensor, dtype: Float16) -> CubeTensor {
        let out = empty(&x, x.shape(), DType::F32);
        let (device, values) = (device(&x), x.shape().num_elements());
        expected(convert::widen(&device, values, dtype, &packed(x), &out.handle));
        out
    }
}
