//! Acting on real processes as schemes order it. A test that needs a privilege that is missing is skipped.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_core::scheme::{Action, Actuator, Outcome, PageInspector, PageKind, RefusalReason, Work};
use isotherm_core::{AccessProbe, AddrRange, BoxError, PAGE_SIZE};
use isotherm_kernel::{ProcessTable, Processes};
use isotherm_probes::bpf::BpfProbe;
use isotherm_testing::or_skip;

use super::inside::tests::target::{SIZE, Target};
use super::{InsideError, ProcessActuator, ProcessInspector};

fn actuator(target: &Target) -> ProcessActuator {
    ProcessActuator::new(Processes::new([target.pid()], false).unwrap().process_table())
}

fn open_probe() -> Result<Box<dyn AccessProbe + Send>, BoxError> {
    Ok(Box::new(BpfProbe::open()?.with_sweeps(false)))
}

fn inspector(target: &Target) -> ProcessInspector {
    ProcessInspector::new(Processes::new([target.pid()], false).unwrap().process_table(), open_probe)
}

fn apply(actuator: &mut ProcessActuator, target: &Target, action: Action, ranges: &[AddrRange]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::default(); ranges.len()];
    let work = Work { action, inside: true, target: target.id, ranges };
    actuator.apply(&work, &mut outcomes).unwrap();
    outcomes
}

fn pages(inspector: &mut ProcessInspector, target: &Target, kind: PageKind) -> Vec<AddrRange> {
    let mut found = Vec::new();
    inspector.pages(target.id, target.memory, kind, &mut found).unwrap();
    found
}

#[test]
fn memory_of_a_file_that_is_paged_out_is_resident_no_more() {
    // Of a file system on a disk: those in memory have nowhere to page out to.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("memory");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let target = Target::start(&format!("file {}", path.display()));
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::PageOut, true));
    let before = target.kib("Rss:");
    assert_eq!(apply(&mut actuator, &target, Action::PageOut, &[target.memory]), [Outcome::all(target.memory)]);
    let after = target.kib("Rss:");
    // Pages that wait on another processor to be listed are left out.
    assert!(before == SIZE as u64 / 1024 && after < before / 2, "{before} {after}");
    assert_eq!(apply(&mut actuator, &target, Action::WillNeed, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(actuator.time_spent() > std::time::Duration::ZERO);
}

#[test]
fn huge_pages_are_made_told_and_forbidden() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Collapse, true));
    or_skip!(actuator.supports(Action::NoHugePage, true));
    let mut inspector = inspector(&target);
    or_skip!(inspector.tells(PageKind::Huge));
    assert_eq!(apply(&mut actuator, &target, Action::NoHugePage, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("nh"));
    assert_eq!(pages(&mut inspector, &target, PageKind::Huge), []);
    assert_eq!(apply(&mut actuator, &target, Action::HugePage, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("hg"));
    let outcome = apply(&mut actuator, &target, Action::Collapse, &[target.memory])[0];
    assert_eq!(outcome.applied + outcome.refused, SIZE as u64);
    assert_eq!(target.kib("AnonHugePages:") * 1024, outcome.applied, "{outcome:?}");
    let huge: u64 = pages(&mut inspector, &target, PageKind::Huge).iter().map(|range| range.size()).sum();
    assert_eq!(huge, outcome.applied);
}

#[test]
fn pages_are_young_if_they_were_accessed_since_they_were_made_cold() {
    let mut target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Cold, true));
    let mut inspector = inspector(&target);
    or_skip!(inspector.tells(PageKind::Young));
    let young = |inspector: &mut _, target: &_| pages(inspector, target, PageKind::Young);
    target.tell("touch");
    target.answer();
    assert_eq!(young(&mut inspector, &target), [target.memory]);
    let half = target.memory.split_at(target.memory.start() + SIZE as u64 / 2).unwrap().0;
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[half]), [Outcome::all(half)]);
    let left: u64 =
        young(&mut inspector, &target).iter().filter_map(|range| range.intersection(half)).map(|r| r.size()).sum();
    // Pages that wait on another processor to be listed are left out.
    assert!(left < half.size() / 4, "{left}");
    target.tell("touch");
    target.answer();
    assert_eq!(young(&mut inspector, &target), [target.memory]);
}

#[test]
fn what_is_not_mapped_is_refused_and_the_rest_is_done() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    // On both sides of the memory lies what cannot be accessed, and far below nothing.
    let across = AddrRange::new(target.memory.start(), target.memory.end()).unwrap();
    let nothing = AddrRange::new(16 * PAGE_SIZE, 32 * PAGE_SIZE).unwrap();
    for action in [Action::Cold, Action::NoHugePage, Action::MLock, Action::MUnlock] {
        or_skip!(actuator.supports(action, true));
        let outcomes = apply(&mut actuator, &target, action, &[nothing, across]);
        let refused = Outcome::refused(nothing, RefusalReason::NotMapped.with_code(libc::ENOMEM));
        assert_eq!(outcomes, [refused, Outcome::all(across)], "{action}");
    }
}

#[test]
fn locked_memory_is_refused_until_it_is_let_go() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Cold, true));
    or_skip!(actuator.supports(Action::MLock, true));
    assert_eq!(apply(&mut actuator, &target, Action::MLock, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("lo"));
    let refused = [Outcome::refused(target.memory, RefusalReason::Unsuitable.with_code(libc::EINVAL))];
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[target.memory]), refused);
    assert_eq!(apply(&mut actuator, &target, Action::MUnlock, &[target.memory]), [Outcome::all(target.memory)]);
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[target.memory]), [Outcome::all(target.memory)]);
}

#[test]
fn a_target_that_has_gone_or_is_not_there_refuses_all() {
    let mut target = Target::start("touch");
    let memory = target.memory;
    let mut actuator = actuator(&target);
    target.end_at_once();
    for action in [Action::PageOut, Action::NoHugePage] {
        let gone = Outcome::refused(memory, RefusalReason::TargetGone.with_code(libc::ESRCH));
        assert_eq!(apply(&mut actuator, &target, action, &[memory]), [gone]);
        let none = &mut ProcessActuator::new(ProcessTable::default());
        assert_eq!(apply(none, &target, action, &[memory]), [gone]);
    }
}

#[test]
fn why_no_call_can_be_made_inside_a_target_is_told_in_words() {
    let target = Target::start("seccomp");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::MLock, true));
    let refused = apply(&mut actuator, &target, Action::MLock, &[target.memory]);
    assert_eq!(refused, [Outcome::refused(target.memory, RefusalReason::NotPermitted.with_code(libc::EACCES))]);
    let told: Vec<_> = actuator.take_refusals().collect();
    assert!(matches!(told[..], [(of, InsideError::Seccomp(_))] if of == target.id), "{told:?}");
    assert_eq!(actuator.take_refusals().count(), 0);
}

#[test]
fn an_action_that_is_inside_only_has_to_be_allowed() {
    let mut actuator = ProcessActuator::new(ProcessTable::default());
    for action in [Action::NoHugePage, Action::MLock, Action::MUnlock] {
        let why = actuator.supports(action, false).unwrap_err().to_string();
        assert!(why.contains("inside: true"), "{why}");
    }
    actuator.supports(Action::Stat, false).unwrap();
}

#[test]
fn nothing_more_is_done_once_the_run_is_over_and_nothing_to_those_of_another_roster() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    let all = [target.memory];
    let work = Work { action: Action::Stat, inside: false, target: target.id, ranges: &all };
    let mut outcomes = [Outcome::default()];
    actuator.apply(&work, &mut outcomes).unwrap();
    assert_eq!(outcomes, [Outcome::all(target.memory)]);

    actuator.act_on(Processes::new([], false).unwrap().process_table());
    actuator.apply(&work, &mut outcomes).unwrap();
    assert_eq!(outcomes[0].refused, target.memory.size());
    actuator.interrupt().store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(actuator.apply(&work, &mut outcomes).unwrap_err().to_string().contains("over"));
}
