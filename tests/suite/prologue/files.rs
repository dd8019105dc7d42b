//! Files that are damaged: refused or read, never a panic.

use crate::support::file;
use mla_prologue_cases::prologue::parse;
use proptest::prelude::*;
use std::fs;

fn example() -> Vec<u8> {
    fs::read(file("examples/f16.safetensors")).expect("an example")
}

#[test]
fn every_truncation_is_refused() {
    let whole = example();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().expect("8 bytes")) as usize;
    let lengths = (0..header + 64).chain((header..whole.len()).step_by(997));
    for length in lengths {
        assert!(parse(&whole[..length]).is_err(), "{length} bytes of {} were read", whole.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn mangled_files_are_refused_or_read(
        changes in prop::collection::vec((0usize..1200, any::<u8>()), 1..6), cut in 0usize..40
    ) {
        let mut bytes = example();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut * 100);
        // Whether it is still a file that can be read is not the question.
        let _ = parse(&bytes);
    }

    #[test]
    fn headers_with_other_numbers_are_refused_or_read(
        place in 0usize..40, number in prop::sample::select(vec!["0", "1", "-1", "18446744073709551615", "512", "1e9", "null"])
    ) {
        let bytes = example();
        let end = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let header = String::from_utf8(bytes[8..end].to_vec()).expect("JSON");
        // Replaces one of the runs of digits.
        let digits: Vec<_> = header.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
        let at = digits[place % digits.len()];
        let length = header[at..].chars().take_while(char::is_ascii_digit).count();
        let changed = format!("{}{number}{}", &header[..at], &header[at + length..]);
        let mut mangled = (changed.len() as u64).to_le_bytes().to_vec();
        mangled.extend(changed.as_bytes());
        mangled.extend(&bytes[end..]);
        let _ = parse(&mangled);
    }
}
