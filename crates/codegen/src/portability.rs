//! What is characteristic of the code that is generated for each target: a table.

use crate::{Error, Language, Module, Target};
use mla_prologue_kernel::{Conversion, Kernel};
use std::{env, fs, path::PathBuf, process::Command};

/// A Markdown table with a line for each target of this build, or the reason why there is no code for it.
pub fn table(kernel: &dyn Kernel, conversion: Conversion) -> String {
    let mut text = format!("| {} |\n|{}\n", HEADER.join(" | "), " --- |".repeat(HEADER.len()));
    for target in Target::all() {
        let definition = target.define(kernel, &target.strategy(conversion));
        let cells = match target.compile(definition) {
            Ok(module) => row(target, &module),
            Err(Error::Invalid(invalid)) => vec![invalid.value],
            Err(other) => vec![other.to_string()],
        };
        let missing = vec![String::new(); HEADER.len() - 1 - cells.len()];
        let cells: Vec<String> = [vec![format!("`{target}`")], cells, missing].concat();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

const HEADER: [&str; 9] = [
    "target",
    "instructions",
    "registers of a lane, a wave",
    "scratch, spills",
    "waves a SIMD",
    "loads, stores (bits: count)",
    "exchanges between lanes",
    "division, square root",
    "multiply-adds fused",
];

fn row(target: Target, module: &Module) -> Vec<String> {
    match target.language() {
        #[cfg(feature = "hip")]
        Language::Amdgcn => amdgcn(target, module),
        Language::Ptx => ptx(&module.text),
        _ => text(&module.text),
    }
}

/// How many lines have each of some names in them.
fn counts(lines: &[&str], names: &[&str]) -> String {
    let count = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    let found = names.iter().map(|name| (name, count(name))).filter(|(_, count)| *count > 0);
    let found: Vec<String> = found
        .map(|(name, count)| format!("{count} {}", name.trim_matches(['.', '_', '('])))
        .collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

/// Accesses by their width.
fn accesses(lines: &[&str], widths: &[(&str, &str, usize)]) -> String {
    let of = |kind: &dyn Fn(&(&str, &str, usize)) -> String| {
        let count = |name: String| lines.iter().filter(|line| line.contains(&name)).count();
        let found = widths.iter().map(|width| (width.2, count(kind(width))));
        let found: Vec<String> = found
            .filter(|(_, count)| *count > 0)
            .map(|(bits, count)| format!("{bits}: {count}"))
            .collect();
        found.join(", ")
    };
    format!("{}; {}", of(&|width| width.0.into()), of(&|width| width.1.into()))
}

#[cfg(feature = "hip")]
fn amdgcn(target: Target, module: &Module) -> Vec<String> {
    use crate::CodeObject;
    let code = CodeObject::parse(&module.binary, target.arch());
    let code = match code {
        Ok(code) => code,
        Err(why) => return vec![why],
    };
    let lines: Vec<&str> = code.operations().collect();
    let widths = [
        ("global_load_dwordx4", "global_store_dwordx4", 128),
        ("global_load_b128", "global_store_b128", 128),
        ("global_load_dwordx2", "global_store_dwordx2", 64),
        ("global_load_b64", "global_store_b64", 64),
        ("global_load_dword ", "global_store_dword ", 32),
        ("global_load_b32", "global_store_b32", 32),
    ];
    vec![
        code.instructions.len().to_string(),
        format!("{}, {}", code.vgprs, code.sgprs),
        format!("{}, {}", code.descriptor.scratch, code.spills),
        occupancy(target.arch(), code.vgprs).to_string(),
        accesses(&lines, &widths),
        counts(&lines, &["_dpp", "ds_swizzle", "v_permlanex16", "ds_bpermute"]),
        counts(&lines, &["v_div_scale", "v_div_fmas", "v_div_fixup", "v_rcp_f32", "v_sqrt_f32"]),
        code.fused().to_string(),
    ]
}

/// Waves that the registers of a SIMD hold at once: 512 registers of 64 lanes in eights on CDNA, at most 8
/// waves; 1536 of 32 lanes in twenty-fours on RDNA 3 and 4 (1024 in sixteens on APUs), at most 16.
#[cfg(feature = "hip")]
fn occupancy(arch: &str, vgprs: u32) -> u32 {
    let (registers, granule, most) = match arch {
        "gfx90a" | "gfx942" | "gfx950" => (512, 8, 8),
        "gfx1150" | "gfx1152" | "gfx1153" => (1024, 16, 16),
        _ => (1536, 24, 16),
    };
    (registers / vgprs.max(1).next_multiple_of(granule)).min(most)
}

fn ptx(code: &str) -> Vec<String> {
    let lines: Vec<&str> = code.lines().map(str::trim).filter(|line| line.ends_with(';')).collect();
    // Without the cache operator that may stand between the space and the type.
    let access: Vec<String> = lines.iter().map(|line| line.replace(".nc", "")).collect();
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let widths = [
        ("ld.global.v4.b32", "st.global.v4.b32", 128),
        ("ld.global.v2.b32", "st.global.v2.b32", 64),
        ("ld.global.b32", "st.global.b32", 32),
    ];
    let [registers, stack, warps] = match ptxas(code) {
        Ok(assembled) => [
            assembled.registers.to_string(),
            format!("{}, {}", assembled.stack, assembled.spills),
            // 65536 registers of an SM, in fours for each of its four parts.
            (512 / assembled.registers.next_multiple_of(8)).min(16).to_string(),
        ],
        Err(_) => ["ptxas decides"; 3].map(String::from),
    };
    vec![
        lines.iter().filter(|line| !line.starts_with('.')).count().to_string(),
        registers,
        stack,
        warps,
        accesses(&access, &widths),
        counts(&lines, &["shfl.sync.bfly"]),
        counts(&lines, &["div.rn.f32", "rcp.rn.f32", "sqrt.rn.f32"]),
        lines.iter().filter(|line| line.starts_with("fma.rn.f32")).count().to_string(),
    ]
}

/// What NVIDIA's assembler says of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// Registers of a lane.
    pub registers: u32,
    /// Bytes of memory that a lane is given of its own.
    pub stack: u32,
    /// Bytes that registers are saved to there.
    pub spills: u32,
}

/// Assembles PTX for Hopper by `ptxas`: the one that `cargo xtask tools` fetched, whose folder
/// `MLA_PROLOGUE_TOOLS` names, or the one on `PATH`.
///
/// # Errors
/// No `ptxas`, or what it says.
pub fn ptxas(code: &str) -> Result<Assembled, String> {
    let fetched = env::var_os("MLA_PROLOGUE_TOOLS").map(PathBuf::from);
    let fetched = fetched.map(|folder| folder.join("nvidia/cuda_nvcc/bin/ptxas"));
    let program = fetched.filter(|path| path.is_file()).unwrap_or("ptxas".into());
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let input = folder.path().join("kernel.ptx");
    fs::write(&input, code).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    command.args(["-v", "-arch=sm_90a", "-o"]).arg(folder.path().join("kernel.cubin")).arg(&input);
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(report);
    }
    // "... bytes stack frame, ... bytes spill stores, ... bytes spill loads", "Used ... registers".
    let words: Vec<&str> = report.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let before = |phrase: &[&str]| {
        let at = words.windows(phrase.len()).position(|words| words == phrase);
        let number = at.and_then(|at| words[at - 1].parse().ok());
        number.ok_or_else(|| format!("no number before {phrase:?}: {report}"))
    };
    Ok(Assembled {
        registers: before(&["registers"])?,
        stack: before(&["bytes", "stack", "frame"])?,
        spills: before(&["bytes", "spill", "stores"])? + before(&["bytes", "spill", "loads"])?,
    })
}

/// Code whose instructions another compiler chooses.
fn text(code: &str) -> Vec<String> {
    let lines: Vec<&str> = code.lines().collect();
    let later = || "the driver decides".to_owned();
    vec![
        format!("{} lines", lines.len()),
        later(),
        later(),
        later(),
        later(),
        counts(
            &lines,
            &[
                "__shfl_xor_sync(",
                "__shfl_xor(",
                "simd_shuffle_xor(",
                "subgroupShuffleXor(",
                "OpGroupNonUniformShuffleXor",
            ],
        ),
        counts(&lines, &["sqrt(", "Sqrt", "OpFDiv"]),
        lines
            .iter()
            .filter(|line| line.contains("fma(") || line.contains("Fma "))
            .count()
            .to_string(),
    ]
}
