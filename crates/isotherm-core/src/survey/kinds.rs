//! Bytes by kinds that other sums do not tell apart.

use std::ops::{Add, Index, IndexMut};

use crate::Count;

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
pub struct ByReason<N = u64>([N; Unseen::ALL.len()]);

impl<N: Count> ByReason<N> {
    /// Each reason that has any bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Unseen, N)> {
        Unseen::ALL.into_iter().zip(self.0).filter(|(_, bytes)| *bytes > N::default())
    }

    /// The bytes of all reasons.
    pub fn sum(&self) -> N {
        self.0.iter().fold(N::default(), |sum, bytes| sum.plus(*bytes))
    }
}

impl FromIterator<(Unseen, u64)> for ByReason {
    fn from_iter<T: IntoIterator<Item = (Unseen, u64)>>(all: T) -> Self {
        let mut sums = Self::default();
        all.into_iter().for_each(|(reason, bytes)| sums[reason] += bytes);
        sums
    }
}

impl<N> Index<Unseen> for ByReason<N> {
    type Output = N;

    fn index(&self, reason: Unseen) -> &N {
        &self.0[reason as usize]
    }
}

impl<N> IndexMut<Unseen> for ByReason<N> {
    fn index_mut(&mut self, reason: Unseen) -> &mut N {
        &mut self.0[reason as usize]
    }
}

/// Bytes by kind. A new kind is a new field here and in the column `kinds` of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds<N = u64> {
    /// Bytes that the process has freed lazily (`MADV_FREE`) and not used since. They are in memory until the kernel
    /// needs it, and need no swap. They do not count as present.
    pub lazily_freed: N,
    /// The unobservable bytes by reason.
    pub unseen: ByReason<N>,
}

impl<N: Count> Kinds<N> {
    /// Each of its figures, changed by `change`.
    #[must_use]
    pub fn map<M: Count>(self, mut change: impl FnMut(N) -> M) -> Kinds<M> {
        Kinds { lazily_freed: change(self.lazily_freed), unseen: ByReason(self.unseen.0.map(change)) }
    }
}

impl Kinds {
    /// With at most so many unobservable bytes, in the same shares.
    #[must_use]
    pub(super) fn limited_to(self, unobservable: u64) -> Self {
        let sum = u128::from(self.unseen.sum()).max(1);
        let of = |bytes: u64| (u128::from(bytes) * u128::from(unobservable).min(sum) / sum) as u64;
        Self { unseen: ByReason(self.unseen.0.map(of)), ..self }
    }
}

impl<N: Count> Add for Kinds<N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let unseen = std::array::from_fn(|reason| self.unseen.0[reason].plus(other.unseen.0[reason]));
        Self { lazily_freed: self.lazily_freed.plus(other.lazily_freed), unseen: ByReason(unseen) }
    }
}
