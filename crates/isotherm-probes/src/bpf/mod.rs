//! The `bpf` probe: reads the accessed bits of page-table entries in the kernel with eBPF.
//!
//! One run of an eBPF program walks the targets' page tables for all samples of a round. The few samples that were
//! accessed are then cleared with `process_madvise(MADV_COLD)`. Properties and limits of the probe:
//!
//! - It needs Linux 5.17 or later with BTF, on x86-64 with four or five levels of page tables. It needs neither
//!   `CONFIG_DAMON` nor `CONFIG_IDLE_PAGE_TRACKING`.
//! - It reads page tables only at addresses that were proven to be right: see `direct_map.rs`.
//! - It clears huge pages and large folios as a whole or not at all, so that none is split: see `folio.rs`, which also
//!   describes the race that remains.
//! - `MADV_COLD` flushes the translation of a page from the TLB, so the next access is always observed. It also moves
//!   the page to the inactive list, as if it had not been used recently. This affects one page for each region. When a
//!   target is added, it also affects its private anonymous memory (see [`BpfProbe::with_sweeps`]).
//! - `MADV_COLD` skips pages that are locked, mapped by several processes, or not on a reclaim list. After the first
//!   access, such a page is [unobservable](isotherm_core::Observation::Unobservable).
//! - Accesses that do not use the target's page tables are not observed: accesses by the guest of a virtual machine
//!   (KVM has page tables of its own) and by devices.
//! - Others may clear accessed bits at the same time, without a TLB flush: the kernel's DAMON, and reclaim when
//!   memory is short. A page whose bit they cleared can look idle for a moment.

#[cfg(target_arch = "x86_64")]
mod check;
#[cfg(target_arch = "x86_64")]
mod direct_map;
#[cfg(target_arch = "x86_64")]
mod entries;
mod error;
#[cfg(target_arch = "x86_64")]
mod find;
#[cfg(target_arch = "x86_64")]
mod folio;
#[cfg(target_arch = "x86_64")]
mod held;
#[cfg(target_arch = "x86_64")]
mod leaf;
#[cfg(target_arch = "x86_64")]
mod pages;
#[cfg(target_arch = "x86_64")]
mod panel_pages;
#[cfg(target_arch = "x86_64")]
mod probe;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod probe;
#[cfg(target_arch = "x86_64")]
mod probe_survey;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod requests;
#[cfg(target_arch = "x86_64")]
mod sampled;
mod shared_memory;
#[cfg(target_arch = "x86_64")]
mod space;
#[cfg(target_arch = "x86_64")]
mod swap;
#[cfg(target_arch = "x86_64")]
mod sweep;
#[cfg(target_arch = "x86_64")]
mod swept;
#[cfg(target_arch = "x86_64")]
mod target;
#[cfg(target_arch = "x86_64")]
mod tasks;
#[cfg(target_arch = "x86_64")]
mod words;

/// Stands for the frame of a page that has none.
pub(crate) const NO_FRAME: u64 = u64::MAX;

pub use error::BpfError;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use error::libbpf_error;
#[cfg(target_arch = "x86_64")]
pub(crate) use pages::FramesOf;
pub use probe::BpfProbe;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use probe::FramesOf;
#[cfg(target_arch = "x86_64")]
pub(crate) use program::load_object;
pub use shared_memory::{SharedLeftOut, SharedLimits, SharedMemory, SharedReason};
