//! Matrix products, by what the device is good at.

use burn::tensor::Tensor;
use mla_prologue_kernel::Lanes;

/// `a` `[batch, m, k]` times `b` `[batch, k, n]`.
pub fn batched(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    if has_planes(&a) {
        return a.matmul(b);
    }
    // Burn's product is made for the planes of a GPU; where there are none it takes a hundred times as long
    // as multiplying and adding, which its Fusion makes one loop of.
    let [batch, m, _] = a.dims();
    let [.., n] = b.dims();
    (a.unsqueeze_dim::<4>(3) * b.unsqueeze_dim::<4>(1)).sum_dim(2).reshape([batch, m, n])
}

/// `x` `[tokens, k]` times `weight` `[k, n]`.
pub fn project(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    batched(x.unsqueeze(), weight.unsqueeze()).squeeze_dim(0)
}

fn has_planes(tensor: &Tensor<3>) -> bool {
    let device = crate::op::kernel_device(&tensor.device());
    device.is_ok_and(|device| device.strategy().lanes == Lanes::Plane)
}
