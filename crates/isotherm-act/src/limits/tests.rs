//! Limits on a made tree: how they are set, given back, and left to their owners.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_kernel::cgroup::Hierarchy;
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;

/// A root directory with the cgroup `/a`.
pub(super) fn made() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in ["proc/self", "proc/sys/kernel/random"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
    write("proc/self/cgroup", "0::/\n");
    write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    write("proc/sys/kernel/random/boot_id", "one\n");
    make_cgroup(root.path());
    root
}

fn make_cgroup(root: &Path) {
    fs::create_dir_all(root.join("cg/a")).unwrap();
    set(root, "memory.high", "max\n");
    set(root, "memory.low", "0\n");
    set(root, "memory.current", &(100 * MIB).to_string());
    set(root, "memory.events", "low 0\nhigh 3\nmax 0\n");
}

pub(super) fn set(root: &Path, name: &str, text: &str) {
    fs::write(root.join("cg/a").join(name), text).unwrap();
}

pub(super) fn high(root: &Path) -> String {
    fs::read_to_string(root.join("cg/a/memory.high")).unwrap().trim().to_owned()
}

fn cgroup(root: &Path) -> CgroupMemory {
    CgroupMemory::open(&Hierarchy::find(root).unwrap(), "/a").unwrap()
}

/// What a scheme wants with 60 of 100 MiB in use, all of it known.
pub(super) fn wanted<F: CgroupFiles>(cgroup: CgroupMemory<F>) -> Wanted<F> {
    let (in_use, known, idle) = (60 * MIB, Some(60 * MIB), 40 * MIB);
    Wanted { cgroup, how: CgroupLimit::DEFAULT, reached: None, in_use, known, idle }
}

pub(super) fn reached<F: CgroupFiles>(cgroup: CgroupMemory<F>) -> Wanted<F> {
    Wanted { reached: Some("it hurts".into()), ..wanted(cgroup) }
}

/// A limit for 100 MiB.
fn limited() -> String {
    (100 * MIB + CgroupLimit::DEFAULT.margin_of(100 * MIB)).next_multiple_of(4096).to_string()
}

impl<F: CgroupFiles> CgroupLimits<F> {
    /// What is left of a run that is killed.
    fn kill(mut self) {
        self.journal.take().into_iter().for_each(Journal::leave);
        self.limited.clear();
    }

    fn said(&mut self) -> String {
        let news = self.take_news();
        news.iter().map(|news| format!("{}{}\n", if news.is_warning { "warning: " } else { "" }, news.text)).collect()
    }
}

pub(super) fn restored(root: &Path) -> String {
    restore_limits(root).iter().map(|news| news.text.clone() + "\n").collect()
}

/// The same when no run lives. A child of another test has the lock of a journal, too, until it executes its program.
fn restored_from_dead(root: &Path) -> String {
    let (begun, mut said) = (Instant::now(), String::new());
    loop {
        said += &restored(root);
        if !root.join("run/isotherm").exists() {
            return said;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the journal is left: {said}");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_there_before_is_given_back_at_the_end() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), limited());
    assert!(limits.said().starts_with("memory.high of /a is 110 MiB now (before: max)"));
    assert_eq!(restored(root.path()), "", "its owner lives");
    assert_eq!(high(root.path()), limited());
    set(root.path(), "memory.events", "high 5\n");
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.end();
    assert_eq!(high(root.path()), "max");
    let said = limits.said();
    assert!(said.contains("/a is max again: it was 110 MiB at the least, and was reached twice"), "{said}");
    assert!(!root.path().join("run/isotherm").exists(), "nothing is left");
}

#[test]
fn the_memory_in_use_is_protected_whatever_the_goals_and_given_back_at_the_end() {
    let root = made();
    let low = || fs::read_to_string(root.path().join("cg/a/memory.low")).unwrap().trim().to_owned();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::Low);
    let both = || [LimitFile::High, LimitFile::Low].map(|file| CgroupLimits::new(root.path(), file));
    limits.set_each(vec![reached(cgroup(root.path()))]);
    assert_eq!((low(), high(root.path())), ((60 * MIB).to_string(), "max".into()));
    assert_eq!(limits.said(), "memory.low of /a is 60 MiB now (before: 0 B)\n");
    let less = Wanted { in_use: 40 * MIB, known: Some(40 * MIB), ..wanted(cgroup(root.path())) };
    limits.set_each(vec![less]);
    assert_eq!(low(), (40 * MIB).to_string());
    limits.end();
    assert_eq!(
        (low(), limits.said()),
        ("0".into(), "memory.low of /a is 0 B again: it was 60 MiB at the most\n".into())
    );

    // One run has both files of a cgroup, and a killed one gives both back.
    let mut runs = both();
    runs.iter_mut().for_each(|limits| limits.set_each(vec![wanted(cgroup(root.path()))]));
    assert_eq!((low(), high(root.path())), ((60 * MIB).to_string(), limited()));
    runs.into_iter().for_each(CgroupLimits::kill);
    let said = restored_from_dead(root.path());
    assert!(
        said.contains("memory.low of /a is 0 B again") && said.contains("memory.high of /a is max again"),
        "{said}"
    );
    assert_eq!((low(), high(root.path())), ("0".into(), "max".into()));

    let [_, mut dry] = both();
    dry.dry(true);
    dry.set_each(vec![wanted(cgroup(root.path()))]);
    dry.end();
    assert_eq!(dry.said(), "memory.low of /a would be raised to 60 MiB at the most (it is 0 B)\n");
    assert_eq!(low(), "0");
}

#[test]
fn a_cgroup_is_not_limited_before_it_is_known_how_much_is_to_be_left_and_not_below_that() {
    let root = made();
    let least = LeastLimits::default();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.not_below(least.clone());
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert!(high(root.path()) == "max" && limits.has_its_least(&cgroup(root.path()), CgroupLimit::DEFAULT));
    for (mib, expected) in [(150, 150), (170, 170), (130, 130)] {
        least.set("/a", mib * MIB);
        limits.set_each(vec![wanted(cgroup(root.path()))]);
        assert_eq!(high(root.path()), (expected * MIB).to_string());
        assert!(limits.has_its_least(&cgroup(root.path()), CgroupLimit::DEFAULT));
    }
    least.set("/a", 90 * MIB);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), limited(), "it has more than that");
    assert!(!limits.has_its_least(&cgroup(root.path()), CgroupLimit::DEFAULT));
    drop(limits);
    assert_eq!(high(root.path()), "max");
}

#[test]
fn a_cgroup_that_uses_nothing_is_limited_and_one_that_is_not_known_is_not() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    for known in [None, Some(20 * MIB)] {
        limits.set_each(vec![Wanted { known, ..wanted(cgroup(root.path())) }]);
        assert_eq!(high(root.path()), "max");
    }
    limits.set_each(vec![Wanted { in_use: 0, known: Some(0), ..wanted(cgroup(root.path())) }]);
    assert_eq!(high(root.path()), limited());
}

#[test]
fn a_limit_is_given_back_when_a_goal_is_reached_or_nobody_wants_it() {
    let root = made();
    set(root.path(), "memory.high", &(500 * MIB).to_string());
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    for _ in 0..2 {
        limits.set_each(vec![wanted(cgroup(root.path()))]);
        assert_eq!(high(root.path()), limited());
        limits.set_each(vec![reached(cgroup(root.path()))]);
        assert_eq!(high(root.path()), (500 * MIB).to_string());
    }
    assert!(limits.said().contains("memory.high of /a is 500 MiB again: it hurts"));
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.set_each(Vec::new());
    assert_eq!(high(root.path()), (500 * MIB).to_string());
    assert!(limits.limited.is_empty());
    drop(limits);
    assert!(!root.path().join("run/isotherm").exists());
}

#[test]
fn a_limit_that_its_owner_has_set_meanwhile_is_left_and_the_user_is_told() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.said();
    for theirs in ["209715200", "max"] {
        set(root.path(), "memory.high", theirs);
        for _ in 0..2 {
            limits.set_each(vec![wanted(cgroup(root.path()))]);
            assert_eq!(high(root.path()), theirs);
        }
        assert!(limits.is_left(&cgroup(root.path())));
    }
    assert!(limits.said().starts_with("warning: memory.high of /a is left at 200 MiB: somebody else has set it"));
    limits.end();
    assert_eq!(high(root.path()), "max");

    // Also if that is found at the end only.
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    set(root.path(), "memory.high", "4096");
    limits.end();
    assert_eq!(high(root.path()), "4096");
    assert!(limits.said().contains("is left at 4 KiB"));
}

#[test]
fn the_next_start_gives_back_what_a_killed_run_had_written() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.kill();
    assert_eq!(high(root.path()), limited());
    let said = restored_from_dead(root.path());
    assert_eq!(said, "memory.high of /a is max again: an isotherm that was killed had left 110 MiB\n");
    assert_eq!((high(root.path()).as_str(), restored(root.path()).as_str()), ("max", ""));
    assert!(!root.path().join("run/isotherm").exists());

    // Its owner has set another one since.
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.kill();
    set(root.path(), "memory.high", "209715200\n");
    assert!(restored_from_dead(root.path()).contains("is left at 200 MiB: somebody else has set it"));
    assert_eq!(high(root.path()), "209715200");
    assert!(!root.path().join("run/isotherm").exists());
}

#[test]
fn a_run_may_be_killed_before_or_after_any_write() {
    let root = made();
    let steps = [(limited(), MemoryLimit::Bytes(90 * MIB)), (limited(), MemoryLimit::Max)];
    for (is_written, (first, to)) in [false, true].into_iter().flat_map(|done| steps.iter().map(move |s| (done, s))) {
        make_cgroup(root.path());
        let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
        // Nothing but the journal was written for the first limit.
        limits.begin(cgroup(root.path()), cgroup(root.path()).files().inode().unwrap(), MemoryLimit::Max, None);
        limits.limited.get_mut("/a").unwrap().tried = Some(MemoryLimit::Bytes(110 * MIB));
        limits.write_journal().unwrap();
        limits.kill();
        assert_eq!((restored_from_dead(root.path()).as_str(), high(root.path()).as_str()), ("", "max"));

        let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
        limits.set_each(vec![wanted(cgroup(root.path()))]);
        assert_eq!(high(root.path()), *first);
        limits.limited.get_mut("/a").unwrap().tried = Some(*to);
        limits.write_journal().unwrap();
        if is_written {
            set(root.path(), "memory.high", &to.to_string());
        }
        limits.kill();
        restored_from_dead(root.path());
        assert_eq!(high(root.path()), "max", "{is_written} {to}");
    }
}

#[test]
fn a_journal_of_another_boot_or_of_a_cgroup_that_was_made_again_changes_nothing() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.kill();
    // The directory that is made first gets another inode number than the one that is removed.
    fs::rename(root.path().join("cg/a"), root.path().join("cg/removed")).unwrap();
    assert_eq!(restored(root.path()), "", "it is gone");
    make_cgroup(root.path());

    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    fs::rename(root.path().join("cg/a"), root.path().join("cg/removed-too")).unwrap();
    make_cgroup(root.path());
    set(root.path(), "memory.high", "8192");
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert!(limits.limited.is_empty(), "the limit of another cgroup is lower");
    limits.kill();
    assert_eq!((restored(root.path()).as_str(), high(root.path()).as_str()), ("", "8192"));

    make_cgroup(root.path());
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.kill();
    fs::write(root.path().join("proc/sys/kernel/random/boot_id"), "two\n").unwrap();
    assert_eq!((restored(root.path()), high(root.path())), (String::new(), limited()));
    assert!(!root.path().join("run/isotherm").exists());
}

#[test]
fn a_cgroup_that_vanishes_or_is_frozen_is_no_error() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    limits.said();
    set(root.path(), "cgroup.events", "populated 1\nfrozen 1\n");
    limits.set_each(vec![reached(cgroup(root.path()))]);
    assert_eq!(high(root.path()), limited(), "frozen processes show nothing");
    let open = cgroup(root.path());
    fs::remove_dir_all(root.path().join("cg/a")).unwrap();
    limits.set_each(vec![wanted(open)]);
    limits.end();
    assert_eq!(limits.said(), "");
    assert!(!root.path().join("run/isotherm").exists());
}

#[test]
fn a_cgroup_that_another_isotherm_limits_is_left_to_it() {
    let root = made();
    let mut first = CgroupLimits::new(root.path(), LimitFile::High);
    first.set_each(vec![wanted(cgroup(root.path()))]);
    let mut second = CgroupLimits::new(root.path(), LimitFile::High);
    set(root.path(), "memory.current", &(50 * MIB).to_string());
    second.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), limited());
    assert!(second.said().contains("another isotherm, process "));
}

#[test]
fn a_dry_run_writes_nothing_and_says_at_its_end_what_it_would_have_set() {
    let root = made();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.dry(true);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), "max");
    assert!(!root.path().join("run").exists());
    limits.end();
    assert_eq!(limits.said(), "memory.high of /a would be let down to 66 MiB at the least (it is max)\n");
}

#[test]
fn events_that_cannot_be_read_are_unknown() {
    let root = made();
    fs::remove_file(root.path().join("cg/a/memory.events")).unwrap();
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    set(root.path(), "memory.current", &(80 * MIB).to_string());
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_ne!(high(root.path()), limited(), "what is unknown was not reached");
    limits.end();
    assert!(limits.said().contains("whether it was reached is unknown"));
}

#[test]
fn without_a_journal_nothing_is_let_down_and_a_raise_goes_on() {
    let root = made();
    let block = |is_blocked: bool| {
        let run = root.path().join("run");
        match is_blocked {
            true => fs::write(run, "").unwrap(),
            false => fs::remove_file(run).unwrap(),
        }
    };
    block(true);
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), "max");
    assert!(limits.said().starts_with("warning: memory.high of /a cannot be let down: the journal"));
    block(false);
    limits.set_each(vec![wanted(cgroup(root.path()))]);
    assert_eq!(high(root.path()), limited());
    fs::remove_dir_all(root.path().join("run")).unwrap();
    block(true);
    limits.set_each(vec![reached(cgroup(root.path()))]);
    assert_eq!(high(root.path()), "max");
    let said = limits.said();
    assert!(said.contains("warning: the journal") && said.contains("/a is max again: it hurts"), "{said}");
}

/// Files that refuse to be written to, as long as they are told to.
#[derive(Debug)]
struct Refusing(CgroupDirectory, Arc<AtomicBool>);

impl CgroupFiles for Refusing {
    fn read(&self, name: &str) -> io::Result<String> {
        self.0.read(name)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(rustix::io::Errno::ACCESS.into());
        }
        self.0.write(name, text)
    }

    fn inode(&self) -> io::Result<u64> {
        self.0.inode()
    }
}

#[test]
fn a_raise_that_fails_is_told_with_the_reason_and_stays_for_the_next_start() {
    let root = made();
    let refuses = Arc::new(AtomicBool::new(false));
    let cgroup = || {
        let directory = CgroupDirectory::open(&root.path().join("cg/a")).unwrap();
        CgroupMemory::with_files("/a", Refusing(directory, Arc::clone(&refuses)))
    };
    let mut limits = CgroupLimits::new(root.path(), LimitFile::High);
    limits.set_each(vec![wanted(cgroup())]);
    limits.said();
    refuses.store(true, Ordering::Relaxed);
    limits.set_each(vec![reached(cgroup())]);
    assert_eq!(high(root.path()), limited());
    let said = limits.said();
    assert!(said.contains("warning: memory.high of /a cannot be raised to max: Permission denied"), "{said}");
    refuses.store(false, Ordering::Relaxed);
    limits.set_each(vec![reached(cgroup())]);
    assert_eq!(high(root.path()), "max", "it is tried again");

    limits.set_each(vec![wanted(cgroup())]);
    refuses.store(true, Ordering::Relaxed);
    limits.end();
    drop(limits);
    assert_eq!(high(root.path()), limited());
    assert!(restored_from_dead(root.path()).contains("/a is max again"));
    assert_eq!(high(root.path()), "max");
}
