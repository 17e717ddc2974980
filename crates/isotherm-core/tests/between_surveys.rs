//! What the monitor sees between two surveys: targets that join, memory that is new, and memory that turns hot.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_SIZE, BlockFrames, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySettings, SurveySnapshot,
};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Layout, Mapping, Monitor, Next, Observation, PAGE_SIZE,
    Sample, Sink, Snapshot, TargetId, TargetSearch, TargetSnapshot, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Gives the first of these lists of targets when it is read for the first time, and the second one from then on.
struct Space(Vec<Vec<TargetSpace>>);

impl AddressSpace for Space {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        Ok(if self.0.len() > 1 { self.0.remove(0) } else { self.0[0].clone() })
    }
}

/// The address range of a process.
fn range(pid: u32) -> AddrRange {
    AddrRange::new(u64::from(pid) << 30, (u64::from(pid) << 30) + 64 * MIB).unwrap()
}

fn target(pid: u32, ranges: &[AddrRange]) -> TargetSpace {
    let mappings = ranges.iter().copied().map(Mapping::anonymous).collect();
    TargetSpace { id: TargetId::process(pid, Duration::ZERO), layout: Layout::Process, mappings }
}

/// Each mapping has at most these pages at its start; all targets share the first 8. The first survey finds all of them
/// idle, or all accessed. Samples find those accessed that lie in `hot`.
struct Memory {
    pages: u64,
    idle: bool,
    hot: AddrRange,
    sampled: Vec<u64>,
}

impl AccessProbe for Memory {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        self.sampled.extend(samples.iter().map(|sample| sample.addr));
        for (sample, answer) in samples.iter().zip(answers) {
            *answer = if self.hot.contains(sample.addr) { Observation::Accessed } else { Observation::Idle };
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        0
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

impl Memory {
    fn blocks(&self, range: AddrRange, blocks: &mut Vec<BlockPages>) {
        let pages = self.pages.min(range.pages());
        let present = AddrRange::new(range.start(), range.start() + pages * PAGE_SIZE).unwrap();
        for piece in present.pieces(BLOCK_SIZE) {
            let start = piece.start() / BLOCK_SIZE * BLOCK_SIZE;
            let present = PageBits::within(start, piece);
            let accessed = if self.idle { PageBits::NONE } else { present };
            blocks.push(BlockPages { start, present, accessed, ..BlockPages::default() });
        }
    }
}

impl Survey for Memory {
    fn read(&mut self, target: &TargetSpace, _: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        target.mappings.iter().for_each(|mapping| self.blocks(mapping.range, blocks));
        Ok(Rest::default())
    }

    fn look(
        &mut self,
        _: &TargetSpace,
        ranges: &[AddrRange],
        _: usize,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        ranges.iter().for_each(|range| self.blocks(*range, blocks));
        Ok(())
    }

    fn frames(&mut self, target: TargetId, found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        let start = range(target.pid().unwrap()).start();
        let frames = std::array::from_fn(|page| page as u64);
        found(BlockFrames { start, pages: PageBits::of(0..8), swapped: PageBits::NONE, frames: &frames });
        Ok(true)
    }

    fn clear(&mut self, _: TargetId, _: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

#[derive(Default)]
struct Kept {
    surveys: usize,
    last: Option<SurveySnapshot>,
    snapshots: Vec<Snapshot>,
}

impl Sink for Kept {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshots.push(snapshot.clone());
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys += 1;
        self.last = Some(survey.clone());
        Ok(())
    }
}

type Watched = Monitor<Space, Memory, Kept, Pcg64Mcg>;

/// Watches for this time with one survey, at the start.
fn watch(space: Vec<Vec<TargetSpace>>, memory: Memory, time: Duration) -> Watched {
    watch_with_surveys(space, memory, MINUTE, time)
}

/// Watches for this time with a survey in each `interval`.
fn watch_with_surveys(space: Vec<Vec<TargetSpace>>, memory: Memory, interval: Duration, time: Duration) -> Watched {
    let [sampling, aggregation, update] = [5, 50, 200].map(|factor| MILLISECOND * factor);
    let attributes = Attributes::new(sampling, aggregation, update, 10, 100).unwrap();
    let rng = Pcg64Mcg::seed_from_u64(1);
    let mut monitor = Monitor::new(attributes, rng, Space(space), memory, Kept::default());
    monitor.set_survey(SurveySettings { interval, early_gap: MINUTE, ..SurveySettings::default() });
    let mut now = Duration::ZERO;
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && now < time
    {
        now += after;
        next = monitor.step(now).unwrap();
    }
    assert_eq!(monitor.sink().surveys as u128, 1 + time.as_nanos() / interval.as_nanos());
    monitor
}

/// The present bytes of the regions of each target.
fn present(snapshot: &Snapshot) -> Vec<u64> {
    let of = |target: &TargetSnapshot| target.regions.iter().map(|region| region.pages.unwrap().present).sum();
    snapshot.targets.iter().map(of).collect()
}

#[test]
fn a_target_that_joins_is_known_before_the_next_survey() {
    let [one, two] = [1, 2].map(|pid| target(pid, &[range(pid)]));
    let memory = Memory { pages: 8, idle: false, hot: range(1), sampled: Vec::new() };
    let monitor = watch(vec![vec![one.clone()], vec![one, two]], memory, MILLISECOND * 400);
    let snapshots = &monitor.sink().snapshots;
    assert_eq!(present(snapshots.last().unwrap()), [8 * PAGE_SIZE; 2]);
    // It joined at the first reading of the mappings after 200 ms.
    let first = snapshots.iter().find(|snapshot| snapshot.targets.len() == 2).unwrap();
    assert!(first.time <= MILLISECOND * 250, "{:?}", first.time);
}

#[test]
fn new_memory_of_a_target_is_known_and_sampled_before_the_next_survey() {
    // The second mapping begins in a block of the first one.
    let [old, new] = [(0, 9 * MIB), (9 * MIB, 64 * MIB)].map(|(start, end)| AddrRange::new(start, end).unwrap());
    let [small, large] = [&[old][..], &[old, new]].map(|ranges| target(1, ranges));
    let memory = Memory { pages: 2 * MIB / PAGE_SIZE, idle: true, hot: new, sampled: Vec::new() };
    let monitor = watch(vec![vec![small], vec![large]], memory, Duration::from_secs(1));
    let snapshots = &monitor.sink().snapshots;
    let first = snapshots.iter().find(|snapshot| present(snapshot) == [4 * MIB]).unwrap();
    assert!(first.time <= MILLISECOND * 250, "{:?}", first.time);
    assert!(monitor.probe().sampled.iter().any(|addr| new.contains(*addr)));
    let last = &snapshots.last().unwrap().targets[0];
    let hot = last.regions.iter().filter(|region| 2 * region.nr_accesses >= 10);
    assert!(hot.clone().count() > 0 && hot.clone().all(|region| new.intersection(region.range).is_some()), "{last:?}");
    let regions = last.regions.windows(2);
    assert!(regions.clone().all(|pair| pair[0].range.end() <= pair[1].range.start()), "{last:?}");
}

/// Watches a target of `old` pages that has `new` pages more 200 ms after the start, for this time, with an aggregation
/// interval of a second. Returns the length of each aggregation and the bytes that it found.
fn aggregations(old: u64, new: u64, time: Duration) -> Vec<(Duration, Vec<u64>)> {
    let [old, new] = [(0, old), (64 * MIB / PAGE_SIZE, new)]
        .map(|(start, pages)| AddrRange::new(start * PAGE_SIZE, (start + pages) * PAGE_SIZE).unwrap());
    let [small, large] = [&[old][..], &[old, new]].map(|ranges| target(1, ranges));
    let attributes = Attributes::new(MILLISECOND * 5, MILLISECOND * 1000, MILLISECOND * 200, 10, 100).unwrap();
    let memory = Memory { pages: u64::MAX, idle: false, hot: old, sampled: Vec::new() };
    let space = Space(vec![vec![small], vec![large]]);
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(1), space, memory, Kept::default());
    monitor.set_survey(SurveySettings { interval: MINUTE, early_gap: MINUTE, ..SurveySettings::default() });
    let mut now = Duration::ZERO;
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && now < time
    {
        now += after;
        next = monitor.step(now).unwrap();
    }
    assert_eq!(monitor.attributes(), attributes);
    let snapshots = monitor.sink().snapshots.iter();
    let found = snapshots.inspect(|snapshot| {
        assert!(snapshot.sampled_rounds <= snapshot.samples, "{snapshot:?}");
        assert_eq!(snapshot.aggregation, MILLISECOND * 5 * snapshot.samples);
        for region in &snapshot.targets[0].regions {
            // Neither rates nor ages change with the length of the aggregation.
            let is_hot = old.intersection(region.range).is_some();
            assert_eq!(region.nr_accesses, if is_hot { snapshot.samples } else { 0 }, "{snapshot:?}");
            let age = snapshot.aggregation * region.age;
            assert!(age <= snapshot.time, "{snapshot:?}");
            assert!(!is_hot || age + snapshot.aggregation >= snapshot.time, "{snapshot:?}");
        }
    });
    found.map(|snapshot| (snapshot.aggregation, present(snapshot))).collect()
}

#[test]
fn much_new_memory_ends_the_aggregation_and_is_in_its_snapshot() {
    let found = aggregations(100, 10, MILLISECOND * 2300);
    assert_eq!(found, [205, 1000, 1000].map(|length| (MILLISECOND * length, vec![110 * PAGE_SIZE])));
}

#[test]
fn little_new_memory_waits_for_the_end_of_the_aggregation() {
    let found = aggregations(100, 4, MILLISECOND * 2300);
    assert_eq!(found, vec![(MILLISECOND * 1000, vec![104 * PAGE_SIZE]); 2]);
}

/// Watches 64 MiB that surveys find idle, and of which samples find 5 MiB in use. Checks that the regions say so.
fn assert_hot_is_found(interval: Duration, time: Duration) {
    let hot = AddrRange::new(21 * MIB, 26 * MIB).unwrap();
    let all = AddrRange::new(0, 64 * MIB).unwrap();
    let memory = Memory { pages: all.pages(), idle: true, hot, sampled: Vec::new() };
    let monitor = watch_with_surveys(vec![vec![target(1, &[all])]], memory, interval, time);
    let last = &monitor.sink().snapshots.last().unwrap().targets[0];
    let (mut right, mut wrong) = (0, 0);
    for region in last.regions.iter().filter(|region| 2 * region.nr_accesses >= 10) {
        let inside = region.range.intersection(hot).map_or(0, AddrRange::size);
        right += inside;
        wrong += region.range.size() - inside;
    }
    assert!(right >= 4 * MIB && wrong <= MIB, "{right} bytes found, {wrong} others: {last:?}");
}

#[test]
fn a_part_of_idle_memory_that_turns_hot_is_found_before_the_next_survey() {
    assert_hot_is_found(MINUTE, Duration::from_secs(5));
}

#[test]
fn regions_that_samples_have_found_stay_when_a_survey_has_read_the_pages_before_that() {
    // The last survey is at 5 s.
    assert_hot_is_found(Duration::from_secs(5), Duration::from_millis(5200));
}

/// Processes, of which one is new at each look. The first has ended, which only a reading finds out.
struct Growing {
    readings: u32,
    looks: u32,
}

impl AddressSpace for Growing {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        self.readings += 1;
        Ok((self.readings.min(2)..3 + self.looks).map(|pid| target(pid, &[range(pid)])).collect())
    }

    fn look_for_new(&mut self, most: usize) -> Result<Vec<TargetSpace>, BoxError> {
        assert_eq!(most, 7);
        self.looks += 1;
        Ok(vec![target(2 + self.looks, &[range(2 + self.looks)])])
    }
}

#[test]
fn a_new_target_joins_without_a_reading_of_the_mappings_of_all_others() {
    for surveys in [false, true] {
        let memory = Memory { pages: 8, idle: true, hot: range(1), sampled: Vec::new() };
        let [sampling, aggregation] = [5, 50].map(|factor| MILLISECOND * factor);
        let attributes = Attributes::new(sampling, aggregation, MINUTE, 10, 100).unwrap();
        let space = Growing { readings: 0, looks: 0 };
        let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(1), space, memory, Kept::default());
        if surveys {
            monitor.set_survey(SurveySettings { interval: MINUTE, early_gap: MINUTE, ..SurveySettings::default() });
        }
        // What a reading costs does not hold up a look.
        monitor.set_update_gap(MINUTE);
        monitor.set_target_search(TargetSearch { gap: MILLISECOND * 100, most: 7 });
        let mut next = monitor.start().unwrap();
        let (mut now, mut counts) = (Duration::ZERO, Vec::new());
        while let Next::Step { after } = next
            && counts.len() < 3
        {
            now += after;
            next = monitor.step(now).unwrap();
            if monitor.work().looked {
                assert_eq!((monitor.work().joined, monitor.work().updated), (1, false), "{now:?}");
                let pids: std::collections::BTreeSet<_> =
                    monitor.regions().map(|region| region.range().start() >> 30).collect();
                counts.push(pids.len());
            }
        }
        assert_eq!(counts, [3, 4, 5], "surveys: {surveys}");
        assert!(now < MILLISECOND * 600, "{now:?}");
    }
}

/// Processes that join and end all the time: each lives for as many readings as there are processes at a time.
struct Crowd {
    at_a_time: u32,
    readings: u32,
}

impl AddressSpace for Crowd {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        self.readings += 1;
        Ok((self.readings..self.readings + self.at_a_time).map(|pid| target(pid, &[range(pid)])).collect())
    }
}

#[test]
fn a_survey_ends_while_targets_join_as_fast_as_they_are_read() {
    let memory = Memory { pages: 8, idle: true, hot: range(1), sampled: Vec::new() };
    let [sampling, aggregation, update] = [5, 50, 5].map(|factor| MILLISECOND * factor);
    let attributes = Attributes::new(sampling, aggregation, update, 10, 100).unwrap();
    let crowd = Crowd { at_a_time: 200, readings: 0 };
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(1), crowd, memory, Kept::default());
    // A part of a survey reads one target, and one joins after each part.
    let (interval, gap) = (MILLISECOND * 10, MILLISECOND * 5);
    monitor.set_survey(SurveySettings {
        interval,
        early_gap: MINUTE,
        part_blocks: 1,
        part_gap: gap,
        ..SurveySettings::default()
    });
    let mut now = Duration::ZERO;
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && monitor.sink().surveys < 3
        && now < MINUTE
    {
        now += after;
        next = monitor.step(now).unwrap();
    }
    assert_eq!(monitor.sink().surveys, 3, "after {now:?}");
    let last = monitor.sink().last.as_ref().unwrap();
    // Those that have ended during the survey are not listed. What they shared with the others counts once.
    let total = last.total.unwrap();
    assert!(last.targets.len() < 200, "{}", last.targets.len());
    assert_eq!((total.sums.figures.present, total.shared), (8 * PAGE_SIZE, 8 * PAGE_SIZE));
}
