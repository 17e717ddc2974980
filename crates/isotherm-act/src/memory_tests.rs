//! Acts on the page cache of files, and on page frames. A test is skipped if it needs a privilege that this user does
//! not have.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::{Path, PathBuf};

use isotherm_core::scheme::{Action, Actuator, Outcome, PageInspector, PageKind, Refusal, RefusalReason, Work};
use isotherm_core::{AccessProbe, AddrRange, BoxError, PAGE_SIZE, TargetId};
use isotherm_kernel::ProcessTable;
use isotherm_kernel::page_cache::CachedFiles;
use isotherm_kernel::pages::{PageBuffer, Pagemap};
use isotherm_testing::or_skip;

use super::inside::tests::target::{SIZE, Target};
use super::tests::EverySecond;
use super::{FrameOwners, ProcessActuator, ProcessInspector};

fn apply(actuator: &mut ProcessActuator, target: TargetId, action: Action, ranges: &[AddrRange]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::default(); ranges.len()];
    actuator.apply(&Work { action, inside: false, target, ranges, elsewhere: None }, &mut outcomes).unwrap();
    outcomes
}

/// A file of `SIZE` clean bytes in the page cache, on a disk, and its place.
fn file(directory: &Path) -> (PathBuf, CachedFiles, AddrRange) {
    let path = directory.join("file");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    std::fs::read(&path).unwrap();
    let files = CachedFiles::new(std::slice::from_ref(&path)).unwrap();
    let parts = files.table().parts(AddrRange::new(0, u64::MAX).unwrap());
    (path, files, parts[0].1)
}

fn no_probe() -> Result<Box<dyn AccessProbe + Send>, BoxError> {
    Err("these tests look at no page".into())
}

#[test]
fn page_cache_is_dropped_read_in_again_and_refused_where_a_process_maps_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (path, files, place) = file(directory.path());
    let mut actuator = ProcessActuator::new(ProcessTable::default()).with_files(files.table());
    or_skip!(actuator.supports(Action::PageOut, false));
    let mut inspector = ProcessInspector::new(ProcessTable::default(), no_probe).with_files(files.table());
    assert_eq!(inspector.present(TargetId::PageCache, place), Some(SIZE as u64));
    let gone = Outcome { resident: Some(0), ..Outcome::all(place) };
    assert_eq!(apply(&mut actuator, TargetId::PageCache, Action::PageOut, &[place]), [gone]);
    assert_eq!(inspector.present(TargetId::PageCache, place), Some(0));

    let target = Target::start(&format!("file {}", path.display()));
    let [kept] = apply(&mut actuator, TargetId::PageCache, Action::PageOut, &[place])[..] else { panic!() };
    assert_eq!((kept.applied, kept.refusal), (0, Some(RefusalReason::Busy.into())), "{kept:?}");
    assert_eq!((kept.refused, kept.resident), (SIZE as u64, Some(SIZE as u64)));
    drop(target);

    let beyond = AddrRange::new(place.start(), place.end() + PAGE_SIZE).unwrap();
    let [partly] = apply(&mut actuator, TargetId::PageCache, Action::PageOut, &[beyond])[..] else { panic!() };
    assert_eq!((partly.applied, partly.refused), (SIZE as u64, PAGE_SIZE));
    assert_eq!(partly.refusal.map(|why| why.reason), Some(RefusalReason::NotMapped));
    let all = Outcome::all(place);
    assert_eq!(apply(&mut actuator, TargetId::PageCache, Action::WillNeed, &[place]), [all]);
}

#[test]
fn an_action_that_is_none_on_files_or_on_frames_is_refused_before_the_start() {
    let mut on_files = ProcessActuator::new(ProcessTable::default()).with_files(CachedFiles::new(&[]).unwrap().table());
    let mut on_frames = ProcessActuator::new(ProcessTable::default()).with_physical(FrameOwners::new(), None);
    for action in Action::ALL {
        let refused = |supports: Result<(), BoxError>| supports.is_err_and(|error| error.to_string().contains("(use "));
        if !matches!(action, Action::Stat | Action::WillNeed | Action::PageOut) && action.moves().is_none() {
            assert!(refused(on_files.supports(action, true)), "{action}");
        }
        if !matches!(action, Action::Stat | Action::Cold | Action::PageOut) {
            assert!(refused(on_frames.supports(action, true)), "{action}");
        }
    }
    assert!(on_files.supports(Action::Stat, false).is_ok() && on_frames.supports(Action::Stat, false).is_ok());
}

#[test]
fn unmapped_pages_of_files_are_found_by_their_flags() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (path, files, place) = file(directory.path());
    let mut inspector = ProcessInspector::new(ProcessTable::default(), no_probe).with_files(files.table());
    or_skip!(inspector.tells(PageKind::Unmapped));
    let mut unmapped = || {
        let mut found = Vec::new();
        inspector.pages(TargetId::PageCache, &[place], PageKind::Unmapped, &mut found).unwrap();
        found
    };
    assert_eq!(unmapped(), [place]);
    let target = Target::start(&format!("file {}", path.display()));
    assert_eq!(unmapped(), []);
    drop(target);
    assert_eq!(unmapped(), [place]);
    assert!(inspector.tells(PageKind::Compressible).is_err());
}

/// The frames of a target's memory, as ranges of physical addresses that are sorted. An error is the reason to skip the
/// test.
fn frames(target: &Target) -> Result<Vec<AddrRange>, String> {
    let pagemap = Pagemap::open(Path::new("/"), &target.pid().to_string()).map_err(|error| error.to_string())?;
    let mut frames = Vec::new();
    let read = pagemap.frames(target.memory.page_addresses(), &mut PageBuffer::default(), |frame| frames.push(frame));
    read.map_err(|error| error.to_string())?;
    let mut frames: Vec<u64> = frames.into_iter().flatten().collect();
    if frames.contains(&0) {
        return Err("page frame numbers are not shown".into());
    }
    frames.sort_unstable();
    let mut ranges = Vec::new();
    let page = |frame: u64| AddrRange::new(frame * PAGE_SIZE, (frame + 1) * PAGE_SIZE);
    frames.into_iter().filter_map(page).for_each(|page| isotherm_core::push_joined(&mut ranges, page));
    Ok(ranges)
}

fn sum(outcomes: &[Outcome]) -> (u64, u64) {
    (outcomes.iter().map(|of| of.applied).sum(), outcomes.iter().map(|of| of.refused).sum())
}

#[test]
fn page_frames_are_acted_on_in_the_process_that_maps_them() {
    let target = Target::start("touch");
    let mut actuator = ProcessActuator::new(ProcessTable::default()).with_physical(FrameOwners::new(), None);
    or_skip!(actuator.supports(Action::Cold, false));
    let ranges = or_skip!(frames(&target));
    let outcomes = apply(&mut actuator, TargetId::PhysicalMemory, Action::Cold, &ranges);
    assert_eq!(sum(&outcomes), (SIZE as u64, 0));
    assert!(outcomes.iter().zip(&ranges).all(|(outcome, range)| outcome.applied == range.size()));
}

#[test]
fn frames_that_several_processes_map_or_that_have_gone_are_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("memory");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let command = format!("shared {}", path.display());
    let (one, other) = (Target::start(&command), Target::start(&command));
    let mut actuator = ProcessActuator::new(ProcessTable::default()).with_physical(FrameOwners::new(), None);
    or_skip!(actuator.supports(Action::Cold, false));
    let ranges = or_skip!(frames(&one));
    let outcomes = apply(&mut actuator, TargetId::PhysicalMemory, Action::Cold, &ranges);
    assert_eq!(sum(&outcomes), (0, SIZE as u64));
    let why = |outcomes: &[Outcome]| -> Vec<Option<Refusal>> { outcomes.iter().map(|of| of.refusal).collect() };
    assert!(why(&outcomes).iter().all(|why| *why == Some(RefusalReason::Unsuitable.into())), "{outcomes:?}");

    let act_by = |how| {
        let mut actuator = ProcessActuator::new(ProcessTable::default()).with_physical(FrameOwners::new(), Some(how));
        apply(&mut actuator, TargetId::PhysicalMemory, Action::Cold, &ranges)
    };
    let outcomes = act_by(|_, ranges| Ok(ranges.iter().map(|range| range.size()).sum::<u64>() - PAGE_SIZE));
    let (applied, refused) = sum(&outcomes);
    assert!(applied + refused == SIZE as u64 && applied > SIZE as u64 / 2 && refused >= PAGE_SIZE, "{outcomes:?}");
    assert!(why(&outcomes).iter().flatten().all(|why| *why == RefusalReason::Busy.into()), "{outcomes:?}");
    let outcomes = act_by(|_, _| Err("in use".into()));
    assert!(why(&outcomes).iter().all(|why| *why == Some(RefusalReason::Unsuitable.into())), "{outcomes:?}");

    // What was read of the page tables is used for some time, and checked.
    drop((one, other));
    let outcomes = apply(&mut actuator, TargetId::PhysicalMemory, Action::Cold, &ranges);
    assert_eq!(sum(&outcomes), (0, SIZE as u64));
}

#[test]
fn young_frames_are_those_that_their_process_has_accessed() {
    let target = Target::start("touch");
    let ranges = or_skip!(frames(&target));
    let mut inspector =
        ProcessInspector::new(ProcessTable::default(), || Ok(Box::new(EverySecond))).with_physical(FrameOwners::new());
    let mut young = Vec::new();
    inspector.pages(TargetId::PhysicalMemory, &ranges, PageKind::Young, &mut young).unwrap();
    assert_eq!(young.iter().map(|range| range.size()).sum::<u64>(), SIZE as u64 / 2);
    assert!(young.iter().all(|of| ranges.iter().any(|range| range.intersection(*of) == Some(*of))), "{young:?}");
}
