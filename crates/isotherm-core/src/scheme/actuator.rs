//! Actuators: a way to act on ranges of a target's memory.

use std::time::Duration;

use crate::{AddrRange, BoxError, Mapping, NodeId, TargetId, TargetSnapshot};

use super::{Action, Elsewhere, Refusal, WantedLimits};

/// One call: one action on ranges of one target.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What to do.
    pub action: Action,
    /// Whether the call may be made inside the target.
    pub inside: bool,
    /// The target whose memory is acted on.
    pub target: TargetId,
    /// Ranges of its memory: sorted, disjoint, page-aligned, and within the mappings of the snapshot. There are no
    /// more of them than one system call takes. They may have been unmapped since the snapshot.
    pub ranges: &'a [AddrRange],
    /// Where else targets map this memory. `None` if that is not known: then actions on cold memory leave alone what
    /// several processes map.
    pub elsewhere: Option<Elsewhere<'a>>,
}

/// The result of an action on one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that the action was carried out on. An action on a cgroup may free other memory of it in their place.
    pub applied: u64,
    /// Of these, bytes of the range that were freed, and were in memory again when the action ended.
    pub returned: u64,
    /// Bytes that were refused. Bytes that are neither applied nor refused did not need the action.
    pub refused: u64,
    /// Why bytes were refused; `None` if and only if none were. If there are several reasons, it is the first.
    pub refusal: Option<Refusal>,
    /// Bytes that an action which frees memory has unmapped from the target without freeing them. They are neither
    /// applied nor refused.
    pub unmapped: u64,
    /// Bytes of the range that are mapped in the target after an action that frees memory; `None` if that is not known.
    pub resident: Option<u64>,
}

impl Outcome {
    /// The action was carried out on all of `range`.
    pub const fn all(range: AddrRange) -> Self {
        Self { applied: range.size(), returned: 0, refused: 0, refusal: None, unmapped: 0, resident: None }
    }

    /// All of `range` was refused.
    pub const fn refused(range: AddrRange, refusal: Refusal) -> Self {
        Self { applied: 0, returned: 0, refused: range.size(), refusal: Some(refusal), unmapped: 0, resident: None }
    }

    /// Adds what became of a part of the range.
    pub fn add(&mut self, part: &Self) {
        self.applied += part.applied;
        self.returned += part.returned;
        self.unmapped += part.unmapped;
        self.resident = part.resident.map(|bytes| bytes + self.resident.unwrap_or(0)).or(self.resident);
        if let Some(refusal) = part.refusal {
            self.refuse(part.refused, refusal);
        }
    }

    /// Counts `bytes`, at least one, as refused for this reason.
    pub fn refuse(&mut self, bytes: u64, refusal: Refusal) {
        self.refused += bytes;
        self.refusal.get_or_insert(refusal);
    }
}

/// What is asked for of page cache that no process maps.
#[derive(Clone, Copy, Debug)]
pub struct CacheWork<'a> {
    /// An action that reclaims memory of cgroups.
    pub action: Action,
    /// For how long it must have been idle.
    pub age: Duration,
    /// Whether page cache of unknown age is taken, too, a little at a time.
    pub unobserved: bool,
    /// The targets in whose cgroups it is.
    pub targets: &'a [TargetSnapshot],
    /// How many bytes are taken at most.
    pub bytes: u64,
}

/// A way to act on memory. It knows no scheme, no quota and no region.
pub trait Actuator {
    /// Checks that the action can be carried out here. It is called before the first call of a scheme.
    ///
    /// # Errors
    /// Says why the action cannot be carried out and how to fix that.
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError>;

    /// The nodes on which the action leaves all memory as it is, because it is where the action would take it. Empty if
    /// that is not known, or if the action does not move memory between nodes.
    fn left_nodes(&mut self, _action: Action) -> Vec<NodeId> {
        Vec::new()
    }

    /// Whether there is a place for the contents of the memory of this mapping, so that an action that frees memory can
    /// free it now. Other memory is tried first.
    fn can_free(&mut self, _mapping: &Mapping) -> bool {
        true
    }

    /// How many more bytes of the targets may be locked. It is called before each application of a scheme that locks.
    fn lockable(&mut self) -> u64 {
        u64::MAX
    }

    /// Whether nothing is done, and all is reported as done. Then what was freed counts as absent until it is accessed.
    fn is_dry(&self) -> bool {
        false
    }

    /// Makes one call, and stores in `outcomes` what became of each of its ranges. `outcomes` has the length of
    /// `work.ranges` and holds default values.
    ///
    /// # Errors
    /// Fails only if no further call can be made. What the system refuses is an outcome, and so is a target that
    /// has ended.
    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError>;

    /// Sets the limits of the cgroups of targets to what schemes want: `wanted` has an entry for each scheme that sets
    /// limits and is awake. All other limits that were set before become what they were. It is called about once a
    /// second, as long as there is such a scheme or was one at the call before.
    fn set_limits(&mut self, _wanted: &[WantedLimits<'_>]) {}

    /// Takes page cache that no process maps from the cgroups of targets. Returns how many bytes were freed.
    fn reclaim_cache(&mut self, _work: &CacheWork<'_>) -> u64 {
        0
    }

    /// The time spent in [`apply`](Self::apply) and [`reclaim_cache`](Self::reclaim_cache) since the start. A quota of
    /// time is charged with it.
    fn time_spent(&self) -> Duration;
}

impl<A: Actuator + ?Sized> Actuator for Box<A> {
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError> {
        (**self).supports(action, inside)
    }

    fn left_nodes(&mut self, action: Action) -> Vec<NodeId> {
        (**self).left_nodes(action)
    }

    fn can_free(&mut self, mapping: &Mapping) -> bool {
        (**self).can_free(mapping)
    }

    fn lockable(&mut self) -> u64 {
        (**self).lockable()
    }

    fn is_dry(&self) -> bool {
        (**self).is_dry()
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        (**self).apply(work, outcomes)
    }

    fn set_limits(&mut self, wanted: &[WantedLimits<'_>]) {
        (**self).set_limits(wanted);
    }

    fn reclaim_cache(&mut self, work: &CacheWork<'_>) -> u64 {
        (**self).reclaim_cache(work)
    }

    fn time_spent(&self) -> Duration {
        (**self).time_spent()
    }
}
