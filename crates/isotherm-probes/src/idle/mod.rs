//! The `idle` probe: virtual and physical memory by the kernel's idle page tracking.
//!
//! The kernel has a bit for each page frame (Linux `Documentation/admin-guide/mm/idle_page_tracking.rst`). Setting it clears
//! the accessed bits of all mappings of the page; reading it looks at them all again. So the answer is for a page of memory,
//! not for one process's mapping of it:
//!
//! - A page that several processes share is accessed if any of them accessed it. Page cache that no process maps is seen, too, and so
//!   are the accesses of KVM guests.
//! - Reclaim is not disturbed: what it would have learned from a bit that is cleared is kept for it in a flag of its own.
//! - The kernel does not flush translations (the TLB) when it clears. A page whose translation stays in a processor all the
//!   while can look idle although it is used; a process that touches more than the TLB holds, or that is switched away from
//!   now and then, is seen.
//! - The bit is kept for user memory on a list for reclaim only. All else is
//!   [unobservable](isotherm_core::Observation::Unobservable): free memory, the kernel's own, hugetlbfs, and pages that wait on a
//!   processor to be listed.
//! - A compound page (a huge page, a large folio) has one bit, that of its first frame.
//! - Reading goes by words of 64 frames, and each of them that is marked at the time costs the kernel a look at its mappings.

mod check;
mod error;
mod probe;
mod target;

pub use error::IdleError;
pub(crate) use probe::BITMAP;
pub use probe::IdleProbe;
