//! Ordinary pages are accessed or idle.

use std::time::Duration;

use isotherm_core::{AccessProbe, Sample, TargetId};
use isotherm_probes::bpf::BpfProbe;
use rand::{RngExt, SeedableRng};

use crate::target::Target;
use crate::watch::*;

#[test]
fn the_probe_passes_its_own_test() {
    drop(or_skip!(open()));
    BpfProbe::check().unwrap();
}

#[test]
fn the_probe_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<BpfProbe>();
}

#[test]
fn a_thousand_random_samples_in_a_round_are_answered_correctly() {
    const SIZE: u64 = 64 * MIB;
    const HOT: std::ops::Range<u64> = 16 * MIB..24 * MIB;
    const ROUNDS: usize = 50;
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    update(&mut probe, &[&target]);

    let mut rng = rand_pcg::Pcg32::seed_from_u64(1);
    let (mut right, mut unobservable) = (0, 0);
    for _ in 0..ROUNDS {
        let offsets: Vec<u64> = (0..1000).map(|_| rng.random_range(0..SIZE / PAGE) * PAGE).collect();
        let id = TargetId::process(target.pid(), Duration::ZERO);
        let samples: Vec<_> = offsets.iter().map(|offset| Sample { target: id, addr: start + offset }).collect();
        probe.clear(&samples).unwrap();
        target.write(start + HOT.start, HOT.end - HOT.start);
        let answers = read(&mut probe, &samples);
        unobservable += count(&answers, Unobservable);
        let truth = offsets.iter().map(|offset| if HOT.contains(offset) { Accessed } else { Idle });
        right += answers.iter().zip(truth).filter(|&(&answer, truth)| answer == truth).count();
    }
    let wrong = ROUNDS * 1000 - right - unobservable;
    assert!(wrong <= ROUNDS / 10, "{wrong} wrong, {right} right, {unobservable} unobservable");
    assert!(unobservable <= ROUNDS * 10, "{unobservable} of {} are unobservable", ROUNDS * 1000);
}

#[test]
fn pages_that_are_not_present_are_idle() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", 4 * MIB);
    let gone = target.map("small", 4 * MIB);
    target.write(gone, 4 * MIB);
    update(&mut probe, &[&target]);
    target.request(&format!("unmap {gone} {}", 4 * MIB));

    let mut samples = pages(&target, start, 4 * MIB);
    samples.extend(pages(&target, gone, 4 * MIB));
    // Two addresses where nothing was ever mapped, and one where no process can map anything.
    let id = TargetId::process(target.pid(), Duration::ZERO);
    samples.extend([0x1000, 0x7fff_ffff_f000, 0xffff_ffff_ffff_f000].map(|addr| Sample { target: id, addr }));
    probe.clear(&samples).unwrap();
    let answers = read(&mut probe, &samples);
    assert_eq!(count(&answers, Idle), samples.len());
}

#[test]
fn a_page_that_is_faulted_in_between_clear_and_read_is_accessed() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", MIB);
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, MIB);
    probe.clear(&samples).unwrap();
    target.write(start, MIB / 2);
    let answers = read(&mut probe, &samples);
    assert!(nearly_all(count(&answers[..128], Accessed), 128));
    assert!(count(&answers[128..], Idle) >= 127);
}

#[test]
fn more_samples_than_the_program_takes_at_once_are_all_answered() {
    const SIZE: u64 = 160 * MIB;
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, SIZE);
    assert_eq!(samples.len(), 40960);
    probe.clear(&samples).unwrap();
    target.write(start + SIZE - MIB, MIB);
    let answers = read(&mut probe, &samples);
    assert!(nearly_all(count(&answers[40960 - 256..], Accessed), 256));
    assert!(nearly_all(count(&answers, Idle), 40960 - 256));
}

#[test]
fn an_update_and_a_round_without_samples_succeed() {
    let mut probe = or_skip!(open());
    probe.update(&[]).unwrap();
    probe.clear(&[]).unwrap();
    probe.read(&[], &mut []).unwrap();
    assert_eq!(probe.clears(), 0);
}

#[test]
fn after_the_first_sweep_only_memory_in_use_must_be_cleared() {
    const SIZE: u64 = 32 * MIB;
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    update(&mut probe, &[&target]);

    let before = probe.clears();
    assert!(before >= 1);
    let samples = pages(&target, start, SIZE);
    let answers = read(&mut probe, &samples);
    assert!(count(&answers, Accessed) <= STRAGGLERS, "{} are still accessed", count(&answers, Accessed));

    // A second update with the same target clears nothing.
    target.write(start, MIB);
    update(&mut probe, &[&target]);
    assert_eq!(probe.clears(), before);
    assert!(nearly_all(count(&read(&mut probe, &samples)[..256], Accessed), 256));
}

#[test]
fn without_sweeps_an_update_clears_nothing() {
    let probe = or_skip!(open());
    let mut probe = probe.with_sweeps(false);
    let mut target = Target::start();
    let start = target.map("small", MIB);
    target.write(start, MIB);
    update(&mut probe, &[&target]);
    assert_eq!(probe.clears(), 0);
    assert!(nearly_all(count(&read(&mut probe, &pages(&target, start, MIB)), Accessed), 256));
}

#[test]
fn accesses_of_all_threads_are_observed() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", 8 * MIB);
    target.write(start, 8 * MIB);
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, 8 * MIB);
    for _ in 0..5 {
        probe.clear(&samples).unwrap();
        target.request(&format!("write-in-threads {start} {}", 4 * MIB));
        let answers = read(&mut probe, &samples);
        assert!(count(&answers[..1024], Accessed) + STRAGGLERS >= 1024);
        // A processor may execute ahead speculatively, and so access the page after the last one.
        assert_eq!(count(&answers[1025..], Accessed), 0);
        assert!(count(&answers, Unobservable) <= STRAGGLERS);
    }
}

#[test]
fn several_targets_share_a_round() {
    let mut probe = or_skip!(open());
    let mut targets: Vec<_> = (0..3).map(|_| Target::start()).collect();
    let starts: Vec<u64> = targets
        .iter_mut()
        .map(|target| {
            let start = target.map("small", MIB);
            target.write(start, MIB);
            start
        })
        .collect();
    update(&mut probe, &targets.iter().collect::<Vec<_>>());
    let samples: Vec<Sample> =
        targets.iter().zip(&starts).flat_map(|(target, &start)| pages(target, start, MIB)).collect();
    probe.clear(&samples).unwrap();
    targets[1].write(starts[1], MIB);
    let answers = read(&mut probe, &samples);
    assert_eq!(count(&answers[..256], Accessed), 0);
    assert!(count(&answers[256..512], Accessed) + STRAGGLERS >= 256);
    assert_eq!(count(&answers[512..], Accessed), 0);
}
