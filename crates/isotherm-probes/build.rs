//! Compiles the eBPF program of the `bpf` probe with clang, for the one architecture that it knows.

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
    // Set by libbpf-sys, which brings libbpf's headers along.
    let headers = env::var("DEP_BPF_INCLUDE").map_err(|e| format!("DEP_BPF_INCLUDE: {e}"))?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // The oldest kernel that can run the program (5.17) knows the third version of the instruction set. `-g` makes
    // the type information (BTF) by which structure fields are found in the running kernel.
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", &headers])
        .args(["-fdebug-prefix-map=.=isotherm", "-c", &format!("{SOURCES}/program.bpf.c"), "-o"])
        .arg(&object)
        .status()
        .map_err(|e| format!("{clang} cannot be run ({e}); install clang, or name it in the variable CLANG"))?;
    if status.success() { Ok(()) } else { Err(format!("{clang} ended with {status}; its messages are above")) }
}
