//! Tests of USDT probes on the running kernel. They need root; a test that cannot run is skipped.

#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use isotherm_probes::usdt::{UsdtCollector, UsdtHit, UsdtTracer};
use isotherm_testing::{Marker, installed_or_skip, or_skip};

/// A hit takes a moment until it can be read. A test that waits for longer has failed.
const WITHIN: Duration = Duration::from_secs(20);

/// The program, its library, and the directory of both.
fn compile() -> Result<(PathBuf, PathBuf, tempfile::TempDir), String> {
    let directory = tempfile::tempdir().unwrap();
    let (program, library) = Marker::compile(directory.path())?;
    Ok((program, library, directory))
}

fn open(probes: &[&str]) -> Result<UsdtTracer, String> {
    let probes = probes.iter().map(|probe| probe.parse().unwrap()).collect();
    UsdtTracer::open(probes).map_err(|error| isotherm_core::chain(&error))
}

/// What a collector has read so far.
struct Read {
    collector: UsdtCollector,
    hits: Vec<UsdtHit>,
}

impl Read {
    fn new(tracer: UsdtTracer) -> Self {
        Self { collector: UsdtCollector::new(tracer).unwrap(), hits: Vec::new() }
    }

    /// Reads until `done` says that this is enough.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < WITHIN, "{what}: {:?}", self.hits);
            self.hits.extend(self.collector.next(Duration::from_millis(10)).unwrap().hits);
        }
    }

    /// Watches a process, and looks at its files.
    fn watch(&mut self, target: &mut Marker) {
        self.collector.watch(target.pid(), false).unwrap();
        self.until("the probe demo:tick has a watcher", |_| target.request("watchers") == 1);
    }

    fn texts(&self) -> Vec<String> {
        self.hits.iter().map(|hit| String::from_utf8_lossy(&hit.text).into_owned()).collect()
    }

    fn until_texts(&mut self, wanted: &[&str]) {
        self.until("the hits are reported", |read| read.texts().len() >= wanted.len());
        assert_eq!(self.texts(), wanted);
    }
}

#[test]
fn a_mark_has_the_text_of_its_argument_wherever_that_is_and_other_probes_have_their_names() {
    let (program, _, _directory) = installed_or_skip!(compile());
    let tracer = or_skip!(open(&["isotherm:mark", "demo:tick"]));
    let mut target = Marker::start(&program);
    let mut read = Read::new(tracer);
    read.watch(&mut target);
    let begin = Instant::now();
    let long = "x".repeat(300);
    for command in ["mark load", "tick", "memory on the stack", "constant", "mark  ", &format!("mark {long}")] {
        target.request(command);
    }
    let end = Instant::now();
    read.until_texts(&["load", "demo:tick", "on the stack", "far away", "isotherm:mark", &long[..257]]);
    assert!(read.hits.iter().all(|hit| (begin..=end).contains(&hit.time) && hit.pid == target.pid()));
    assert!(read.hits.is_sorted_by_key(|hit| hit.time));
    assert_eq!((read.collector.lost(), read.collector.is_exhausted()), (0, false));
    drop(read);
    assert_eq!(target.request("watchers"), 0, "the program is as it was");
}

#[test]
fn a_process_that_is_not_watched_makes_no_hit_and_a_child_does_if_it_is_asked_for() {
    let (program, _, _directory) = installed_or_skip!(compile());
    let tracer = or_skip!(open(&["isotherm:mark", "demo:tick"]));
    let (mut target, mut other, mut parent) =
        (Marker::start(&program), Marker::start(&program), Marker::start(&program));
    let mut read = Read::new(tracer);
    read.watch(&mut target);
    read.collector.watch(parent.pid(), true).unwrap();
    other.request("mark other");
    target.request("fork childless");
    parent.request("fork child");
    parent.request("exec grandchild");
    target.request("mark last");
    read.until_texts(&["child", "grandchild", "last"]);
    read.collector.leave(target.pid());
    target.request("mark left");
    parent.request("mark parent");
    read.until_texts(&["child", "grandchild", "last", "parent"]);
}

#[test]
fn probes_of_a_library_that_is_loaded_later_are_found() {
    let (program, library, _directory) = installed_or_skip!(compile());
    let tracer = or_skip!(open(&["demo:library__call", "demo:tick", "demo:library__return"]));
    let mut target = Marker::start(&program);
    let mut read = Read::new(tracer);
    read.watch(&mut target);
    let missing = read.collector.missing();
    assert!(missing.len() == 2 && missing[0].contains("the USDT probe demo:library__call ("), "{missing:?}");
    let load = format!("load {}", library.display());
    read.until("the library is found", |read| {
        target.request(&load);
        !read.hits.is_empty()
    });
    assert_eq!(read.texts()[0], "demo:library__call");
    let missing = read.collector.missing();
    assert_eq!(missing.len(), 1);
    let end = "files were looked at); it has demo:library__call, demo:tick";
    assert!(missing[0].starts_with("no watched program has the USDT probe demo:library__return ("), "{missing:?}");
    assert!(missing[0].ends_with(end), "{missing:?}");
}

#[test]
fn a_program_that_is_known_before_it_starts_has_its_first_hit_reported() {
    let (program, _, _directory) = installed_or_skip!(compile());
    let mut tracer = or_skip!(open(&["isotherm:mark"]));
    tracer.look_ahead(&program);
    tracer.watch_children(false).unwrap();
    let status = std::process::Command::new(&program).arg("at the start").status().unwrap();
    tracer.leave_children();
    assert!(status.success());
    let mut read = Read::new(tracer);
    read.until_texts(&["at the start"]);
}

#[test]
fn no_more_hits_are_reported_than_a_run_takes_and_the_rest_is_counted() {
    let (program, _, _directory) = installed_or_skip!(compile());
    let tracer = or_skip!(open(&["demo:tick"]));
    let mut target = Marker::start(&program);
    let mut read = Read::new(tracer);
    read.watch(&mut target);
    target.request("ticks 10100");
    read.until("all hits are read", |read| read.hits.len() == 10_000);
    assert_eq!((read.collector.lost(), read.collector.is_exhausted()), (100, true));
    read.collector.end();
    assert_eq!(target.request("ticks 1"), 0);
    assert_eq!(read.collector.lost(), 100);
}
