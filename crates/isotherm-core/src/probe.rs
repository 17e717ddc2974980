//! Probes: a way to learn whether a page was accessed.

use crate::{BoxError, TargetId, TargetSpace};

/// One page to be looked at in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The target whose address space it is in.
    pub target: TargetId,
    /// The page's first byte.
    pub addr: u64,
}

/// What a probe says of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Not accessed since it was cleared. A page that is not present was not accessed.
    Idle,
    /// Accessed since it was cleared.
    Accessed,
    /// This probe cannot tell for this page: it counts as neither hot nor cold.
    Unobservable,
}

/// The smallest piece of memory that one answer of a probe speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A page, so that regions may be split and merged at any page.
    Page,
    /// A whole mapping: a region is a mapping.
    Mapping,
}

/// A way to learn whether pages were accessed. It knows no region and keeps no statistics.
///
/// A round is one [`clear`](Self::clear), a wait of one sampling interval, and one [`read`](Self::read) of
/// the same samples in the same order.
pub trait AccessProbe {
    /// The smallest piece that one answer speaks for.
    fn granularity(&self) -> Granularity {
        Granularity::Page
    }

    /// Learns of the targets: before the first round and whenever they or their mappings have been read anew.
    ///
    /// # Errors
    /// Only what makes going on senseless: a target that has just ended is no error.
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError>;

    /// Makes each sample's page *not accessed*, so that an access from now on can be seen.
    ///
    /// # Errors
    /// Only what makes going on senseless. What holds for one page only becomes
    /// [`Observation::Unobservable`] at the next read.
    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError>;

    /// Says for each sample whether it was accessed since the last clear. `answers` has the length of `samples`.
    ///
    /// # Errors
    /// Only what makes going on senseless.
    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError>;

    /// How many pages this probe has cleared so far: the part of its work that costs the target.
    fn clears(&self) -> u64;
}

impl<P: AccessProbe + ?Sized> AccessProbe for Box<P> {
    fn granularity(&self) -> Granularity {
        (**self).granularity()
    }

    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        (**self).update(targets)
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        (**self).clear(samples)
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        (**self).read(samples, answers)
    }

    fn clears(&self) -> u64 {
        (**self).clears()
    }
}
