//! Compiles the eBPF program of the `bpf` probe with clang. The probe exists on x86-64 only.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: &str = "src/bpf";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}/program.bpf.c");
    println!("cargo::rerun-if-changed={SOURCES}/kernel.h");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    if let Err(why) = compile() {
        println!("cargo::error=the eBPF program {SOURCES}/program.bpf.c was not compiled: {why}");
    }
}

fn compile() -> Result<(), String> {
    let object = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?).join("program.bpf.o");
    // libbpf-sys sets this variable to the directory of its copy of libbpf's headers.
    let headers = env::var("DEP_BPF_INCLUDE").map_err(|e| format!("DEP_BPF_INCLUDE: {e}"))?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // `-mcpu=v3`: every kernel that can run the program (5.17 and later) supports version 3 of the instruction set.
    // `-g` adds type information (BTF). The loader uses it to find structure fields in the running kernel.
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", &headers])
        .args(["-fdebug-prefix-map=.=isotherm", "-c", &format!("{SOURCES}/program.bpf.c"), "-o"])
        .arg(&object)
        .status()
        .map_err(|e| format!("{clang} cannot be run ({e}); install clang, or set the variable CLANG to its path"))?;
    if status.success() { Ok(()) } else { Err(format!("{clang} failed ({status}); see its messages above")) }
}
