//! Matrix products, by what the device is good at.

use burn::tensor::Tensor;
use mla_prologue_kernel::Lanes;
use std::ops::Range;

/// `a` `[batch, m, k]` times `b` `[batch, k, n]`.
pub fn batched(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    if has_planes(&a) {
        return a.matmul(b);
    }
    // Burn's product is made for the planes of a GPU; where there are none it takes a hundred times as long
    // as multiplying and adding, in pieces that fit memory.
    let [batch, m, k] = a.dims();
    let [.., n] = b.dims();
    let piece = |batches: Range<usize>, rows: Range<usize>| {
        let a = a.clone().slice([batches.clone(), rows.clone(), 0..k]);
        let b = b.clone().slice([batches.clone(), 0..k, 0..n]);
        let sum = (a.unsqueeze_dim::<4>(3) * b.unsqueeze_dim::<4>(1)).sum_dim(2);
        sum.reshape([batches.len(), rows.len(), n])
    };
    let rows = (PIECE / (k * n)).clamp(1, m);
    let batches = (PIECE / (rows * k * n)).clamp(1, batch);
    let of_rows = |batches: Range<usize>| {
        let pieces = pieces(m, rows).map(|rows| piece(batches.clone(), rows));
        Tensor::cat(pieces.collect(), 1)
    };
    Tensor::cat(pieces(batch, batches).map(of_rows).collect(), 0)
}

/// Products of a piece.
const PIECE: usize = 1 << 23;

fn pieces(all: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..all).step_by(size).map(move |first| first..(first + size).min(all))
}

/// `x` `[tokens, k]` times `weight` `[k, n]`.
pub fn project(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    batched(x.unsqueeze(), weight.unsqueeze()).squeeze_dim(0)
}

fn has_planes(tensor: &Tensor<3>) -> bool {
    let device = mla_prologue_burn::kernel_device(&tensor.device());
    device.is_ok_and(|device| device.strategy().lanes == Lanes::Plane)
}
