//! The `idle` probe: watches virtual and physical memory with the kernel's idle page tracking.
//!
//! The kernel keeps an idle bit for each page frame (Linux `Documentation/admin-guide/mm/idle_page_tracking.rst`).
//! Setting the bit clears the accessed bits of the page in all page tables that map it. Reading the bit checks those
//! accessed bits again. Therefore an answer is about a page of memory, not about the mapping of one process:
//!
//! - A page that several processes share is accessed if any of them accessed it. Page cache that no process maps is
//!   observed, and so are the accesses of KVM guests.
//! - Reclaim is not disturbed. When a set accessed bit is cleared, the kernel keeps it for reclaim in a page flag.
//! - The kernel does not flush the TLB when it clears accessed bits. A page whose translation stays in the TLB for the
//!   whole interval can look idle although it is in use. A process that touches more memory than the TLB covers, or
//!   that is switched out from time to time, is observed.
//! - The kernel keeps the bit only for user memory that is on a reclaim list. All other memory is
//!   [unobservable](isotherm_core::Observation::Unobservable): free memory, the kernel's own memory, hugetlbfs, and
//!   pages that wait on a processor to be put on a list.
//! - A compound page (a huge page or a large folio) has one bit: that of its first frame.
//! - A read returns words of 64 frames. For each frame of a word that is marked, the kernel checks the page tables that
//!   map it.

mod accesses;
mod bitmap;
mod check;
mod error;
mod explore;
mod frames;
mod look;
mod panel_pages;
mod probe;
mod probe_survey;
mod survey;
mod target;

pub(crate) use bitmap::BITMAP;
pub use error::IdleError;
pub use look::IdleLook;
pub use probe::IdleProbe;
