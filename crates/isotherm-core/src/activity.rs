//! Which targets have run: the memory of the others was not accessed.

use crate::{BoxError, TargetId};

/// A way to find out which targets have run. The memory of a target that has not run since some time was not accessed
/// since then.
pub trait Activity {
    /// Looks at all targets.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn look(&mut self) -> Result<(), BoxError>;

    /// What the last look has found of a target. `None` if it runs, or if that is not known.
    fn rest(&self, target: TargetId) -> Option<AtRest>;
}

/// What a look has found of a target that was at rest. If two looks have found the same, the target has not run in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtRest(pub u64);
