//! Probes: a way to learn whether a page was accessed.

use crate::survey::{MappingSurvey, Survey};
use crate::{Activity, BoxError, TargetId, TargetSpace};

/// One page that is cleared and read in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The target in whose address space the page lies.
    pub target: TargetId,
    /// The address of the first byte of the page.
    pub addr: u64,
}

/// What a probe found out about one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The page was not accessed since it was cleared. A page that is not present is idle.
    Idle,
    /// The page was accessed since it was cleared.
    Accessed,
    /// The probe cannot tell for this page. The page counts as neither hot nor cold.
    Unobservable,
}

/// The memory that one answer of a probe speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A page. Regions can be split and merged at every page.
    Page,
    /// A whole mapping. Each mapping is one region.
    Mapping,
}

/// A way to learn whether pages were accessed. It knows no regions and keeps no statistics.
///
/// A round is one call of [`clear`](Self::clear), a wait of one sampling interval, and one call of
/// [`read`](Self::read) with the same samples in the same order.
pub trait AccessProbe {
    /// The memory that one answer speaks for; [`Granularity::Page`] by default.
    fn granularity(&self) -> Granularity {
        Granularity::Page
    }

    /// Whether the probe can clear and read single pages between surveys; true by default. If not, it has a survey, and
    /// every sample is unobservable, as the defaults of [`clear`](Self::clear) and [`read`](Self::read) have it.
    fn has_samples(&self) -> bool {
        true
    }

    /// Takes in the targets and their mappings. The monitor calls this before the first round and whenever it has
    /// read the mappings again.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A target that has just ended is no error.
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError>;

    /// Takes in targets that have joined since the last update, beside those that it has. The default does nothing: it
    /// is for a probe that keeps nothing of a target.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn join(&mut self, joined: &[TargetSpace]) -> Result<(), BoxError> {
        let _ = joined;
        Ok(())
    }

    /// Marks the page of each sample as not accessed, so that a later access can be seen. The default does nothing: it
    /// is for a probe that clears no samples.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A page that cannot be cleared is [`Observation::Unobservable`] at the
    /// next read.
    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        let _ = samples;
        Ok(())
    }

    /// Stores in `answers` for each sample whether its page was accessed since the last call of `clear`. Both
    /// slices have the same length. By default, every sample is unobservable.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let _ = samples;
        answers.fill(Observation::Unobservable);
        Ok(())
    }

    /// How many pages the probe has cleared since it was made. Clearing is the part of its work that slows the
    /// target down.
    fn clears(&self) -> u64;

    /// The survey of all pages that goes with this probe. `None`, the default, if it has none.
    fn survey(&mut self) -> Option<&mut dyn Survey> {
        None
    }

    /// A way to read and clear single pages at any time, for the panel. `None`, the default, if there is none.
    fn pages(&mut self) -> Option<&mut dyn PageProbe> {
        None
    }

    /// A way to find out which targets have run. `None`, the default, if there is none.
    fn activity(&mut self) -> Option<&mut dyn Activity> {
        None
    }

    /// The survey of all mappings that goes with a probe that does not know pages. `None`, the default, if it has none.
    fn mapping_survey(&mut self) -> Option<&mut dyn MappingSurvey> {
        None
    }
}

impl<P: AccessProbe + ?Sized> AccessProbe for Box<P> {
    fn granularity(&self) -> Granularity {
        (**self).granularity()
    }

    fn has_samples(&self) -> bool {
        (**self).has_samples()
    }

    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        (**self).update(targets)
    }

    fn join(&mut self, joined: &[TargetSpace]) -> Result<(), BoxError> {
        (**self).join(joined)
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

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        (**self).survey()
    }

    fn pages(&mut self) -> Option<&mut dyn PageProbe> {
        (**self).pages()
    }

    fn activity(&mut self) -> Option<&mut dyn Activity> {
        (**self).activity()
    }

    fn mapping_survey(&mut self) -> Option<&mut dyn MappingSurvey> {
        (**self).mapping_survey()
    }
}

/// What a look at the accessed bit of a page has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLook {
    /// Whether the page is in memory.
    pub present: bool,
    /// Whether it was accessed since it was cleared, or since it was mapped.
    pub accessed: bool,
    /// Whether it is a part of a huge page, which has one accessed bit.
    pub huge: bool,
    /// The number of its page frame, if it is known.
    pub frame: Option<u64>,
}

/// A way to read and clear single pages, at any time. Like a probe, it knows no region and keeps no statistics.
pub trait PageProbe {
    /// Appends to `looks`, for each page, what a look at it has found.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError>;

    /// Clears the accessed bits of pages that were accessed, so that a later access can be seen. Surveys learn of the
    /// accesses before. Appends to `cleared`, for each page, whether it was cleared.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn clear_pages(&mut self, pages: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError>;
}
