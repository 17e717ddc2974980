//! Tests of `lab/boot`: output, status and results of a command come back, and a machine always ends. These
//! tests run on the host and boot machines; `lab/test` runs them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::process::Command;

use isotherm_lab::{Ran, run};

/// Calls `lab/boot OPTIONS damon COMMAND`.
fn boot(options: &[&str], results: &Path, command: &[&str]) -> Ran {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("boot");
    let mut boot = Command::new(script);
    boot.args(["--debug", "--memory", "512M", "--results", results.to_str().unwrap()])
        .args(options)
        .arg("damon")
        .args(command);
    run(boot.stdin(std::process::Stdio::null()))
}

fn sh(options: &[&str], script: &str) -> (Ran, tempfile::TempDir) {
    let results = tempfile::tempdir().unwrap();
    (boot(options, results.path(), &["sh", "-c", script]), results)
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn output_errors_status_and_results_come_back() {
    let script = "echo said; echo \"it's wrong\" >&2; mkdir /results/deep; \
                  head -c 100000 /dev/zero > /results/deep/file; exit 7";
    let (ran, results) = sh(&[], script);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (7, "said\n", "it's wrong\n"));
    assert_eq!(std::fs::metadata(results.path().join("deep/file")).unwrap().len(), 100_000);
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn arguments_reach_the_command_unchanged() {
    let results = tempfile::tempdir().unwrap();
    let ran = boot(&[], results.path(), &["printf", "<%s>", "a b", "$HOME", "it's", "", "\"\\"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, "<a b><$HOME><it's><><\"\\>"), "{ran:?}");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn files_are_put_in_with_the_libraries_that_they_need() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("notes");
    std::fs::write(&file, "a note").unwrap();
    let (plain, there) = (file.to_str().unwrap(), format!("{}:/etc/other", file.display()));
    let program = std::env::current_exe().unwrap();
    let program = format!("{}:/bin/linked", program.display());
    let (ran, _results) =
        sh(&["--file", plain, "--file", &there, "--file", &program], "cat notes /etc/other; linked --list");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("a notea note") && ran.out.contains("files_are_put_in"), "{ran:?}");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn a_command_that_takes_too_long_is_ended_and_its_results_are_kept() {
    let script = "trap '' TERM; echo so far > /results/file; while :; do :; done";
    let (ran, results) = sh(&["--timeout", "2"], script);
    assert_eq!(ran.status, 124, "{ran:?}");
    assert!(ran.err.contains("had not ended after 2 s"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(results.path().join("file")).unwrap(), "so far\n");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn a_background_process_does_not_delay_the_end() {
    let (ran, _results) = sh(&[], "setsid sleep 1000 & echo left");
    assert_eq!((ran.status, ran.out.as_str()), (0, "left\n"), "{ran:?}");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn a_panic_is_reported() {
    let (ran, _results) = sh(&[], "echo c > /proc/sysrq-trigger");
    assert_eq!(ran.status, 125, "{ran:?}");
    assert!(ran.err.contains("Kernel panic") && ran.err.contains("without a status"), "{ran:?}");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn a_machine_that_hangs_is_ended() {
    // QEMU refuses to start it.
    let (ran, _results) = sh(&["--timeout", "1", "--grace", "2", "--qemu", "-S"], "true");
    assert_eq!(ran.status, 124, "{ran:?}");
    assert!(ran.err.contains("the machine hangs"), "{ran:?}");
}

#[test]
#[ignore = "boots virtual machines: lab/test"]
fn a_kernel_that_does_not_boot_is_reported() {
    let mut boot = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("boot"));
    let results = tempfile::tempdir().unwrap();
    let ran = run(boot.args(["--debug", "--results", results.path().to_str().unwrap(), "/bin/true", "true"]));
    assert_eq!(ran.status, 125, "{ran:?}");
    assert!(ran.err.contains("QEMU ended"), "{ran:?}");
    let mut boot = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("boot"));
    let ran = run(boot.args(["nonsense", "true"]));
    assert!(ran.status == 2 && ran.err.contains("nonsense"), "{ran:?}");
}
