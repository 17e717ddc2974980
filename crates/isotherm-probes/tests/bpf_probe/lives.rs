//! Targets that change while they are watched: exec, exit, and mappings that come and go.

use std::time::Duration;

use isotherm_core::{AccessProbe, Sample, TargetId};

use crate::target::Target;
use crate::watch::*;

#[test]
fn after_exec_the_new_address_space_is_found_by_an_update() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let old = target.map("small", MIB);
    target.write(old, MIB);
    update(&mut probe, &[&target]);
    let old_samples = pages(&target, old, MIB);
    probe.clear(&old_samples).unwrap();

    target.request("exec");
    assert_eq!(count(&read(&mut probe, &old_samples), Idle), 256);
    probe.clear(&old_samples).unwrap();

    let new = target.map("small", MIB);
    update(&mut probe, &[&target]);
    let samples = pages(&target, new, MIB);
    probe.clear(&samples).unwrap();
    target.write(new, MIB);
    assert!(nearly_all(count(&read(&mut probe, &samples), Accessed), 256));
}

#[test]
fn a_target_that_ends_during_a_round_is_idle_and_not_an_error() {
    let mut probe = or_skip!(open());
    let (mut target, mut other) = (Target::start(), Target::start());
    let (start, other_start) = (target.map("small", MIB), other.map("small", MIB));
    target.write(start, MIB);
    other.write(other_start, MIB);
    update(&mut probe, &[&target, &other]);
    let mut samples = pages(&target, start, MIB);
    samples.extend(pages(&other, other_start, MIB));
    probe.clear(&samples).unwrap();

    other.write(other_start, MIB);
    target.kill();
    let answers = read(&mut probe, &samples);
    assert_eq!(count(&answers[..256], Idle), 256);
    assert!(count(&answers[256..], Accessed) + STRAGGLERS >= 256);

    // The next round and the next update begin before the end of the target is noticed.
    probe.clear(&samples).unwrap();
    assert_eq!(count(&read(&mut probe, &samples)[..256], Idle), 256);
    probe.update(&[empty_space(target.pid()), space(&other)]).unwrap();
    probe.clear(&samples).unwrap();
    other.write(other_start, MIB);
    let answers = read(&mut probe, &samples);
    assert_eq!(count(&answers[..256], Idle), 256);
    assert!(count(&answers[256..], Accessed) + STRAGGLERS >= 256);
}

#[test]
fn a_target_that_is_not_a_process_is_idle() {
    let mut probe = or_skip!(open());
    // A PID that is not in use, a kernel thread, and two numbers that are not valid PIDs.
    for pid in [(1 << 22) - 1, 2, u32::MAX, 0] {
        probe.update(&[empty_space(pid)]).unwrap();
        let samples = [Sample { target: TargetId::process(pid, Duration::ZERO), addr: 0x40_0000 }];
        probe.clear(&samples).unwrap();
        assert_eq!(read(&mut probe, &samples), [Idle], "{pid}");
    }
    // A target that was not in the update.
    let samples = [Sample { target: TargetId::process(1, Duration::ZERO), addr: 0x40_0000 }];
    probe.clear(&samples).unwrap();
    assert_eq!(read(&mut probe, &samples), [Idle]);
}

#[test]
fn a_target_that_maps_and_unmaps_continuously_is_watched_without_an_error() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.request("churn");
    let samples = pages(&target, start, 8 * MIB);
    let mut accessed = 0;
    for round in 0..400 {
        if round % 20 == 0 {
            update(&mut probe, &[&target]);
        }
        probe.clear(&samples).unwrap();
        accessed += count(&read(&mut probe, &samples), Accessed);
    }
    assert!(accessed > 0);
}

#[test]
fn targets_that_end_at_any_time_cause_no_error() {
    let mut probe = or_skip!(open());
    for _ in 0..5 {
        let mut targets: Vec<_> = (0..4).map(|_| Target::start()).collect();
        let starts: Vec<_> = targets.iter_mut().map(|target| target.request("churn")).collect();
        update(&mut probe, &targets.iter().collect::<Vec<_>>());
        let samples: Vec<_> = (targets.iter().zip(&starts)).flat_map(|(t, &start)| pages(t, start, MIB)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| targets.iter_mut().for_each(|target| target.kill()));
            for _ in 0..30 {
                probe.clear(&samples).unwrap();
                read(&mut probe, &samples);
            }
        });
    }
}

#[test]
fn an_ordinary_user_sees_what_is_missing() {
    use std::os::unix::process::CommandExt;
    drop(or_skip!(open()));
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lives::print_error", "--ignored", "--nocapture"])
        .env("ISOTHERM_TEST_PRINT_ERROR", "1")
        .uid(65534)
        .gid(65534)
        .output();
    let output = or_skip!(output.map_err(|e| format!("an ordinary user cannot run this program: {e}")));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("run isotherm as root"), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!printed.contains("libbpf:") && output.stderr.is_empty(), "libbpf's messages are not printed: {output:?}");
}

#[test]
#[ignore = "another test runs it as another user"]
fn print_error() {
    or_skip!(std::env::var("ISOTHERM_TEST_PRINT_ERROR").map_err(|_| "it is a part of another test"));
    println!("{}", isotherm_probes::bpf::BpfProbe::open().expect_err("an ordinary user lacks the capabilities"));
}
