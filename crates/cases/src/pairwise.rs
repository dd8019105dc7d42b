//! Choices crossed with each other.

use fastrand::Rng;
use std::collections::HashSet;

/// Two choices and a value of each.
type Pair = (usize, usize, usize, usize);

/// Choices, of which the i-th is below `values[i]`, in which every pair of values that can meet does: one that is among
/// the `valid` choices of thousands at random.
pub fn cover<const N: usize>(
    values: [usize; N],
    valid: impl Fn(&[usize; N]) -> bool,
) -> Vec<[usize; N]> {
    let rng = &mut Rng::with_seed(0);
    let candidates: Vec<[usize; N]> = (0..4000)
        .map(|_| values.map(|values| rng.usize(..values)))
        .filter(|choice| valid(choice))
        .collect();
    let mut missing: HashSet<Pair> = candidates.iter().flat_map(pairs).collect();
    let mut cover = Vec::new();
    while !missing.is_empty() {
        let gain = |choice: &&[usize; N]| pairs(choice).filter(|p| missing.contains(p)).count();
        let Some(best) = candidates.iter().max_by_key(gain) else { break };
        pairs(best).for_each(|pair| {
            missing.remove(&pair);
        });
        cover.push(*best);
    }
    cover
}

fn pairs<const N: usize>(choice: &[usize; N]) -> impl Iterator<Item = Pair> {
    let choice = *choice;
    (0..N).flat_map(move |i| (i + 1..N).map(move |j| (i, choice[i], j, choice[j])))
}
