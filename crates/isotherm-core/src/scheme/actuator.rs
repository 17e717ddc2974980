//! Actuators: a way to act on ranges of a target's memory.

use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, BoxError, TargetId};

use super::Action;

/// What is to be done in one call: one action on ranges of one target.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What to do.
    pub action: Action,
    /// Whether the call may be made inside the target.
    pub inside: bool,
    /// Whose memory.
    pub target: TargetId,
    /// Which: sorted, disjoint, page-aligned, within the mappings of the snapshot, and as many as a call may take, so that one
    /// system call with several ranges can do it. They may have been unmapped since.
    pub ranges: &'a [AddrRange],
}

/// What became of one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that the action was carried out on.
    pub applied: u64,
    /// Bytes that were refused. What is neither was in no need of the action.
    pub refused: u64,
    /// Why, as the system's error number; 0 if nothing was refused.
    pub errno: i32,
}

impl Outcome {
    /// All of `range` was done.
    pub const fn all(range: AddrRange) -> Self {
        Self { applied: range.size(), refused: 0, errno: 0 }
    }

    /// All of `range` was refused.
    pub const fn refused(range: AddrRange, errno: i32) -> Self {
        Self { applied: 0, refused: range.size(), errno }
    }
}

/// A property of single pages, that only whoever can look at them knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PageKind {
    /// Accessed since it was last looked at.
    Young,
    /// Part of a huge page.
    Huge,
}

impl PageKind {
    /// Its name in scheme files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Young => "young",
            Self::Huge => "huge_page",
        }
    }
}

/// What there is to know of a process, for filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its name, as in `/proc/PID/comm`.
    pub name: Arc<str>,
    /// Its cgroup, as a path from the root of the hierarchy such as `/system.slice/redis.service`.
    pub cgroup: Arc<str>,
}

/// A way to act on memory. It knows no scheme, no quota and no region, and does what it is told.
pub trait Actuator {
    /// Whether it can do this here, asked before the first call of a scheme.
    ///
    /// # Errors
    /// Says why not, and what would mend it.
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError>;

    /// Whether it can tell pages of this kind, asked before the first call of a scheme whose filters need it.
    ///
    /// # Errors
    /// Says why not, and what would mend it.
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError>;

    /// What a target is; nothing if it has gone. Asked only where filters need it.
    fn process(&mut self, target: TargetId) -> Option<ProcessFacts>;

    /// Finds the pages of this kind in `range`, just before the action: appends to `found` disjoint, page-aligned ranges within
    /// `range`, in the order of addresses.
    ///
    /// # Errors
    /// The system's error number, if they cannot be told now. Nothing of `range` is acted on then.
    fn pages(
        &mut self,
        target: TargetId,
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), i32>;

    /// Does the work, and says for each of its ranges what became of it. `outcomes` has the length of `work.ranges`, and is
    /// all zero.
    ///
    /// # Errors
    /// Only what makes going on senseless. What the kernel refuses, a target that has gone included, is an outcome.
    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError>;

    /// How much time it has spent so far on [`apply`](Self::apply) and [`pages`](Self::pages): what a quota of time is held against.
    fn time_spent(&self) -> Duration;
}

impl<A: Actuator + ?Sized> Actuator for Box<A> {
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError> {
        (**self).supports(action, inside)
    }

    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        (**self).tells(kind)
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        (**self).process(target)
    }

    fn pages(
        &mut self,
        target: TargetId,
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), i32> {
        (**self).pages(target, range, kind, found)
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        (**self).apply(work, outcomes)
    }

    fn time_spent(&self) -> Duration {
        (**self).time_spent()
    }
}
