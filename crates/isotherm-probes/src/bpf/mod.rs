//! The `bpf` probe: reads the accessed bits of page-table entries inside the kernel.
//!
//! All samples of a round are looked up by one run of an eBPF program that walks the targets' page tables; the few
//! found accessed are then cleared by `process_madvise(MADV_COLD)`. What that guarantees and what it costs:
//!
//! - It works on Linux 5.17 and later with BTF, on x86-64, with four or five levels of page tables, and needs neither
//!   `CONFIG_DAMON` nor `CONFIG_IDLE_PAGE_TRACKING`.
//! - Nothing is read through an address that was not proven: see `direct_map.rs`.
//! - Huge pages and large folios are cleared whole or not at all, so that none is split: see `folio.rs`, also for what
//!   remains.
//! - `MADV_COLD` flushes the translation of a page, so that its next access is seen for certain. It also moves the page
//!   to the inactive list, as if it had not been used for a while. That befalls one page a region, and, at the start,
//!   the private anonymous memory of a target (see [`BpfProbe::with_sweeps`]).
//! - `MADV_COLD` leaves out pages that are locked, mapped by several processes, or not on a list of reclaimable pages.
//!   Such a page is [unobservable](isotherm_core::Observation::Unobservable) as soon as it has been accessed once.
//! - What does not go through the target's page tables is not seen: accesses by a virtual machine's guest (KVM has tables
//!   of its own) and by devices.
//! - Whoever else clears accessed bits meanwhile takes them from this probe, and does so without a flush: the kernel's own
//!   DAMON and, when memory is short, its reclaim. What they find may seem idle here for a moment.

#[cfg(target_arch = "x86_64")]
mod check;
#[cfg(target_arch = "x86_64")]
mod direct_map;
#[cfg(target_arch = "x86_64")]
mod entries;
mod error;
#[cfg(target_arch = "x86_64")]
mod folio;
#[cfg(target_arch = "x86_64")]
mod leaf;
mod look;
#[cfg(target_arch = "x86_64")]
mod plan;
#[cfg(target_arch = "x86_64")]
mod probe;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod probe;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod space;
#[cfg(target_arch = "x86_64")]
mod survey;
#[cfg(target_arch = "x86_64")]
mod sweep;
#[cfg(target_arch = "x86_64")]
mod swept;
#[cfg(target_arch = "x86_64")]
mod target;

pub use error::BpfError;
pub(crate) use look::Look;
pub use probe::BpfProbe;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use probe::{PageSurvey, Surveyed, Taken};
#[cfg(target_arch = "x86_64")]
pub(crate) use survey::{PageSurvey, Surveyed, Taken};
