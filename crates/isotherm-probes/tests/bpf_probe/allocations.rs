//! A round allocates nothing after its buffers have grown.

#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "every call is passed on to the system's allocator as it came"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use isotherm_core::AccessProbe;

use crate::target::Target;
use crate::watch::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_round_allocates_nothing() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let small = target.map("small", 4 * MIB);
    let locked = target.map("locked", MIB);
    update(&mut probe, &[&target]);
    let mut samples = pages(&target, small, 4 * MIB);
    samples.extend(pages(&target, locked, MIB));
    let mut answers = vec![Idle; samples.len()];
    let mut counted = Vec::with_capacity(4);
    for _ in 0..4 {
        target.write(small, 4 * MIB);
        target.write(locked, MIB);
        let before = ALLOCATIONS.get();
        probe.clear(&samples).unwrap();
        probe.read(&samples, &mut answers).unwrap();
        counted.push(ALLOCATIONS.get() - before);
    }
    assert_eq!(counted[1..], [0, 0, 0]);
}
