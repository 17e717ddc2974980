//! Tests of call stacks on the running kernel. They need root; a test that cannot run is skipped.

#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::unwrap_used)]

mod target;

use std::time::Duration;

use isotherm_core::{Allocation, Allocations, CallStack, MappingCall};
use isotherm_probes::stacks::{StackCollector, StackTracer};
use target::Target;

/// A call takes a moment until it can be read. A test that waits for longer has failed.
const WITHIN: Duration = Duration::from_secs(20);

/// What a collector has read so far.
struct Read {
    collector: StackCollector,
    stacks: Vec<CallStack>,
    calls: Vec<Allocation>,
}

impl Read {
    fn new(tracer: StackTracer) -> Self {
        Self { collector: StackCollector::new(tracer).unwrap(), stacks: Vec::new(), calls: Vec::new() }
    }

    /// The functions that led to the call of `target` that mapped memory at `address`, the innermost first, without
    /// those that lead to the test itself.
    fn functions(&mut self, address: u64) -> (MappingCall, Vec<String>) {
        let call = self.wait_for(|call| call.range.contains(address) && call.call != MappingCall::Exec);
        let frames = &self.stacks[call.stack.unwrap() as usize];
        let names = frames.iter().map(|frame| frame.function.as_deref().unwrap_or("?").to_owned());
        (call.call, names.take_while(|name| !name.contains("obey")).collect())
    }

    fn wait_for(&mut self, wanted: impl Fn(&Allocation) -> bool) -> Allocation {
        loop {
            if let Some(found) = self.calls.iter().rev().find(|call| wanted(call)) {
                return found.clone();
            }
            let Allocations { stacks, calls, .. } = self.collector.next(WITHIN).unwrap();
            assert!(!calls.is_empty(), "the call was not reported");
            for (id, frames) in stacks {
                assert_eq!(id as usize, self.stacks.len(), "stacks are numbered in their order, once each");
                self.stacks.push(frames);
            }
            self.calls.extend(calls);
        }
    }
}

fn ends_with(names: &[String], wanted: &[&str]) -> bool {
    names.len() == wanted.len() && names.iter().zip(wanted).all(|(name, wanted)| name.ends_with(wanted))
}

#[test]
fn the_functions_that_led_to_a_call_are_found_without_frame_pointers() {
    let tracer = isotherm_testing::or_skip!(StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    let mut target = Target::start();
    tracer.watch(target.pid(), false).unwrap();
    let mut read = Read::new(tracer);

    let address = target.request("mmap");
    let (call, names) = read.functions(address);
    assert_eq!(call, MappingCall::Mmap);
    // The innermost function is that of libc, whose name differs from one libc to the other.
    assert!(ends_with(&names[1..], &["target::table_grow", "target::table_insert"]), "{names:?}");

    let address = target.request("malloc");
    let (_, names) = read.functions(address);
    assert!(names.iter().any(|name| name.ends_with("malloc")), "{names:?}");
    assert!(names.last().is_some_and(|name| name.ends_with("target::buffer_new")), "{names:?}");

    let address = target.request("brk");
    let (call, names) = read.functions(address);
    assert_eq!(call, MappingCall::Brk);
    assert!(names.last().is_some_and(|name| name.ends_with("target::heap_grow")), "{names:?}");

    let address = target.request("mremap");
    let (call, names) = read.functions(address);
    assert_eq!(call, MappingCall::Mremap);
    assert!(names.last().is_some_and(|name| name.ends_with("target::table_double")), "{names:?}");
}

#[test]
fn code_of_a_just_in_time_compiler_has_the_names_of_its_perf_map() {
    let tracer = isotherm_testing::or_skip!(StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    let mut target = Target::start();
    tracer.watch(target.pid(), false).unwrap();
    let mut read = Read::new(tracer);
    let address = target.request("jit");
    let (_, names) = read.functions(address);
    assert!(ends_with(&names, &["LazyCompile:*grow app.js:7", "target::run_jit"]), "{names:?}");
}

#[test]
fn children_are_watched_from_their_start_and_a_new_program_has_new_memory() {
    let tracer = isotherm_testing::or_skip!(StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    tracer.watch_children(false).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    tracer.leave_children();
    let mut read = Read::new(tracer);
    let exec = read.wait_for(|call| call.call == MappingCall::Exec);
    assert_eq!((exec.target.pid(), exec.stack), (Some(child.id()), None));
    // The loader and libc map memory before the program begins.
    read.wait_for(|call| call.call != MappingCall::Exec && call.target == exec.target);
    child.wait().unwrap();
}

#[test]
fn a_process_that_is_not_watched_is_not_reported() {
    let tracer = isotherm_testing::or_skip!(StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    let (mut other, mut target) = (Target::start(), Target::start());
    tracer.watch(other.pid(), false).unwrap();
    tracer.leave(other.pid());
    tracer.watch(target.pid(), false).unwrap();
    let mut read = Read::new(tracer);
    other.request("mmap");
    let address = target.request("mmap");
    read.functions(address);
    assert!(read.calls.iter().all(|call| call.target.pid() == Some(target.pid())), "{:?}", read.calls);
}
