//! Memory use as the system accounts for it. Recordings show it next to access frequencies and to the activity of
//! schemes.

use std::time::Duration;

/// The memory that one target uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Resident bytes (RSS).
    pub resident: u64,
    /// Resident bytes, with shared pages divided by the number of processes that share them (PSS). `None` in new
    /// recordings: the kernel stops the target for too long to tell.
    pub proportional: Option<u64>,
    /// Bytes in swap.
    pub swapped: u64,
}

/// The memory of the whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemMemory {
    /// Bytes of memory.
    pub total: u64,
    /// Bytes that are not in use.
    pub free: u64,
    /// Bytes that new programs can get without swapping.
    pub available: u64,
    /// Bytes of swap.
    pub swap_total: u64,
    /// Bytes of swap that are not in use.
    pub swap_free: u64,
    /// For how long some task has waited for memory (PSI `some total`), counted from a fixed moment. `None` if the
    /// system does not tell.
    pub stalled: Option<Duration>,
}

impl SystemMemory {
    /// The share of all memory that is free, 0 to 1.
    pub fn free_share(&self) -> f64 {
        self.free as f64 / self.total.max(1) as f64
    }
}
