//! Bytes by kinds that other sums do not tell apart.

use std::ops::{AddAssign, Index, IndexMut};

/// Why memory cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unseen {
    /// It is locked, and clearing its accessed bits would take too long.
    Locked,
    /// Several processes map it, and clearing its accessed bits would take too long.
    Shared,
    /// A guest of KVM accesses it without the page tables of the host.
    Guest,
    /// A device accesses it: VFIO and RDMA.
    Device,
    /// The kernel accesses it for io_uring.
    IoUring,
    /// It is of hugetlbfs.
    Hugetlb,
    /// Any other reason: memory of a device, pages that were just faulted in, a process that refuses access.
    Other,
}

impl Unseen {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Locked, Self::Shared, Self::Guest, Self::Device, Self::IoUring, Self::Hugetlb, Self::Other];

    /// What reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Shared => "shared",
            Self::Guest => "of a guest",
            Self::Device => "of a device",
            Self::IoUring => "of io_uring",
            Self::Hugetlb => "hugetlb",
            Self::Other => "other",
        }
    }
}

/// Unobservable bytes by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByReason([u64; Unseen::ALL.len()]);

impl ByReason {
    /// Each reason that has any bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Unseen, u64)> {
        Unseen::ALL.into_iter().zip(self.0).filter(|(_, bytes)| *bytes > 0)
    }

    /// The bytes of all reasons.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl FromIterator<(Unseen, u64)> for ByReason {
    fn from_iter<T: IntoIterator<Item = (Unseen, u64)>>(all: T) -> Self {
        let mut sums = Self::default();
        all.into_iter().for_each(|(reason, bytes)| sums[reason] += bytes);
        sums
    }
}

impl Index<Unseen> for ByReason {
    type Output = u64;

    fn index(&self, reason: Unseen) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<Unseen> for ByReason {
    fn index_mut(&mut self, reason: Unseen) -> &mut u64 {
        &mut self.0[reason as usize]
    }
}

/// Bytes by kind. A new kind is a new field here and in the column `kinds` of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Bytes that the process has freed lazily (`MADV_FREE`) and not used since. They are in memory until the kernel
    /// needs it, and need no swap. They do not count as present.
    pub lazily_freed: u64,
    /// The unobservable bytes by reason.
    pub unseen: ByReason,
}

impl Kinds {
    /// Each of its figures, changed by `change`.
    #[must_use]
    pub fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self { lazily_freed: change(self.lazily_freed), unseen: ByReason(self.unseen.0.map(change)) }
    }

    /// With at most so many unobservable bytes, in the same shares.
    #[must_use]
    pub(super) fn limited_to(self, unobservable: u64) -> Self {
        let sum = u128::from(self.unseen.sum()).max(1);
        let of = |bytes: u64| (u128::from(bytes) * u128::from(unobservable).min(sum) / sum) as u64;
        Self { unseen: ByReason(self.unseen.0.map(of)), ..self }
    }
}

impl AddAssign for Kinds {
    fn add_assign(&mut self, other: Self) {
        self.lazily_freed = self.lazily_freed.saturating_add(other.lazily_freed);
        for (sum, bytes) in self.unseen.0.iter_mut().zip(other.unseen.0) {
            *sum = sum.saturating_add(bytes);
        }
    }
}
