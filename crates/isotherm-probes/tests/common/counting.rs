//! The allocator of a test program. It counts the allocations of each thread.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: `System` keeps the conditions of the trait, and every call is passed to it unchanged. Counting does not
// allocate, because the thread-local variable is initialized by a constant and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the conditions of `alloc`, which are the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` of this allocator returned `memory`, so `System` allocated it, with this layout.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations that this thread has made.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}
