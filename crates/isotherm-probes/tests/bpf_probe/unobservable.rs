//! Pages that the probe cannot observe, and must report as unobservable.

use isotherm_core::AccessProbe;

use crate::target::Target;
use crate::watch::*;

/// Clears all pages of a range that was accessed, and returns the answers of the next read.
fn after_clear(
    kind: &str,
    prepare: impl FnOnce(&mut Target, u64),
) -> Result<Vec<isotherm_core::Observation>, &'static str> {
    let mut probe = open()?;
    let mut target = Target::start();
    let start = target.map(kind, MIB);
    prepare(&mut target, start);
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, MIB);
    probe.clear(&samples).unwrap();
    Ok(read(&mut probe, &samples))
}

#[test]
fn locked_pages_are_unobservable() {
    let answers = or_skip!(after_clear("locked", |target, start| target.write(start, MIB)));
    assert!(nearly_all(count(&answers, Unobservable), 256));
}

#[test]
fn pages_shared_since_a_fork_are_unobservable() {
    let prepare = |target: &mut Target, start| {
        target.write(start, MIB);
        target.request(&format!("fork-and-read {start} {MIB}"));
        target.read(start, MIB);
    };
    let answers = or_skip!(after_clear("small", prepare));
    assert!(nearly_all(count(&answers, Unobservable), 256));
}

#[test]
fn shared_memory_that_two_processes_use_is_unobservable() {
    let prepare = |target: &mut Target, start| {
        target.write(start, MIB);
        target.request(&format!("fork-and-read {start} {MIB}"));
    };
    let answers = or_skip!(after_clear("shared", prepare));
    assert!(nearly_all(count(&answers, Unobservable), 256));
}

#[test]
fn shared_memory_that_one_process_uses_is_observed() {
    let answers = or_skip!(after_clear("shared", |target, start| target.write(start, MIB)));
    assert!(count(&answers, Idle) + STRAGGLERS >= 256);
}

/// A survey counts it as absent.
#[test]
fn the_zero_page_is_unobservable_to_samples() {
    let answers = or_skip!(after_clear("small", |target, start| target.read(start, MIB)));
    assert!(nearly_all(count(&answers, Unobservable), 256));
}

#[test]
fn unobservable_pages_do_not_change_the_answers_for_other_pages() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let locked = target.map("locked", MIB);
    let free = target.map("small", MIB);
    target.write(locked, MIB);
    target.write(free, MIB);
    update(&mut probe, &[&target]);
    // The two kinds of pages alternate, so that each system call handles both.
    let (locked, free) = (pages(&target, locked, MIB), pages(&target, free, MIB));
    let samples: Vec<_> = locked.iter().zip(&free).flat_map(|(a, b)| [*a, *b]).collect();
    for _ in 0..3 {
        probe.clear(&samples).unwrap();
        target.write(free[0].addr, MIB);
        let answers = read(&mut probe, &samples);
        let locked: Vec<_> = answers.iter().copied().step_by(2).collect();
        assert!(nearly_all(count(&locked, Unobservable), 256));
        assert!(count(&answers, Accessed) + STRAGGLERS >= 256);
    }
}
