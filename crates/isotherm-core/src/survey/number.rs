//! Numbers of surveys, which tell when a page was accessed.

/// The number of surveys that stands for any longer time, and for a time that is not known.
pub(super) const LONGEST: u16 = u16::MAX;

/// The survey in whose interval a page was accessed; or that it was before the first survey, or at a time that is not
/// known. Later surveys are greater, and what is not known is the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SurveyNumber(u16);

impl SurveyNumber {
    /// At a time that is not known.
    pub(super) const UNKNOWN: Self = Self(0);

    /// Before the first survey.
    const BEFORE: Self = Self(1);

    /// In the interval of the first survey.
    const FIRST: Self = Self(2);

    /// Whether it is known when it was.
    pub(super) fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    /// The number of the survey after this one. It must not be [full](Self::is_full).
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1).max(Self::FIRST)
    }

    /// The number of the survey before this one.
    pub(super) fn before(self) -> Self {
        Self(self.0 - 1)
    }

    /// Whether no survey can come after this one unless all numbers are [reduced](Self::reduced).
    pub(super) const fn is_full(self) -> bool {
        self.0 == u16::MAX
    }

    /// The same survey once numbers are smaller by half. What is older counts as before the first survey.
    #[must_use]
    pub(super) fn reduced(self) -> Self {
        if self.is_known() { Self(self.0.saturating_sub(u16::MAX / 2)).max(Self::BEFORE) } else { self }
    }

    /// How many surveys passed from `earlier` to this one. [`LONGEST`] if it is not known when `earlier` was.
    pub(super) fn since(self, earlier: Self) -> u16 {
        if earlier.is_known() { self.0 - earlier.0 } else { LONGEST }
    }

    /// As an integer, for means.
    pub(super) const fn get(self) -> u16 {
        self.0
    }

    #[cfg(test)]
    pub(super) const fn of(number: u16) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reduced_keeps_its_distance_or_was_before_the_first_survey() {
        let (last, recent, old) = (SurveyNumber(u16::MAX), SurveyNumber(u16::MAX - 7), SurveyNumber(90));
        assert!(last.is_full() && !last.reduced().is_full());
        assert_eq!(last.reduced().since(recent.reduced()), 7);
        assert_eq!((old.reduced(), SurveyNumber::UNKNOWN.reduced()), (SurveyNumber::BEFORE, SurveyNumber::UNKNOWN));
        assert_eq!((SurveyNumber::UNKNOWN.next(), last.since(SurveyNumber::UNKNOWN)), (SurveyNumber::FIRST, LONGEST));
    }
}
