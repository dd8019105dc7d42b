//! Attention of one head over some of its entries, and how such parts are merged.

use crate::exp2::exp;
use mla_prologue_operator::HEAD_DIM;

/// Attention of one head over some entries, not yet divided by the sum of the weights.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The largest score.
    pub max: f32,
    /// The sum of the weights, each relative to that of the largest score.
    pub sum: f32,
    /// The weighted sum of the values.
    pub values: Vec<f32>,
}

impl Partial {
    /// A chunk: the scores of its entries, one or more, and their values.
    pub fn of_chunk(scores: &[f32], values: &[Vec<f32>]) -> Self {
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| exp(score - max)).collect();
        let mut sum = 0.0;
        let mut total = vec![0.0; HEAD_DIM];
        for (weight, value) in weights.iter().zip(values) {
            sum += weight;
            for (total, value) in total.iter_mut().zip(value) {
                *total = weight.mul_add(*value, *total);
            }
        }
        Self { max, sum, values: total }
    }

    /// The entries of both, those of `next` after the others.
    pub fn merge(&mut self, next: &Self) {
        let max = self.max.max(next.max);
        let (a, b) = (exp(self.max - max), exp(next.max - max));
        self.sum = self.sum.mul_add(a, next.sum * b);
        for (value, next) in self.values.iter_mut().zip(&next.values) {
            *value = value.mul_add(a, next * b);
        }
        self.max = max;
    }

    /// The output: the values divided by the sum of the weights, in which the sink takes part; `None` where it takes
    /// everything.
    pub fn output(mut self, sink: Option<f32>) -> Option<Vec<f32>> {
        if let Some(sink) = sink {
            // A head that is NaN stays it.
            if sink == f32::INFINITY && !self.sum.is_nan() {
                return None;
            }
            let max = self.max.max(sink);
            let (a, b) = (exp(self.max - max), exp(sink - max));
            self.sum = self.sum.mul_add(a, b);
            self.values.iter_mut().for_each(|value| *value *= a);
        }
        self.values.iter_mut().for_each(|value| *value /= self.sum);
        Some(self.values)
    }
}
