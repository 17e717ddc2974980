//! Inspectors: a way to learn the properties of pages and processes that filters depend on.

use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, BoxError, NodeId, TargetId};

use super::Refusal;

/// A property of single pages, which only an inspector can find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// In memory.
    Present,
    /// Accessed since the accessed bit of the page was cleared last.
    Young,
    /// Part of a huge page.
    Huge,
    /// In memory, with contents that compress well.
    Compressible,
    /// Active, as the kernel says that keeps lists of active and inactive pages.
    Active,
    /// Page cache that no process maps.
    Unmapped,
    /// In a folio of this many bytes at least and at most. The kernel manages the pages of a folio as one.
    Folio(u64, u64),
    /// On this memory node.
    Node(NodeId),
}

impl PageKind {
    /// Its name in scheme files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Young => "young",
            Self::Huge => "huge_page",
            Self::Compressible => "compressible",
            Self::Active => "active",
            Self::Unmapped => "unmapped",
            Self::Folio(..) => "huge_page_size",
            Self::Node(_) => "node",
        }
    }
}

/// The properties of a process that filters depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its short name, without the path of its program and without arguments.
    pub name: Arc<str>,
    /// Its cgroup, as a path from the root of the hierarchy such as `/system.slice/redis.service`.
    pub cgroup: Arc<str>,
}

/// A way to learn properties of pages and of processes. It changes nothing.
pub trait PageInspector {
    /// Checks that pages of this kind can be found. It is called before the first call of a scheme whose filters
    /// need it.
    ///
    /// # Errors
    /// Says why they cannot be found and how to fix that.
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError>;

    /// Checks that the targets are processes. It is called before the first call of a scheme whose filters tell
    /// processes apart.
    ///
    /// # Errors
    /// Says what the targets are, and how to fix that.
    fn has_processes(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// The facts of a target that is a process; `None` if it has ended. It is called only if filters need it.
    fn process(&mut self, target: TargetId) -> Option<ProcessFacts>;

    /// Finds the pages of this kind in `ranges`, which are sorted and disjoint, just before an action. It appends to
    /// `found` disjoint, page-aligned ranges, in the order of addresses. A range may go on where the next of `ranges`
    /// begins.
    ///
    /// # Errors
    /// If the pages cannot be found now. Several ranges are then asked for one by one, and nothing is acted on in those
    /// that fail.
    fn pages(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal>;

    /// The bytes of `range` that are in memory now; `None` if that is not known.
    fn present(&mut self, _target: TargetId, _range: AddrRange) -> Option<u64> {
        None
    }

    /// The time spent in [`pages`](Self::pages) since the start. A quota of time is charged with it.
    fn time_inspecting(&self) -> Duration;
}

impl<I: PageInspector + ?Sized> PageInspector for Box<I> {
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        (**self).tells(kind)
    }

    fn has_processes(&mut self) -> Result<(), BoxError> {
        (**self).has_processes()
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        (**self).process(target)
    }

    fn pages(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        (**self).pages(target, ranges, kind, found)
    }

    fn present(&mut self, target: TargetId, range: AddrRange) -> Option<u64> {
        (**self).present(target, range)
    }

    fn time_inspecting(&self) -> Duration {
        (**self).time_inspecting()
    }
}
