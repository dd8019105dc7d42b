//! What `attend` refuses, and how its output is judged.

use crate::{draft::Draft, program, refused};
use rstest::rstest;
use safetensors::{Dtype, SafeTensors};
use std::fs;

/// q [5, 8, 512] of which 3 heads attend, 65 slots of blocks of 16, lens, sinks and a rotation.
const EXAMPLE: &str = "examples/attend.safetensors";

fn example() -> Draft {
    Draft::of(EXAMPLE)
}

#[rstest]
#[case::no_queries(example().without("q"), "the tensor q is missing; it must be in the file")]
#[case::no_slots(example().without("slots").shaped("block_table", Dtype::I32, &[5, 2]), "lens is given; it must be absent with block_table")]
#[case::no_window(example().without("slots").without("lens").shaped("block_table", Dtype::I32, &[5, 2]), "window is missing from the metadata; it must be a number of tokens, 1 or more")]
#[case::no_window_at_all(example().without("slots").without("lens").shaped("block_table", Dtype::I32, &[5, 2]).with("window", "0"), "window is 0; it must be from 1 to below 2^31")]
#[case::sequences(example().without("slots").without("lens").shaped("block_table", Dtype::I32, &[3, 2]).with("window", "4"), "the row count of block_table is 3; it must be a divisor of the 5 tokens")]
#[case::no_block_size(example().without("block_size"), "block_size is missing from the metadata; it must be a number of tokens, 1 or more")]
#[case::no_heads(example().with("heads", "0"), "heads is 0; it must be from 1 to the 8 heads of q")]
#[case::more_heads_than_there_are(example().with("heads", "9"), "heads is 9; it must be from 1 to the 8 heads of q")]
#[case::too_few_padded(example().with("padded_heads", "2"), "padded_heads is 2; it must be at least the 3 heads that attend")]
#[case::scale(example().with("scale", "inf"), "scale is inf; it must be a number that is finite in f32")]
#[case::sinks(example().shaped("sinks", Dtype::F32, &[2]), "the shape of sinks is [2]; it must be [3]")]
#[case::no_second_cache(example().shaped("extra_slots", Dtype::I32, &[5, 3]), "extra_block_size is missing from the metadata")]
#[case::second_cache(example().with("extra_block_size", "0").shaped("extra_kv_cache", Dtype::U8, &[1, 584]).shaped("extra_slots", Dtype::I32, &[5, 3]), "extra_block_size is 0; it must be 1 or more")]
#[case::stride_of_second_cache(example().with("extra_block_size", "2").shaped("extra_kv_cache", Dtype::U8, &[1, 584]).shaped("extra_slots", Dtype::I32, &[5, 3]), "the block stride of extra_kv_cache is 584; it must be a multiple of 8 and at least 1168 bytes")]
#[case::no_blocks(example().shaped("kv_cache", Dtype::U8, &[0, 9344]), "the block count of kv_cache is 0; it must be 1 or more, for 65 entries a token")]
#[case::useless_positions(example().without("cos_sin_cache"), "positions is given; it must be absent without cos_sin_cache and block_table")]
#[case::no_positions(example().without("positions"), "the tensor positions is missing; it must be in the file")]
#[case::useless_order(example().without("cos_sin_cache").without("positions").with("rotary_layout", "halves"), "rotary_layout is halves; it must be absent without cos_sin_cache")]
#[case::position(example().index("positions", 1, 60), "positions[1] is 60; it must be from 0 to below the 60 rows of cos_sin_cache")]
#[case::key_of_the_prologue(example().with("eps", "1"), "eps is an unknown metadata key; it must be one of block_size,")]
#[case::kv_scale(example().with("kv_scale", "1"), "kv_scale is 1; it must be absent with cache_format fp8_ds_mla")]
fn bad_input_is_named(#[case] draft: Draft, #[case] message: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let input = draft.write(folder.path());
    let output = folder.path().join("out.safetensors");
    let [input, out] = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    let text = refused(&["attend", input, out, "--device", "cpu"], 2);
    assert!(text.contains(message), "{text}");
    let names: Vec<_> = fs::read_dir(folder.path()).expect("the folder").collect();
    assert_eq!(names.len(), 1, "only the input is there: {names:?}");
}

#[test]
fn a_length_above_its_list_is_refused() {
    let draft = example().shaped("lens", Dtype::I64, &[5]).index("lens", 4, 66);
    let folder = tempfile::tempdir().expect("a folder");
    let input = draft.write(folder.path());
    let text = refused(&["verify", input.to_str().expect("UTF-8")], 2);
    assert!(text.contains("lens[4] is 66; it must be from 0 to the 65 slots of a token"), "{text}");
}

#[test]
fn an_output_is_judged_by_verify_against() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.safetensors");
    let out = out.to_str().expect("UTF-8");
    assert!(program(&["attend", EXAMPLE, out, "--device", "cpu"]).status.success());
    let good = program(&["verify", EXAMPLE, "--against", out, "--json", "-"]);
    assert_eq!(good.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!((&report["rule"], &report["different"]), (&"bound".into(), &0.into()));
    let worst = report["problems"][0]["worst"].as_f64().expect("a number");
    assert!((0.1..0.5).contains(&worst), "{worst}");
    // The last value of `out`, padding: no bit of it may be set.
    let mut bytes = fs::read(out).expect("the output");
    let file = SafeTensors::deserialize(&bytes).expect("the output");
    let end = bytes.len() - file.tensor("max").expect("max").data().len() * 2;
    bytes[end - 1] = 0x80;
    fs::write(out, bytes).expect("the output");
    let bad = program(&["verify", EXAMPLE, "--against", out]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stdout).contains("DIFFERENT"));
}
