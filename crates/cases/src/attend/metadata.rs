//! What an input file of attention holds besides its tensors.

use crate::file::KeyInfo;
use mla_prologue_operator::SCALE_RANGE;

/// Every metadata key that an input file may have.
#[rustfmt::skip]
pub const KEYS: &[KeyInfo] = &[
    KeyInfo { name: "block_size", values: "a number, 1 or more", meaning: "tokens of a block of kv_cache; always needed" },
    KeyInfo { name: "extra_block_size", values: "a number, 1 or more", meaning: "tokens of a block of extra_kv_cache; needed with it" },
    KeyInfo { name: "heads", values: "a number, 1 or more", meaning: "heads that attend, the first of q; all of q without it" },
    KeyInfo { name: "padded_heads", values: "a number", meaning: "heads of out, of which those beyond heads are zero; heads without it" },
    KeyInfo { name: "scale", values: "a finite number", meaning: "what scores are multiplied by; 1 / sqrt(512) without it" },
    KeyInfo { name: "window", values: "a number, 1 or more", meaning: "the last tokens of a sequence that a token sees; needed with block_table" },
    KeyInfo { name: "cache_format", values: "fp8_ds_mla, mxfp8_528, rows_16bit, rows_fp8", meaning: "how a token is stored in both caches" },
    KeyInfo { name: "fp8", values: "e4m3fn, e4m3fnuz", meaning: "the 8-bit format; not with rows_16bit" },
    KeyInfo { name: "kv_scale", values: SCALE_RANGE, meaning: "the scale of rows_fp8 caches; needed with them, and only there" },
    KeyInfo { name: "rotary_layout", values: "halves, interleaved", meaning: "a row of cos_sin_cache: cosines then sines, or pairs of the two" },
    KeyInfo { name: "format", values: "anything", meaning: "ignored" },
];
