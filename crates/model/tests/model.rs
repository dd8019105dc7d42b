//! Rotary tables against golden data, padding and plans over all values, pool against a simple model.

use mla_prologue_model::{AttentionBackend, BlockPool, Plan, Preset, Rotary, Sequence};
use mla_prologue_operator::{CacheFormat, CacheLayout};
use proptest::prelude::*;
use rstest::rstest;
use std::collections::HashSet;

/// `rotary.json`: frequencies in f64, and cosines and sines of some positions rounded to f32.
#[rstest]
#[case("plain", Rotary::WINDOW)]
#[case("yarn", Rotary::COMPRESSED)]
fn rotary_tables_are_the_golden_ones(#[case] name: &str, #[case] rotary: Rotary) {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("data/rotary.json")).expect("JSON");
    let golden = &golden[name];
    for (i, frequency) in rotary.frequencies().into_iter().enumerate() {
        let want = golden["inv_freq_f64"][i].as_f64().expect("a number");
        assert!(
            (frequency - want).abs() <= 4.0 * f64::EPSILON * want,
            "pair {i}: {frequency}, want {want}"
        );
    }
    let positions = golden["cos_f32"].as_object().expect("an object").keys();
    for position in positions {
        let row = rotary.table([position.parse().expect("a position")]);
        for (i, value) in row.into_iter().enumerate() {
            let part = if i < 32 { "cos_f32" } else { "sin_f32" };
            let want = golden[part][position][i % 32].as_f64().expect("a number") as f32;
            // A million positions away, the last bit of a frequency is 2^-33 of a turn.
            assert!(
                (value - want).abs() <= 2f32.powi(-24),
                "{part} {position} {i}: {value}, want {want}"
            );
        }
    }
}

#[rstest]
#[case(AttentionBackend::FlashMla, 16, 64)]
#[case(AttentionBackend::FlashMla, 65, 128)]
#[case(AttentionBackend::FlashInfer, 1, 8)]
#[case(AttentionBackend::FlashInfer, 17, 32)]
#[case(AttentionBackend::Aiter, 17, 17)]
fn heads_are_padded_to_what_the_backend_takes(
    #[case] backend: AttentionBackend,
    #[case] live: usize,
    #[case] padded: usize,
) {
    assert_eq!(backend.padded_query_heads(live).expect("few enough"), padded);
}

proptest! {
    #[test]
    fn padding_is_the_least_count_that_is_enough(live in 0usize..200) {
        for backend in AttentionBackend::ALL {
            let padded = backend.padded_query_heads(live).ok();
            let least = match backend.head_counts() {
                Some(counts) => counts.iter().copied().find(|&count| count >= live && live > 0),
                None => Some(live).filter(|&live| live > 0),
            };
            prop_assert_eq!(padded, least);
        }
    }

    #[test]
    fn flashmla_blocks_lie_multiples_of_576_apart(block_size in 1usize..1 << 14) {
        let dense = CacheLayout::new(CacheFormat::default(), block_size, 1);
        let exact = dense.block_stride;
        let stride = dense.align_stride(AttentionBackend::FlashMla.block_alignment()).block_stride;
        prop_assert_eq!(exact, block_size * 584);
        prop_assert!(stride >= exact && stride < exact + 576 && stride.is_multiple_of(576));
    }
}

/// The ranks hold every head once.
#[rstest]
fn ranks_divide_the_heads(
    #[values(Preset::V4_FLASH, Preset::V4_PRO)] preset: Preset,
    #[values(1, 2, 3, 4, 8, 16, 32)] world_size: usize,
) {
    let plan = Plan::new(preset, world_size, AttentionBackend::FlashMla);
    let Ok(plan) = plan else {
        assert!(!preset.o_groups.is_multiple_of(world_size));
        return;
    };
    let heads: Vec<usize> =
        plan.ranks().flat_map(|rank| rank.first_head..rank.first_head + rank.heads).collect();
    assert_eq!(heads, (0..preset.heads).collect::<Vec<_>>());
    assert!(plan.rank(world_size).is_err());
}

fn pool(block_size: usize, num_blocks: usize) -> BlockPool {
    BlockPool::new(CacheLayout::new(CacheFormat::default(), block_size, num_blocks)).expect("valid")
}

#[test]
fn exhaustion_is_an_error_with_numbers_and_takes_nothing() {
    let mut pool = pool(4, 3);
    let sequence = pool.open();
    assert!(pool.append(sequence, usize::MAX).is_err());
    pool.append(sequence, 5).expect("two blocks");
    let error = pool.append(sequence, 8).expect_err("two more are needed, one is there");
    assert_eq!(
        error.to_string(),
        "the need of a sequence is 2 more blocks of 4 tokens for 8 tokens; it must be at most the 1 free ones of 3"
    );
    assert_eq!(pool.free_blocks(), 1);
    assert_eq!(pool.append(sequence, 7).expect("one block"), [5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn a_sequence_is_closed_once() {
    let mut pool = pool(4, 3);
    let sequence = pool.open();
    pool.close(sequence).expect("it is open");
    let error = pool.close(sequence).expect_err("it is closed");
    assert_eq!(
        error.to_string(),
        "the sequence is number 0, which is closed; it must be one that is open"
    );
    assert!(pool.append(sequence, 1).is_err() && pool.window(sequence, 1).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Append(usize, usize),
    Slide(usize, usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Open),
        (0usize..4, 0usize..9).prop_map(|(which, tokens)| Step::Append(which, tokens)),
        (0usize..4, 0usize..9).prop_map(|(which, window)| Step::Slide(which, window)),
        (0usize..4).prop_map(Step::Close),
    ]
}

proptest! {
    /// No two sequences hold one block, none is lost, and every token of a window keeps its slot.
    #[test]
    fn blocks_are_held_once_and_none_is_lost(
        steps in prop::collection::vec(step(), 0..60), block_size in 1usize..5
    ) {
        let total = 6;
        let mut pool = pool(block_size, total);
        // Each open sequence, the slot of each of its tokens, and the first token that it still holds.
        let mut open: Vec<(Sequence, Vec<usize>, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Open => open.push((pool.open(), Vec::new(), 0)),
                Step::Append(which, tokens) if which < open.len() => {
                    let (sequence, slots, _) = &mut open[which];
                    if let Ok(new) = pool.append(*sequence, tokens) {
                        prop_assert_eq!(new.len(), tokens);
                        slots.extend(new);
                    }
                }
                Step::Slide(which, window) if which < open.len() => {
                    let (sequence, slots, first) = &mut open[which];
                    pool.slide(*sequence, window).expect("it is open");
                    *first = slots.len().saturating_sub(window).max(*first);
                    let rest = slots.len() - *first;
                    prop_assert_eq!(pool.window(*sequence, rest).expect("still held"), &slots[*first..]);
                }
                Step::Close(which) if which < open.len() => {
                    pool.close(open.swap_remove(which).0).expect("it is open");
                }
                _ => (),
            }
            let tables = open.iter().map(|(sequence, ..)| pool.block_table(*sequence).expect("it is open"));
            let held: Vec<usize> = tables.flatten().flatten().collect();
            let distinct: HashSet<usize> = held.iter().copied().collect();
            prop_assert_eq!(distinct.len(), held.len());
            prop_assert_eq!(held.len() + pool.free_blocks(), total);
        }
    }
}
