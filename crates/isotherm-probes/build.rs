//! Compiles the eBPF programs with clang: those of the `bpf` probe, and those that report which calls map
//! memory. They exist on x86-64 only.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The directory of the headers that the sources share.
const SHARED: &str = "src/bpf";

/// Each source, and the object that it is compiled to.
const SOURCES: [(&str, &str); 3] = [
    ("src/bpf/program.bpf.c", "program.bpf.o"),
    ("src/bpf/tasks.bpf.c", "tasks.bpf.o"),
    ("src/stacks/calls.bpf.c", "calls.bpf.o"),
];

fn main() {
    for header in ["kernel.h", "watched.h"] {
        println!("cargo::rerun-if-changed={SHARED}/{header}");
    }
    for (source, _) in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    for (source, object) in SOURCES {
        if let Err(why) = compile(source, object) {
            println!("cargo::error=the eBPF program {source} was not compiled: {why}");
        }
    }
}

fn compile(source: &str, object: &str) -> Result<(), String> {
    let object = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?).join(object);
    // libbpf-sys sets this variable to the directory of its copy of libbpf's headers.
    let headers = env::var("DEP_BPF_INCLUDE").map_err(|e| format!("DEP_BPF_INCLUDE: {e}"))?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // `-mcpu=v3`: every kernel that can run the programs (5.17 and later) supports version 3 of the instruction set.
    // `-g` adds type information (BTF). The loader uses it to find structure fields in the running kernel.
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", &headers, "-I", SHARED])
        .args(["-fdebug-prefix-map=.=isotherm", "-c", source, "-o"])
        .arg(&object)
        .status()
        .map_err(|e| format!("{clang} cannot be run ({e}); install clang, or set the variable CLANG to its path"))?;
    if status.success() { Ok(()) } else { Err(format!("{clang} failed ({status}); see its messages above")) }
}
