//! Samples of memory that a process maps at several addresses. Without a survey, regions lie at the lowest of them
//! (`region_set`). A page there is accessed if it is accessed at any of them, so that a sample reads all of them.

use crate::views::{longest, views_from};
use crate::{AccessProbe, BoxError, Observation, Sample, SecondView};

/// The samples of a round, with the other addresses of their pages.
#[derive(Debug, Default)]
pub(super) struct ViewSamples {
    /// Each page with the place of its sample. Grouped by target, and in the order of addresses.
    pages: Vec<(Sample, usize)>,
    // Buffers, in the same order.
    samples: Vec<Sample>,
    answers: Vec<Observation>,
}

impl ViewSamples {
    /// Begins a round.
    pub(super) fn begin(&mut self) {
        self.pages.clear();
        self.samples.clear();
    }

    /// Adds the samples of a target with these views, in the order of [`SecondView::first`]. The first of the samples
    /// has the place `first`.
    pub(super) fn add(&mut self, samples: &[Sample], first: usize, views: &[SecondView]) {
        let begin = self.pages.len();
        let longest = longest(views);
        for (sample, place) in samples.iter().zip(first..) {
            self.pages.push((*sample, place));
            let addresses = views_from(views, longest, sample.addr);
            self.pages.extend(addresses.map(|addr| (Sample { addr, ..*sample }, place)));
        }
        self.pages[begin..].sort_unstable_by_key(|(page, _)| page.addr);
        self.samples.extend(self.pages[begin..].iter().map(|(page, _)| *page));
    }

    /// Clears the pages at all their addresses.
    pub(super) fn clear(&self, probe: &mut impl AccessProbe) -> Result<(), BoxError> {
        probe.clear(&self.samples)
    }

    /// Reads the pages. A page is accessed if it is at one address, and else it is unobservable if it is at one.
    /// `answers` is in the order of the samples, all of which are idle before.
    pub(super) fn read(&mut self, probe: &mut impl AccessProbe, answers: &mut [Observation]) -> Result<(), BoxError> {
        if self.samples.len() == answers.len() {
            return probe.read(&self.samples, answers);
        }
        self.answers.clear();
        self.answers.resize(self.samples.len(), Observation::Idle);
        probe.read(&self.samples, &mut self.answers)?;
        for ((_, place), found) in self.pages.iter().zip(&self.answers) {
            let answer = &mut answers[*place];
            *answer = match (*answer, *found) {
                (Observation::Accessed, _) | (_, Observation::Accessed) => Observation::Accessed,
                (Observation::Unobservable, _) | (_, Observation::Unobservable) => Observation::Unobservable,
                (Observation::Idle, Observation::Idle) => Observation::Idle,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{AddrRange, PAGE_SIZE, TargetId, TargetSpace};

    /// Pages by number that are accessed, and those that cannot be observed.
    struct Probe(&'static [u64], &'static [u64]);

    impl AccessProbe for Probe {
        fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
            Ok(())
        }

        fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
            assert!(samples.is_sorted_by_key(|sample| sample.addr));
            for (sample, answer) in samples.iter().zip(answers) {
                let page = sample.addr / PAGE_SIZE;
                *answer = match (self.0.contains(&page), self.1.contains(&page)) {
                    (true, _) => Observation::Accessed,
                    (false, true) => Observation::Unobservable,
                    (false, false) => Observation::Idle,
                };
            }
            Ok(())
        }

        fn clears(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_page_is_accessed_if_it_is_at_any_of_its_addresses() {
        let view = |start: u64, end: u64, first: u64| SecondView {
            range: AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap(),
            first: first * PAGE_SIZE,
        };
        // Pages 10 to 19 are those at 30 and at 50; 15 to 16 are also those at 70.
        let views = [view(30, 40, 10), view(50, 60, 10), view(70, 72, 15)];
        let target = TargetId::process(1, Duration::ZERO);
        let sample = |page: u64| Sample { target, addr: page * PAGE_SIZE };
        let read = |pages: &[u64], mut probe: Probe| {
            let samples: Vec<Sample> = pages.iter().map(|page| sample(*page)).collect();
            let mut all = ViewSamples::default();
            all.begin();
            all.add(&samples, 0, &views);
            let mut answers = vec![Observation::Idle; samples.len()];
            all.read(&mut probe, &mut answers).unwrap();
            answers
        };
        use Observation::{Accessed, Idle, Unobservable};
        assert_eq!(read(&[5, 12, 16, 90], Probe(&[52, 71, 31], &[16])), [Idle, Accessed, Accessed, Idle]);
        assert_eq!(read(&[14, 15, 17], Probe(&[90], &[34, 70, 72])), [Unobservable, Unobservable, Idle]);
    }
}
