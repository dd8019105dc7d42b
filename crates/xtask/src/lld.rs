//! A stand-in for LLD's library, which CubeCL's hip runtime links and the Python package lacks.

use crate::shell::{Result, at, read, run};
use std::{fs, path::Path, process::Command};

const HEADER: &str = include_str!("../lld/Driver.h");
const SOURCE: &str = include_str!("../lld/elf.cpp");

/// Adds `lld::elf::link` to an LLVM that has no LLD: a library that runs the `ld.lld` program.
pub fn ensure(llvm: &Path) -> Result {
    let libraries = ["lib/liblldELF.a", "lib/liblldCommon.a"].map(|name| llvm.join(name));
    let complete = libraries.iter().all(|library| library.is_file());
    let kept = llvm.join("lib/lld-stand-in.cpp");
    let fallback = toolchain_lld()?;
    let source = format!("#define FALLBACK \"{fallback}\"\n{SOURCE}");
    let made = fs::read_to_string(&kept).ok();
    if complete && made.is_none_or(|made| made == source) {
        return Ok(());
    }
    eprintln!("setup: LLD's library is not there; making a stand-in that runs ld.lld (for hip)");
    let headers = llvm.join("include/lld/Common");
    at("create", &headers, fs::create_dir_all(&headers))?;
    at("write", &headers, fs::write(headers.join("Driver.h"), HEADER))?;
    at("write", &kept, fs::write(&kept, &source))?;
    let object = llvm.join("lib/lld-stand-in.o");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-w", "-c"]);
    compiler.arg("-I").arg(llvm.join("include")).arg("-I").arg(&headers);
    run(compiler.arg(&kept).arg("-o").arg(&object))?;
    // The second library is linked too; there is nothing to put into it.
    for (library, members) in libraries.iter().zip([Some(&object), None]) {
        let _ = fs::remove_file(library);
        run(Command::new("ar").arg("crs").arg(library).args(members))?;
    }
    Ok(())
}

/// Rust ships LLD for its own use; `gcc-ld/ld.lld` answers to the ELF linker's command line.
fn toolchain_lld() -> Result<String> {
    let sysroot = read(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    Ok(format!("{sysroot}/lib/rustlib/{host}/bin/gcc-ld/ld.lld"))
}
