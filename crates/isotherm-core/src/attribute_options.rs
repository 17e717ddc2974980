//! Attributes as the user asks for them; those that are left open follow from the probe.

use std::time::Duration;

use crate::{Attributes, AttributesError, Granularity, MIN_SAMPLING};

/// The attributes that a user asks for. [`resolve`](Self::resolve) fills in the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeOptions {
    /// The sampling interval.
    pub sampling: Option<Duration>,
    /// The aggregation interval.
    pub aggregation: Option<Duration>,
    /// The update interval.
    pub update: Option<Duration>,
    /// The minimum and the maximum number of regions.
    pub regions: Option<(usize, usize)>,
}

impl From<Attributes> for AttributeOptions {
    /// Leaves nothing open.
    fn from(attributes: Attributes) -> Self {
        Self {
            sampling: Some(attributes.sampling()),
            aggregation: Some(attributes.aggregation()),
            update: Some(attributes.update()),
            regions: Some((attributes.min_regions(), attributes.max_regions())),
        }
    }
}

/// The time from one snapshot to the next if nothing is sampled.
const SNAPSHOTS: Duration = Duration::from_secs(1);

impl AttributeOptions {
    /// The same options for a run without samples. The sampling interval says nothing then, and there is a snapshot
    /// about as often as there is a survey, unless the aggregation interval is given.
    #[must_use]
    pub fn without_samples(self) -> Self {
        let aggregation = Some(self.aggregation.unwrap_or(SNAPSHOTS));
        Self { sampling: aggregation, aggregation, ..self }
    }

    /// The attributes for a probe of this granularity.
    ///
    /// The default intervals are those of DAMON (5 ms and 100 ms). A probe that speaks for whole mappings walks all
    /// page tables of its targets in each round, and so samples every 100 ms and aggregates every second. If only
    /// the sampling interval is given, the aggregation interval follows in the default ratio, 20 or 10. If only the
    /// aggregation interval is given, the sampling interval is the default, or follows in the ratio where that is
    /// shorter, down to [`MIN_SAMPLING`].
    ///
    /// # Errors
    /// Those of [`Attributes::new`].
    pub fn resolve(&self, granularity: Granularity) -> Result<Attributes, AttributesError> {
        let defaults = Attributes::default();
        let (sampling, ratio) = match granularity {
            Granularity::Page => (defaults.sampling(), 20),
            Granularity::Mapping => (Duration::from_millis(100), 10),
        };
        let (sampling, aggregation) = match (self.sampling, self.aggregation) {
            (Some(sampling), Some(aggregation)) => (sampling, aggregation),
            (Some(sampling), None) if sampling < Duration::MAX / ratio => (sampling, sampling * ratio),
            (Some(sampling), None) => (sampling, sampling),
            (None, Some(aggregation)) if aggregation < sampling => {
                ((aggregation / ratio).max(MIN_SAMPLING), aggregation)
            }
            (None, Some(aggregation)) => (sampling, aggregation),
            (None, None) => (sampling, sampling * ratio),
        };
        let update = self.update.unwrap_or(defaults.update());
        let (min, max) = self.regions.unwrap_or((defaults.min_regions(), defaults.max_regions()));
        Attributes::new(sampling, aggregation, update, min, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The sampling and the aggregation interval that come of what is asked for.
    fn intervals(granularity: Granularity, sampling: Option<u64>, aggregation: Option<u64>) -> (Duration, Duration) {
        let options = AttributeOptions {
            sampling: sampling.map(ms),
            aggregation: aggregation.map(ms),
            ..AttributeOptions::default()
        };
        let attributes = options.resolve(granularity).unwrap();
        (attributes.sampling(), attributes.aggregation())
    }

    #[test]
    fn intervals_that_are_not_given_are_the_defaults_of_the_probe() {
        assert_eq!(intervals(Granularity::Page, None, None), (ms(5), ms(100)));
        assert_eq!(intervals(Granularity::Mapping, None, None), (ms(100), ms(1000)));
        assert_eq!(AttributeOptions::default().resolve(Granularity::Page), Ok(Attributes::default()));
    }

    #[test]
    fn a_sampling_interval_alone_scales_the_aggregation_interval() {
        assert_eq!(intervals(Granularity::Page, Some(200), None), (ms(200), ms(4000)));
        assert_eq!(intervals(Granularity::Mapping, Some(200), None), (ms(200), ms(2000)));
        assert_eq!(intervals(Granularity::Page, Some(1), None), (ms(1), ms(20)));
    }

    #[test]
    fn an_aggregation_interval_alone_keeps_the_sampling_interval_if_that_fits() {
        assert_eq!(intervals(Granularity::Page, None, Some(1000)), (ms(5), ms(1000)));
        assert_eq!(intervals(Granularity::Page, None, Some(4)), (ms(4) / 20, ms(4)));
        assert_eq!(intervals(Granularity::Page, None, Some(1)), (MIN_SAMPLING, ms(1)));
    }

    #[test]
    fn a_sampling_interval_shorter_than_a_round_is_refused() {
        let sampling = |sampling| AttributeOptions { sampling: Some(sampling), ..Default::default() };
        let short = MIN_SAMPLING - Duration::from_nanos(1);
        for granularity in [Granularity::Page, Granularity::Mapping] {
            assert!(sampling(MIN_SAMPLING).resolve(granularity).is_ok());
            assert_eq!(sampling(short).resolve(granularity), Err(AttributesError::SamplingTooShort(short)));
        }
    }

    #[test]
    fn two_intervals_that_do_not_fit_are_refused() {
        let options = AttributeOptions { sampling: Some(ms(20)), aggregation: Some(ms(10)), ..Default::default() };
        assert!(matches!(
            options.resolve(Granularity::Page),
            Err(AttributesError::SamplingOverAggregation { sampling, aggregation }) if sampling > aggregation
        ));
        let endless = AttributeOptions { sampling: Some(Duration::MAX), ..Default::default() };
        assert!(endless.resolve(Granularity::Page).is_ok());
    }
}
