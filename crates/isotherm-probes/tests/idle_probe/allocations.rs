//! A round allocates nothing after its buffers have grown.

#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "every call is passed on to the system's allocator as it came"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use isotherm_core::{AccessProbe, Observation};

use crate::made::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the conditions of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` returned `memory`, with this layout.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_round_allocates_nothing() {
    let made = Made::new(4096);
    (0..100).for_each(|page| made.set_page(page, PRESENT | (page * 37)));
    made.set_flags(1024, LRU | HEAD);
    (1025..1536).for_each(|frame| made.set_flags(frame, TAIL));
    let mut probe = made.probe(4096);
    let mut all = samples(PROCESS, (0..200).rev());
    all.extend(samples(PHYSICAL, (0..4096).step_by(5)));
    let mut answers = vec![Observation::Idle; all.len()];
    let mut counted = Vec::with_capacity(4);
    for _ in 0..4 {
        let before = ALLOCATIONS.get();
        probe.clear(&all).unwrap();
        let cleared = ALLOCATIONS.get() - before;
        made.access((0..4096).step_by(64));
        let before = ALLOCATIONS.get();
        probe.read(&all, &mut answers).unwrap();
        counted.push(cleared + ALLOCATIONS.get() - before);
    }
    assert!(answers.contains(&Observation::Accessed) && answers.contains(&Observation::Idle));
    assert_eq!(counted[1..], [0, 0, 0]);
}
