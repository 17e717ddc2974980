//! Assembles events, one per region, into aggregations, which hold all regions of all targets at one time.

use isotherm_core::{AddrRange, RegionSnapshot};

use super::format::RegionEvent;

/// The results of one aggregation of the kernel's DAMON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregation {
    /// The end of the aggregation on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// The number of each target that has regions, and its regions, sorted and disjoint.
    pub targets: Vec<(usize, Vec<RegionSnapshot>)>,
    /// Whether aggregations between the previous one and this one may have been lost.
    pub gap: bool,
}

/// Assembles aggregations from events.
///
/// The kernel reports all regions of an aggregation together, target by target and by increasing address. Each event
/// has the number of regions of its target. So an aggregation is complete when each of its targets has that number of
/// regions. A new aggregation starts where the target or the address decreases. After a loss, all events up to the next
/// such start are dropped, because parts of two aggregations must not be combined.
#[derive(Debug)]
pub(super) struct Assembler {
    targets: usize,
    /// The maximum access count of a region.
    samples: u32,
    open: Aggregation,
    /// The number of regions that the last target of `open` should have.
    expected: u32,
    /// The target and the start address of the last event.
    last: Option<(u64, u64)>,
    state: State,
    /// The number of lost events.
    pub lost_events: u64,
    /// The number of aggregations dropped because events were missing.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No event of the open aggregation was lost.
    Whole,
    /// Events were lost. The next aggregation has not started yet.
    Torn,
    /// An aggregation has started after a loss.
    Restarted,
}

impl Assembler {
    /// An assembler for this number of targets and of samples per aggregation.
    pub(super) fn new(targets: usize, samples: u32) -> Self {
        Self {
            targets,
            samples,
            open: Aggregation::default(),
            expected: 0,
            last: None,
            state: State::Whole,
            lost_events: 0,
            dropped: 0,
        }
    }

    /// Notes that `events` events were lost at this point.
    pub(super) fn lost(&mut self, events: u64) {
        self.lost_events = self.lost_events.saturating_add(events);
        self.drop_open();
        self.state = State::Torn;
        // The next event may belong to the aggregation whose events were lost.
        self.last = None;
    }

    /// Adds an event. Returns the aggregation that it completes, or the one that was complete before it.
    pub(super) fn push(&mut self, time_ns: u64, event: RegionEvent) -> Option<Aggregation> {
        let at = (event.target, event.start);
        let begins = self.last.is_some_and(|last| at <= last || (at.0 == last.0 && self.has_all_of_last_target()));
        self.last = Some(at);
        let mut complete = None;
        if begins {
            complete = self.close();
            if self.state == State::Torn {
                self.state = State::Restarted;
            }
        }
        if self.state == State::Torn {
            return None;
        }

        let target = usize::try_from(event.target).unwrap_or(usize::MAX);
        if self.open.targets.last().is_none_or(|(last, _)| *last != target) {
            if !self.last_target_is_complete() {
                // The kernel does not report regions like this. Treat it as an unreported loss.
                self.lost(0);
                return complete;
            }
            self.open.targets.push((target, Vec::new()));
            self.expected = event.nr_regions;
        }
        if let (Some((_, regions)), Some(range)) =
            (self.open.targets.last_mut(), AddrRange::new(event.start, event.end))
        {
            regions.push(RegionSnapshot {
                nr_accesses: event.nr_accesses.min(self.samples),
                nr_samples: self.samples,
                age: event.age,
                ..RegionSnapshot::new(range)
            });
        }
        self.open.time_ns = time_ns;
        // No event follows the last region of the last target, so do not wait for the next aggregation.
        if complete.is_none() && target + 1 >= self.targets && self.last_target_is_complete() {
            complete = self.close();
        }
        complete
    }

    /// Ends the open aggregation and returns it if it is complete.
    pub(super) fn close(&mut self) -> Option<Aggregation> {
        if self.open.targets.is_empty() {
            return None;
        }
        if !self.last_target_is_complete() {
            self.drop_open();
            self.state = State::Restarted;
            return None;
        }
        let mut complete = std::mem::take(&mut self.open);
        self.expected = 0;
        complete.gap = std::mem::replace(&mut self.state, State::Whole) == State::Restarted;
        Some(complete)
    }

    fn drop_open(&mut self) {
        self.dropped += u64::from(!self.open.targets.is_empty());
        self.open = Aggregation::default();
        self.expected = 0;
    }

    fn has_all_of_last_target(&self) -> bool {
        !self.open.targets.is_empty() && self.last_target_is_complete()
    }

    fn last_target_is_complete(&self) -> bool {
        self.open.targets.last().is_none_or(|(_, regions)| regions.len() == self.expected as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: u32 = 20;

    /// The events of one aggregation of targets with these numbers of regions. Every region has the age `mark`.
    fn aggregation(mark: u32, targets: &[u32]) -> Vec<RegionEvent> {
        let regions = |(target, &nr): (usize, &u32)| {
            (0..nr).map(move |i| RegionEvent {
                target: target as u64,
                nr_regions: nr,
                start: u64::from(i + 1) << 12,
                end: u64::from(i + 2) << 12,
                nr_accesses: i,
                age: mark,
            })
        };
        targets.iter().enumerate().flat_map(regions).collect()
    }

    fn run(assembler: &mut Assembler, events: &[RegionEvent]) -> Vec<Aggregation> {
        let mut found: Vec<_> =
            events.iter().filter_map(|&event| assembler.push(u64::from(event.age), event)).collect();
        found.extend(assembler.close());
        found
    }

    fn sizes(aggregation: &Aggregation) -> Vec<(usize, usize)> {
        aggregation.targets.iter().map(|(target, regions)| (*target, regions.len())).collect()
    }

    #[test]
    fn an_aggregation_is_returned_with_its_last_event() {
        let mut assembler = Assembler::new(2, SAMPLES);
        let events = aggregation(1, &[3, 2]);
        let returned: Vec<bool> = events.iter().map(|&event| assembler.push(9, event).is_some()).collect();
        assert_eq!(returned, [false, false, false, false, true]);
    }

    #[test]
    fn a_target_without_regions_is_skipped() {
        for targets in [[3, 0, 2], [0, 3, 2], [3, 2, 0]] {
            let mut assembler = Assembler::new(3, SAMPLES);
            let events = [aggregation(1, &targets), aggregation(2, &targets)].concat();
            let found = run(&mut assembler, &events);
            assert_eq!(found.len(), 2, "{targets:?}");
            assert!(found.iter().all(|aggregation| aggregation.targets.len() == 2 && !aggregation.gap));
        }
    }

    #[test]
    fn an_aggregation_without_its_first_events_is_dropped() {
        let mut assembler = Assembler::new(1, SAMPLES);
        let events = [aggregation(1, &[5])[2..].to_vec(), aggregation(2, &[4])].concat();
        let found = run(&mut assembler, &events);
        assert_eq!(found.iter().map(sizes).collect::<Vec<_>>(), [[(0, 4)]]);
    }

    #[test]
    fn halves_of_two_aggregations_are_not_combined() {
        let mut assembler = Assembler::new(1, SAMPLES);
        let (first, second, third) = (aggregation(1, &[4]), aggregation(2, &[4]), aggregation(3, &[4]));
        assert!(run_open(&mut assembler, &first[..2]).is_empty());
        assembler.lost(4);
        // With the first half, the number and the order of the regions would be right.
        assert!(run_open(&mut assembler, &second[2..]).is_empty());
        let found = run(&mut assembler, &third);
        assert_eq!(found.len(), 1);
        assert!(found[0].gap && found[0].time_ns == 3);
        assert_eq!((assembler.lost_events, assembler.dropped), (4, 1));
    }

    fn run_open(assembler: &mut Assembler, events: &[RegionEvent]) -> Vec<Aggregation> {
        events.iter().filter_map(|&event| assembler.push(u64::from(event.age), event)).collect()
    }

    #[test]
    fn a_count_never_exceeds_the_number_of_samples() {
        let event = RegionEvent { nr_regions: 1, start: 4096, end: 8192, nr_accesses: 21, ..RegionEvent::default() };
        let found = Assembler::new(1, SAMPLES).push(1, event).unwrap();
        assert_eq!(found.targets[0].1[0].nr_accesses, SAMPLES);
    }

    proptest! {
        /// Every returned aggregation is complete, whatever events are lost. All are returned if no event is lost.
        #[test]
        fn every_returned_aggregation_is_complete(
            made in prop::collection::vec(prop::collection::vec(1_u32..6, 3..4), 1..12),
            empty in 0_usize..7,
            losses in prop::collection::vec((0_usize..150, 1_usize..20), 0..4),
        ) {
            let targets = 3;
            // Some targets have no regions.
            let made: Vec<Vec<u32>> = made
                .iter()
                .map(|made| made.iter().enumerate().map(|(i, n)| if empty >> i & 1 == 1 { 0 } else { *n }).collect())
                .collect();
            let all: Vec<RegionEvent> =
                made.iter().enumerate().flat_map(|(mark, targets)| aggregation(mark as u32, targets)).collect();
            let lost = |i: usize| losses.iter().any(|&(from, n)| (from..from + n).contains(&i));
            let mut assembler = Assembler::new(targets, SAMPLES);
            let mut found = Vec::new();
            let mut gone = 0;
            for (i, &event) in all.iter().enumerate() {
                if lost(i) {
                    gone += 1;
                    continue;
                }
                if gone > 0 {
                    assembler.lost(std::mem::take(&mut gone));
                }
                found.extend(assembler.push(u64::from(event.age), event));
            }
            found.extend(assembler.close().filter(|_| gone == 0));

            for aggregation in &found {
                let mark = aggregation.time_ns as usize;
                let truth: Vec<_> =
                    made[mark].iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (i, *n as usize)).collect();
                prop_assert_eq!(sizes(aggregation), truth);
                prop_assert!(aggregation.targets.iter().flat_map(|(_, r)| r).all(|r| r.age as usize == mark));
            }
            if !(0..all.len()).any(lost) {
                prop_assert_eq!(found.len(), made.len());
            }
        }
    }
}
