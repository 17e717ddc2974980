//! How much memory there is in use, as the system accounts for it: what stands beside temperatures and what schemes did.

use std::time::Duration;

/// The memory that one target uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Resident bytes (RSS).
    pub resident: u64,
    /// Resident bytes, those that several processes share divided among them (PSS).
    pub proportional: u64,
    /// Bytes in swap.
    pub swapped: u64,
}

/// The memory of the whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemMemory {
    /// Bytes of memory.
    pub total: u64,
    /// Bytes that nothing uses.
    pub free: u64,
    /// Bytes that could be had without swapping.
    pub available: u64,
    /// Bytes of swap.
    pub swap_total: u64,
    /// Bytes of swap that are not used.
    pub swap_free: u64,
    /// For how long some task has waited for memory (PSI `some total`), since any fixed moment; none if the kernel does not tell.
    pub stalled: Option<Duration>,
}

impl SystemMemory {
    /// Free memory as a share of all, 0 to 1.
    pub fn free_share(&self) -> f64 {
        self.free as f64 / self.total.max(1) as f64
    }
}
