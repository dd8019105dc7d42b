//! The command line: what it refuses, and how.

mod attend;
mod draft;

use draft::Draft;
use rstest::rstest;
use safetensors::{Dtype, SafeTensors};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Where the examples are.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// An example of the prologue.
pub const BASIC: &str = "examples/basic.safetensors";

/// Runs the program.
pub fn program(words: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_mla-prologue"));
    program.current_dir(ROOT).args(words).output().expect("the program starts")
}

/// Exit code, one line on standard error, nothing on standard output.
pub fn refused(words: &[&str], code: i32) -> String {
    let output = program(words);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    // A Vulkan loader may have something to say of its own.
    let lines: Vec<&str> =
        message.lines().filter(|line| !line.contains("XDG_RUNTIME_DIR")).collect();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {message}");
    assert_eq!(lines.len(), 1, "{words:?}: {message}");
    assert!(output.stdout.is_empty(), "{words:?} printed");
    lines[0].to_owned()
}

// The example: q [4, 8, 512], kv [4, 512], 4 positions and slots, blocks of 64.
#[rstest]
#[case::no_tensor(Draft::new().without("kv"), "the tensor kv is missing; it must be in the file")]
#[case::no_key(Draft::new().without("padded_heads"), "padded_heads is missing from the metadata; it must be a number of heads")]
#[case::no_eps(Draft::new().without("eps"), "eps is missing from the metadata; it must be a number that is finite in f32, 0 or more")]
#[case::bad_number(Draft::new().with("block_size", "many"), "block_size is many; it must be a number of tokens, 1 or more")]
#[case::zero_block(Draft::new().with("block_size", "0"), "block_size is 0; it must be 1 or more")]
#[case::huge_block(Draft::new().with("block_size", "18446744073709551615"), "block_size is 18446744073709551615; it must be at most 2^32 tokens")]
#[case::nan_eps(Draft::new().with("eps", "nan"), "eps is nan; it must be a number that is finite in f32, 0 or more")]
#[case::too_many_heads(Draft::new().with("padded_heads", "1"), "padded_heads is 1; it must be at least the")]
#[case::huge_padding(Draft::new().with("padded_heads", "99999999999999"), "padded_heads is 99999999999999; it must be below 2^31 - 1")]
#[case::largest_padding(Draft::new().with("padded_heads", "18446744073709551615"), "padded_heads is 18446744073709551615; it must be below")]
#[case::huge_eps(Draft::new().with("eps", "1e39"), "eps is 1e39; it must be a number that is finite in f32")]
#[case::negative_eps(Draft::new().with("eps", "-1e-50"), "eps is -1e-50; it must be")]
#[case::empty_value(Draft::new().with("eps", ""), "eps is \"\"; it must be")]
#[case::control_characters(Draft::new().with("q_norm", "\u{1b}[31m\u{202e}x"), "q_norm is \\u{1b}[31m\\u{202e}x; it must be true or false")]
#[case::unknown_key(Draft::new().with("padded_head", "8"), "padded_head is an unknown metadata key; it must be one of eps,")]
#[case::unknown_value(Draft::new().with("q_norm", "yes"), "q_norm is yes; it must be true or false")]
#[case::unknown_tensor(Draft::new().shaped("k", Dtype::F32, &[1]), "k is an unknown tensor; it must be one of q,")]
#[case::wrong_type(Draft::new().shaped("positions", Dtype::F32, &[4]), "the type of positions is F32; it must be I64 or I32")]
#[case::wrong_half(Draft::new().shaped("kv", Dtype::F16, &[4, 512]), "the type of kv is F16; it must be BF16")]
#[case::wrong_rank(Draft::new().shaped("kv", Dtype::BF16, &[4, 1, 512]), "the shape of kv is [4, 1, 512]; it must be [4, 512]")]
#[case::wrong_dimension(Draft::new().shaped("cos_sin_cache", Dtype::F32, &[9, 32]), "the shape of cos_sin_cache is [9, 32]; it must be [positions, 64]")]
#[case::no_heads(Draft::new().shaped("q", Dtype::BF16, &[4, 0, 512]), "the head count of q is 0; it must be 1 or more")]
#[case::position(Draft::new().index("positions", 2, 1 << 40), "positions[2] is 1099511627776; it must be from 0 to below the")]
#[case::negative_position(Draft::new().index("positions", 0, -1), "positions[0] is -1; it must be from 0 to below the")]
#[case::slot(Draft::new().index("slot_mapping", 3, i64::MAX), "slot_mapping[3] is 9223372036854775807; it must be below the")]
#[case::slot_twice(Draft::new().index("slot_mapping", 0, 2).index("slot_mapping", 1, 2), "slot_mapping[1] is 2; it must be a slot of its own: slot_mapping[0] is the same")]
#[case::small_stride(Draft::new().shaped("kv_cache", Dtype::U8, &[8, 576]), "the block stride of kv_cache is 576; it must be a multiple of 8 and at least")]
#[case::odd_stride(Draft::new().shaped("kv_cache", Dtype::U8, &[8, 149_764]), "the block stride of kv_cache is 149764; it must be a multiple of 8 and at least")]
fn bad_input_is_named(#[case] draft: Draft, #[case] message: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let input = draft.write(folder.path());
    let output = folder.path().join("out.safetensors");
    let [input, out] = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    let text = refused(&["run", input, out, "--device", "cpu"], 2);
    assert!(text.contains(message), "{text}");
    let text = refused(&["verify", input], 2);
    assert!(text.contains(message), "{text}");
    let names: Vec<_> = fs::read_dir(folder.path()).expect("the folder").collect();
    assert_eq!(names.len(), 1, "only the input is there: {names:?}");
}

#[rstest]
#[case::no_file(&["run", "nowhere.safetensors", "out"], 2, "nowhere.safetensors: the file is missing; it must be a safetensors file")]
#[case::no_file_to_judge(&["verify", BASIC, "--against", "nowhere"], 2, "nowhere: the file is missing")]
#[case::no_end(&["run", "/dev/zero", "out"], 2, "/dev/zero: the file is not an ordinary file; it must be a safetensors file")]
#[case::to_a_device(&["run", BASIC, "/dev/null", "--device", "reference"], 2, "/dev/null: OUT is not an ordinary file; it must be")]
#[case::to_a_folder(&["run", BASIC, "examples", "--device", "reference"], 2, "examples: OUT is a folder; it must be a file")]
#[case::nothing(&[], 2, "a command is missing (see --help)")]
#[case::empty_path(&["run", "", "out"], 2, "(see --help)")]
#[case::many_tokens(&["plan", "--tokens", "9223372036854775808"], 2, "--tokens is 9223372036854775808; it must be few enough")]
#[case::bad_shape(&["bench", "--shape", "1,2,1"], 2, "--shape is 1,2,1; it must be tokens, live heads and padded heads")]
#[case::no_tokens(&["bench", "--shape", "0,16,64"], 2, "--shape is 0,16,64; it must be tokens, live heads and padded heads")]
#[case::more_than_memory(&["bench", "--shape", "70000000,1,1"], 2, "bytes of tensors; it must be at most")]
#[case::huge_shape(&["bench", "--shape", "1,1,18446744073709551615"], 2, "--shape is 1,1,18446744073709551615; it must be")]
#[case::no_such_device(&["run", BASIC, "out", "--device", "tpu"], 2, "--device is tpu; it must be auto, cpu, or")]
#[case::bad_index(&["run", BASIC, "out", "--device", "cuda:x"], 2, "--device is cuda:x; it must be")]
#[case::no_such_cpu(&["verify", BASIC, "--device", "cpu:7"], 3, "device cpu:7 cannot be used: there is one cpu device")]
#[case::no_such_gpu(&["verify", BASIC, "--device", "cuda:99"], 3, "device cuda:99 cannot be used: ")]
#[case::no_command(&["dance"], 2, "unrecognized subcommand 'dance' (see --help)")]
#[case::no_argument(&["run", BASIC], 2, "<OUT> (see --help)")]
#[case::no_folder(&["run", BASIC, "no/such/folder/out", "--device", "reference"], 3, "cannot write OUT no/such/folder/out: there is no folder")]
#[case::output_to_nowhere(&["run", BASIC, "-"], 2, "OUT is -; it must be a file")]
#[case::report_over_input(&["verify", BASIC, "--json", BASIC], 2, "--json is examples/basic.safetensors; it must be another file than IN")]
#[case::report_over_output(&["bench", "--plot", "out", "--json", "out"], 2, "--json is out; it must be another file than --plot")]
#[case::no_folder_for_the_report(&["plan", "--json", "no/such/folder/out"], 3, "cannot write --json no/such/folder/out: there is no folder")]
#[case::negative_ranks(&["plan", "--tp", "-1"], 2, "invalid value '-1' for '--tp <RANKS>'")]
#[case::too_many_rows(&["plan", "--tokens", "100000000"], 2, "--tokens is 100000000; it must be few enough for less than 2^31 rows")]
#[case::plot_of_attention(&["bench", "--op", "attend", "--plot", "out"], 2, "--plot is out; it must be absent with --op attend")]
#[case::nothing_to_attend(&["bench", "--op", "attend", "--shape", "1,1,0"], 2, "--shape is 1,1,0; it must be tokens, heads and entries")]
#[case::no_model(&["plan", "--model", "v3"], 2, "--model is v3; it must be v4-flash or v4-pro")]
#[case::bad_world(&["plan", "--tp", "3"], 2, "--tp is 3; it must be a divisor of the 128 heads")]
#[case::no_backend(&["plan", "--backend", "x"], 2, "--backend is x; it must be one of flashmla, flashinfer, aiter, any")]
#[case::two_inputs(&["verify", BASIC, BASIC, "--against", "out"], 2, "IN is 2 files; it must be one file")]
#[case::no_target(&["source", "--target", "z80"], 2, "--target is z80; it must be one of")]
fn bad_arguments_are_named(#[case] words: &[&str], #[case] code: i32, #[case] message: &str) {
    let text = refused(words, code);
    assert!(text.contains(message), "{text}");
    assert!(!Path::new(ROOT).join("out").exists());
}

#[test]
fn a_run_is_judged_by_verify_against() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.safetensors");
    let out = out.to_str().expect("UTF-8");
    assert!(program(&["run", BASIC, out, "--device", "cpu"]).status.success());
    let good = program(&["verify", BASIC, "--against", out, "--json", "-"]);
    assert_eq!(good.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!(report["different"], 0);
    // One bit of the last byte: the cache's or the output's.
    let mut bytes = fs::read(out).expect("the output");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(out, bytes).expect("the output");
    let bad = program(&["verify", BASIC, "--against", out]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stdout).contains("DIFFERENT"));
}

#[test]
fn an_output_tells_how_to_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.safetensors");
    let words = ["run", BASIC, out.to_str().expect("UTF-8"), "--device", "reference"];
    assert!(program(&words).status.success());
    let bytes = fs::read(out).expect("the output");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a safetensors file");
    let metadata = header.metadata().clone().expect("metadata");
    assert_eq!(metadata["cache_format"], "fp8_ds_mla");
    assert_eq!(metadata["fp8"], "e4m3fn");
    assert_eq!(metadata["kv_type"], "bf16");
    let mut names = header.offset_keys();
    names.sort_unstable();
    assert_eq!(names, ["kv_cache", "q_out"]);
}

#[test]
fn equal_outputs_are_equal_files_with_the_usual_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("b", &link).expect("a link");
    fs::write(&paths[1], "").expect("a file");
    for path in [&paths[0], &link] {
        assert!(
            program(&["run", BASIC, path.to_str().expect("UTF-8"), "--device", "reference"])
                .status
                .success()
        );
    }
    let [first, second] = paths.each_ref().map(|path| fs::read(path).expect("the output"));
    assert!(first == second && link.is_symlink());
    let plain = folder.path().join("plain");
    fs::write(&plain, "").expect("a file");
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions();
    assert_eq!(mode(&paths[0]), mode(&plain));
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 4);
}

#[test]
fn an_output_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let out = out.to_str().expect("UTF-8");
    assert!(program(&["run", BASIC, out, "--device", "reference"]).status.success());
    let bytes = fs::read(out).expect("the output");
    let at = bytes.windows(6).position(|word| word == b"e4m3fn").expect("the format");
    let mut lying = bytes.clone();
    lying[at..at + 6].copy_from_slice(b"e4m3xx");
    fs::write(out, lying).expect("the output");
    let message = refused(&["verify", BASIC, "--against", out], 2);
    assert!(message.contains("fp8 is e4m3xx; it must be e4m3fn, or absent"), "{message}");
}

#[cfg(feature = "burn")]
const LAYER: &str = "examples/layer/attn_swa_8h.safetensors";

#[cfg(feature = "burn")]
#[rstest]
#[case::tensor(Draft::of(LAYER).without("w.sinks"), &[], "w.sinks is absent; it must be in the file, [8]")]
#[case::x(Draft::of(LAYER).without("x"), &[], "x is absent")]
#[case::rank(Draft::of(LAYER).shaped("x", Dtype::F32, &[40]), &[], "the shape of x is [40]")]
#[case::shape(
    Draft::of(LAYER).shaped("w.q_a_proj.weight", Dtype::F32, &[128, 64]),
    &[],
    "the shape of w.q_a_proj.weight is [128, 64]; it must be [64, 128]"
)]
#[case::wide(
    Draft::of(LAYER).typed("w.q_b_proj.weight", Dtype::F64),
    &[],
    "the type of w.q_b_proj.weight is F64; it must be F32, BF16 or F16"
)]
#[case::key(Draft::of(LAYER).without("window"), &[], "window is absent")]
#[case::zero(Draft::of(LAYER).with("hidden", "0"), &[], "hidden is 0; it must be")]
#[case::huge(Draft::of(LAYER).with("heads", "99999999999999999999"), &[], "heads is 99999999999999999999")]
#[case::eps(Draft::of(LAYER).with("eps", "nan"), &[], "eps is NaN")]
#[case::groups(Draft::of(LAYER).with("o_groups", "3"), &[], "o_groups is 3")]
#[case::half_a_table(Draft::of(LAYER).without("sin"), &[], "cos or sin is absent")]
#[case::no_table(Draft::of(LAYER).without("sin").without("cos"), &[], "theta is absent")]
#[case::theta(
    Draft::of(LAYER).without("sin").without("cos").with("theta", "-1"),
    &[],
    "theta is -1; it must be a finite number above 0"
)]
#[case::ranks(Draft::of(LAYER), &["--tp", "3"], "--tp is 3")]
#[case::backend(Draft::of(LAYER), &["--backend", "x"], "--backend is x")]
#[case::cache(Draft::of(LAYER), &["--cache", "x"], "--cache is x")]
#[case::devices(Draft::of(LAYER), &["--device", "cpu,cpu"], "the number of devices is 2")]
fn a_bad_layer_is_named(#[case] draft: Draft, #[case] words: &[&str], #[case] message: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (draft.write(folder.path()), folder.path().join("out"));
    let paths = ["layer", input.to_str().expect("UTF-8"), output.to_str().expect("UTF-8")];
    let device = ["--device", "cpu"];
    let device = if words.contains(&"--device") { &[][..] } else { &device[..] };
    let line = refused(&[&paths[..], device, words].concat(), 2);
    assert!(line.contains(message), "{line}");
    assert!(!output.exists(), "{line}");
}

/// The weights of checkpoints are in 16 bits, the tables of some in none.
#[cfg(feature = "burn")]
#[rstest]
#[case::bf16(Dtype::BF16)]
#[case::f16(Dtype::F16)]
fn a_layer_in_16_bits_comes_as_close(#[case] dtype: Dtype) {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = Draft::of(LAYER).tensors.keys().cloned().collect();
    let typed = |draft: Draft, name: &String| match name.as_str() {
        "y" => draft,
        "cos" | "sin" => draft.without(name),
        _ => draft.typed(name, dtype),
    };
    let draft = names.iter().fold(Draft::of(LAYER).with("theta", "10000"), typed);
    let (input, output) = (draft.write(folder.path()), folder.path().join("out"));
    let words = [
        "layer",
        input.to_str().expect("UTF-8"),
        output.to_str().expect("UTF-8"),
        "--device",
        "cpu",
        "--cache",
        "bf16",
        "--json",
        "-",
    ];
    let report = program(&words);
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let error = json["relative_error"].as_f64().expect("the file has y");
    assert!(error < 1e-2, "{error}");
    let bytes = fs::read(&output).expect("it was written");
    let file = SafeTensors::deserialize(&bytes).expect("it is whole");
    assert_eq!(file.tensor("y").expect("it has y").shape(), [40, 128]);
}

/// Burn's own variable chooses where `auto` would.
#[cfg(feature = "burn")]
#[rstest]
#[case("nonsense", 2)]
#[case("cuda:99", 3)]
fn burn_device_is_honoured(#[case] value: &str, #[case] code: i32) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut program = Command::new(env!("CARGO_BIN_EXE_mla-prologue"));
    program.current_dir(ROOT);
    program.args(["layer", LAYER, out.to_str().expect("UTF-8")]).env("BURN_DEVICE", value);
    let output = program.output().expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(value) && !out.exists(), "{message}");
}

/// What would be lost is refused before any work.
#[test]
fn destinations_are_checked_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = Draft::new().write(folder.path());
    let input = input.to_str().expect("UTF-8");
    let line = refused(&["run", input, input, "--device", "cpu"], 2);
    assert!(line.contains("another file than IN"), "{line}");
    let missing = folder.path().join("missing/out");
    let missing = missing.to_str().expect("UTF-8");
    let line = refused(&["run", input, missing, "--device", "cpu"], 3);
    assert!(line.contains("there is no folder"), "{line}");
    let words = ["bench", "--device", "cpu", "--plot", missing];
    assert!(refused(&words, 3).contains("there is no folder"));
    let line = refused(&["run", input, folder.path().to_str().expect("UTF-8")], 2);
    assert!(line.contains("OUT is a folder"), "{line}");
}

#[test]
fn attention_is_measured() {
    let words = ["bench", "--op", "attend", "--device", "cpu", "--shape", "2,3,70", "--json", "-"];
    let report = program(&words);
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let seconds = json["results"][0]["stream_s"].as_f64().expect("a time");
    assert!(seconds > 0.0 && json["results"][0]["entries"] == 70, "{json}");
}

#[test]
fn a_benchmark_draws_what_it_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("chart.svg");
    let svg = svg.to_str().expect("UTF-8");
    let words = ["bench", "--device", "cpu", "--shape", "2,1,3", "--plot", svg, "--json", "-"];
    let report = program(&words);
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let how: Vec<_> =
        json["results"].as_array().expect("results").iter().map(|r| &r["how"]).collect();
    assert_eq!(how, ["fused", "padding known zero", "unfused"]);
    let picture = fs::read_to_string(svg).expect("it was drawn");
    for text in ["tokens a call", "1 live heads padded to 3", "unfused, six kernels", "<circle"] {
        assert!(picture.contains(text), "{text}");
    }
}

#[test]
fn help_teaches() {
    let help = String::from_utf8(program(&["run", "--help"]).stdout).expect("UTF-8");
    for key in [
        "eps",
        "padded_heads",
        "block_size",
        "work",
        "q_norm",
        "q_rope",
        "q_rounding",
        "kv_norm_rounding",
        "kv_quant_from",
        "rotary_layout",
        "cache_format",
        "fp8",
        "pad_scale_byte",
        "kv_scale",
        "q_scale",
        "profile",
    ] {
        assert!(help.contains(&format!("\n  {key} ")), "{key} is not in the help");
    }
    assert!(program(&["--help"]).status.success());
    assert!(program(&["devices"]).status.success());
    assert!(
        program(&["plan", "--model", "v4-pro", "--tp", "8", "--backend", "flashmla"])
            .status
            .success()
    );
}
