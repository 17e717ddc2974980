//! Compiles the helper program, which makes calls inside other processes, without the standard library. It exists on
//! x86-64 only. The tests have a helper of their own, which fails when it is asked to.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/inside/program/main.rs";
/// Each program, and the configuration that it is compiled with.
const PROGRAMS: [(&str, &[&str]); 2] = [("inside", &[]), ("inside-faults", &["--cfg", "faults"])];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(faults)");
    for path in ["src/inside/program", "src/inside/message.rs", "src/inside/code.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    for (program, configuration) in PROGRAMS {
        if let Err(why) = compile(program, configuration) {
            println!("cargo::error=the helper program {SOURCE} was not compiled: {why}");
        }
    }
}

fn compile(program: &str, configuration: &[&str]) -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let mut command = Command::new(variable("RUSTC")?);
    command
        .args(["--crate-name", "isotherm_inside", "--crate-type", "bin", "--edition", "2024"])
        .args(["--target", &variable("TARGET")?])
        // A panic ends the program. It has no start-up code and no libraries.
        .args(["-C", "panic=abort", "-C", "opt-level=2", "-C", "strip=symbols"])
        .args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static"])
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"])
        .args(configuration)
        .arg(SOURCE)
        .arg("-o")
        .arg(PathBuf::from(variable("OUT_DIR")?).join(program));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        command.arg("-C").arg(format!("linker={linker}"));
    }
    let output = command.output().map_err(|e| format!("rustc cannot be run ({e})"))?;
    let messages = || String::from_utf8_lossy(&output.stderr).replace('\n', " | ");
    if output.status.success() { Ok(()) } else { Err(format!("rustc failed ({}): {}", output.status, messages())) }
}
