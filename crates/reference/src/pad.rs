//! Padding of the query heads to the count that an attention kernel accepts.

use rayon::prelude::*;

/// Copies the `heads` rows of each of `tokens` tokens and zeroes the rows up to `padded_heads`. The rows
/// are bytes of any type: zero is all bits zero.
pub fn pad_heads(tokens: usize, live: &[u8], heads: usize, padded_heads: usize, out: &mut [u8]) {
    if tokens == 0 {
        return;
    }
    let row = live.len() / (tokens * heads);
    let tokens = live.par_chunks_exact(heads * row);
    tokens.zip(out.par_chunks_exact_mut(padded_heads * row)).for_each(|(live, out)| {
        let (copied, padding) = out.split_at_mut(live.len());
        copied.copy_from_slice(live);
        padding.fill(0);
    });
}
