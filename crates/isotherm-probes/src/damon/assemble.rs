//! From events, one a region, to aggregations: all regions of all targets at one moment.

use isotherm_core::{AddrRange, RegionSnapshot};

use super::format::Told;

/// All that the kernel told at the end of one aggregation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregation {
    /// When, by the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// The regions of each target that has some: the target's number, and its regions, sorted and disjoint.
    pub targets: Vec<(usize, Vec<RegionSnapshot>)>,
    /// Whether others may have ended since the one before it, which did not reach us.
    pub gap: bool,
}

/// Puts aggregations together.
///
/// The kernel tells of all regions of an aggregation in one go, target by target, in the order of their addresses, each with the
/// number of regions that its target has. So an aggregation is complete when each target in it has as many as it should, and another
/// one begins where targets or addresses go backwards. After a loss all is dropped up to the next such beginning: a part of one
/// aggregation must not be taken for a part of another.
#[derive(Debug)]
pub(super) struct Assembler {
    targets: usize,
    /// The highest possible count.
    samples: u32,
    open: Aggregation,
    /// How many regions the last target of `open` should have.
    expected: u32,
    /// Where the last event was, in the order that an aggregation has.
    last: Option<(u64, u64)>,
    state: State,
    /// Events that did not reach us.
    pub lost_events: u64,
    /// Aggregations of which something came, but not all.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All that belongs to the open aggregation has come.
    Whole,
    /// Something was lost: wait for the next beginning.
    Torn,
    /// It has begun anew since then.
    Again,
}

impl Assembler {
    /// For so many targets, and so many samples an aggregation.
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

    /// Events were lost here.
    pub(super) fn lost(&mut self, events: u64) {
        self.lost_events = self.lost_events.saturating_add(events);
        self.drop_open();
        self.state = State::Torn;
        // What comes next may go on from what was lost.
        self.last = None;
    }

    /// One event; gives the aggregation that is complete with it or was complete before it.
    pub(super) fn push(&mut self, time_ns: u64, told: Told) -> Option<Aggregation> {
        let at = (told.target, told.start);
        let begins = self.last.is_some_and(|last| at <= last || (at.0 == last.0 && self.has_all_of_last_target()));
        self.last = Some(at);
        let mut complete = None;
        if begins {
            complete = self.close();
            if self.state == State::Torn {
                self.state = State::Again;
            }
        }
        if self.state == State::Torn {
            return None;
        }

        let target = usize::try_from(told.target).unwrap_or(usize::MAX);
        if self.open.targets.last().is_none_or(|(last, _)| *last != target) {
            if !self.last_target_is_complete() {
                // Not as the kernel tells it, and no loss was told either.
                self.lost(0);
                return complete;
            }
            self.open.targets.push((target, Vec::new()));
            self.expected = told.nr_regions;
        }
        if let (Some((_, regions)), Some(range)) = (self.open.targets.last_mut(), AddrRange::new(told.start, told.end))
        {
            regions.push(RegionSnapshot {
                range,
                nr_accesses: told.nr_accesses.min(self.samples),
                nr_samples: self.samples,
                nr_unobservable: 0,
                age: told.age,
            });
        }
        self.open.time_ns = time_ns;
        // Nothing follows the last region of the last target: no need to wait for the next aggregation.
        if complete.is_none() && target + 1 >= self.targets && self.last_target_is_complete() {
            complete = self.close();
        }
        complete
    }

    /// Ends the open aggregation, and gives it if it is complete.
    pub(super) fn close(&mut self) -> Option<Aggregation> {
        if self.open.targets.is_empty() {
            return None;
        }
        if !self.last_target_is_complete() {
            self.drop_open();
            self.state = State::Again;
            return None;
        }
        let mut complete = std::mem::take(&mut self.open);
        self.expected = 0;
        complete.gap = std::mem::replace(&mut self.state, State::Whole) == State::Again;
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

    /// The events of one aggregation, of targets with so many regions; `mark` is in every age.
    fn aggregation(mark: u32, targets: &[u32]) -> Vec<Told> {
        let regions = |(target, &nr): (usize, &u32)| {
            (0..nr).map(move |i| Told {
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

    fn run(assembler: &mut Assembler, events: &[Told]) -> Vec<Aggregation> {
        let mut found: Vec<_> = events.iter().filter_map(|&told| assembler.push(u64::from(told.age), told)).collect();
        found.extend(assembler.close());
        found
    }

    fn sizes(aggregation: &Aggregation) -> Vec<(usize, usize)> {
        aggregation.targets.iter().map(|(target, regions)| (*target, regions.len())).collect()
    }

    #[test]
    fn an_aggregation_is_given_with_its_last_event() {
        let mut assembler = Assembler::new(2, SAMPLES);
        let events = aggregation(1, &[3, 2]);
        let given: Vec<bool> = events.iter().map(|&told| assembler.push(9, told).is_some()).collect();
        assert_eq!(given, [false, false, false, false, true]);
    }

    #[test]
    fn a_target_without_regions_is_passed_over() {
        for targets in [[3, 0, 2], [0, 3, 2], [3, 2, 0]] {
            let mut assembler = Assembler::new(3, SAMPLES);
            let events = [aggregation(1, &targets), aggregation(2, &targets)].concat();
            let found = run(&mut assembler, &events);
            assert_eq!(found.len(), 2, "{targets:?}");
            assert!(found.iter().all(|aggregation| aggregation.targets.len() == 2 && !aggregation.gap));
        }
    }

    #[test]
    fn the_collection_may_begin_in_the_middle_of_an_aggregation() {
        let mut assembler = Assembler::new(1, SAMPLES);
        let events = [aggregation(1, &[5])[2..].to_vec(), aggregation(2, &[4])].concat();
        let found = run(&mut assembler, &events);
        assert_eq!(found.iter().map(sizes).collect::<Vec<_>>(), [[(0, 4)]]);
    }

    #[test]
    fn two_halves_are_not_taken_for_a_whole() {
        let mut assembler = Assembler::new(1, SAMPLES);
        let (first, second, third) = (aggregation(1, &[4]), aggregation(2, &[4]), aggregation(3, &[4]));
        assert!(run_open(&mut assembler, &first[..2]).is_empty());
        assembler.lost(4);
        // Together with the first half it would have the right number of regions, in the right order.
        assert!(run_open(&mut assembler, &second[2..]).is_empty());
        let found = run(&mut assembler, &third);
        assert_eq!(found.len(), 1);
        assert!(found[0].gap && found[0].time_ns == 3);
        assert_eq!((assembler.lost_events, assembler.dropped), (4, 1));
    }

    fn run_open(assembler: &mut Assembler, events: &[Told]) -> Vec<Aggregation> {
        events.iter().filter_map(|&told| assembler.push(u64::from(told.age), told)).collect()
    }

    #[test]
    fn a_count_is_never_higher_than_there_are_samples() {
        let told = Told { nr_regions: 1, start: 4096, end: 8192, nr_accesses: 21, ..Told::default() };
        let found = Assembler::new(1, SAMPLES).push(1, told).unwrap();
        assert_eq!(found.targets[0].1[0].nr_accesses, SAMPLES);
    }

    proptest! {
        /// Whatever is lost, an aggregation that is given is one that was made, whole; and all are given if nothing is lost.
        #[test]
        fn what_is_given_is_whole(
            made in prop::collection::vec(prop::collection::vec(1_u32..6, 3..4), 1..12),
            empty in 0_usize..7,
            losses in prop::collection::vec((0_usize..150, 1_usize..20), 0..4),
        ) {
            let targets = 3;
            // Some targets have no regions at all.
            let made: Vec<Vec<u32>> = made
                .iter()
                .map(|made| made.iter().enumerate().map(|(i, n)| if empty >> i & 1 == 1 { 0 } else { *n }).collect())
                .collect();
            let all: Vec<Told> =
                made.iter().enumerate().flat_map(|(mark, targets)| aggregation(mark as u32, targets)).collect();
            let lost = |i: usize| losses.iter().any(|&(from, n)| (from..from + n).contains(&i));
            let mut assembler = Assembler::new(targets, SAMPLES);
            let mut found = Vec::new();
            let mut gone = 0;
            for (i, &told) in all.iter().enumerate() {
                if lost(i) {
                    gone += 1;
                    continue;
                }
                if gone > 0 {
                    assembler.lost(std::mem::take(&mut gone));
                }
                found.extend(assembler.push(u64::from(told.age), told));
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
