//! Programs run with less memory than they use, in cgroups that are gone afterwards.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_lab::idle::{MIB, V2};
use isotherm_lab::{Running, Zram, eventually, isotherm, result_file, run, shell};
use serde_json::Value;

/// An emulated processor is slow.
const SLOW: &str = "--with=--probe bpf --cpu-budget 100%";

/// A call on the suite of the laboratory.
fn pressure(output: &Path, options: &[&str]) -> Command {
    let output = output.to_str().unwrap();
    isotherm(&[&["eval", "pressure", "-s", "/root/pressure.yaml", "-o", output, "-n", "1", SLOW], options].concat())
}

/// The cgroups that calls have made and not removed.
fn left() -> Vec<PathBuf> {
    let entries = fs::read_dir(V2).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().contains("isotherm-eval")).collect()
}

/// Has the cgroups below the root account memory.
fn account_memory() {
    fs::write(format!("{V2}/cgroup.subtree_control"), "+memory").unwrap();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_limited_program_faults_and_is_measured_with_each_scheme() {
    account_memory();
    let _swap = Zram::of(256);
    let output = result_file("pressure");
    let ran = run(&mut pressure(&output, &["--limits", "60", "--scale", "25", "-f", "json"]));
    println!("{}", ran.err);
    assert_eq!(ran.status, 0, "{ran:?}");
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["scheme"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "none", "mlock", "willneed", "prcl"]);
    let faults = |nth: usize| rows[nth]["major_faults"].as_f64().unwrap();
    assert!(faults(0) < 100.0 && faults(1) > 1000.0, "{ran:?}");
    let unlimited = rows[0]["unlimited"].as_f64().unwrap();
    assert!(unlimited > (64 * MIB) as f64, "{unlimited}");
    for row in &rows[1..] {
        // The kernel may charge a little more than the limit, for what must not fail.
        assert!(row["peak"].as_f64().unwrap() <= unlimited * 0.6 + MIB as f64, "{row}");
    }
    assert!(rows[2]["isotherm_cpu_percent"].as_f64().unwrap() > 0.0 && rows[2]["speedup"].is_object(), "{ran:?}");
    assert_eq!(left(), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_program_that_has_too_little_even_with_swap_is_a_result_with_its_reason() {
    account_memory();
    let _swap = Zram::of(8);
    let output = result_file("pressure-killed");
    let ran = run(&mut pressure(&output, &["--limits", "40", "--scale", "5", "--configs", "none"]));
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.out.contains("the kernel killed 1 of its processes with ") && ran.err.contains("--resume"), "{ran:?}");
    assert_eq!(left(), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn an_interrupted_call_leaves_neither_a_cgroup_nor_a_process() {
    account_memory();
    let _swap = Zram::of(256);
    let output = result_file("pressure-cut");
    let mut running = Running::start(&mut pressure(&output, &["--scale", "100000", "--configs", "none"]));
    // That of the preparation is removed before there is one for the program.
    let has_members = |path: &PathBuf| fs::read(path.join("cgroup.procs")).is_ok_and(|members| !members.is_empty());
    eventually("the program runs in a cgroup", || left().iter().any(has_members));
    running.interrupt();
    assert_eq!(running.wait(), 1);
    assert_eq!(left(), Vec::<PathBuf>::new());
    assert_eq!(shell("pidof pressure || true"), "");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn what_is_missing_is_refused_with_how_to_fix_it() {
    let refused = |options: &[&str], part: &str| {
        let ran = run(&mut pressure(&result_file("pressure-refused"), options));
        assert!(ran.status == 1 && ran.err.contains(part), "{ran:?}");
    };
    refused(&[], "--may-change swap");
    let _swap = Zram::of(64);
    shell(&format!("mkdir {V2}/unaccounted"));
    refused(&["--cgroup", "/unaccounted"], "write +memory to /sys/fs/cgroup/unaccounted/cgroup.subtree_control");
    shell(&format!("rmdir {V2}/unaccounted"));
    assert_eq!(left(), Vec::<PathBuf>::new());
}
