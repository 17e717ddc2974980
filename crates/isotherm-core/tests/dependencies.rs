//! Core depends on no operating system: on no crate outside a short list, directly or through another one.

use std::collections::BTreeSet;
use std::process::Command;

/// What core may depend on. `rand` is built without its source of randomness from the system (`getrandom`).
const ALLOWED: [&str; 5] = ["isotherm-core", "rand", "rand_core", "rangemap", "thiserror"];

#[test]
fn core_depends_on_no_crate_that_knows_an_operating_system() {
    // What runs at compile time only (procedural macros, build scripts) is no part of core.
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "isotherm-core"])
        .args(["--edges", "normal,no-proc-macro", "--target", "all", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo, which runs this test, can be run again");
    let (tree, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo tree failed: {errors}");
    let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let allowed: BTreeSet<&str> = ALLOWED.into_iter().collect();
    assert_eq!(found, allowed);
}
