//! The survey finds what a simulated pattern does, page by page.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::scheme::{PageInspector, PageKind};
use isotherm_core::survey::{ClearPages, PageBits, Survey, SurveySettings, SurveySnapshot};
use isotherm_core::{Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_sim::{Costs, Pattern, SimActuator, SimClock, SimMemory};
use rand_pcg::Pcg64Mcg;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Found {
    snapshot: Snapshot,
    surveys: Vec<SurveySnapshot>,
}

impl Sink for Found {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshot = snapshot.clone();
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys.push(survey.clone());
        Ok(())
    }
}

/// Monitors a pattern for this time with a survey each second.
fn monitor(pattern: &str, time: Duration, limits: SurveySettings) -> Found {
    let clock = SimClock::default();
    let memory = SimMemory::new(Pattern::parse(pattern).unwrap(), clock.clone(), 1);
    let mut monitor = Monitor::new(Attributes::default(), Pcg64Mcg::new(1), memory.clone(), memory, Found::default());
    monitor.set_survey(limits);
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && clock.now() < time
    {
        next = monitor.step(clock.pass(after)).unwrap();
    }
    std::mem::take(monitor.sink_mut())
}

const UNBOUNDED: SurveySettings = SurveySettings {
    longest_to_learn: Duration::MAX,
    interval: SECOND,
    part_blocks: usize::MAX,
    part_time: Duration::MAX,
    part_gap: Duration::ZERO,
    early_gap: Duration::ZERO,
    earliest: Duration::ZERO,
    target_share: 1000.0,
    set_again: Duration::from_nanos(400),
    clears: f64::INFINITY,
    clear_page: 0.016,
    panel: 1.0,
    draw: Duration::MAX,
    page: Duration::MAX,
};

/// 3 MiB that are touched once a second, in a mapping of 256 MiB: too slowly for samples of 5 ms.
const SLOW: &str = r#"
about = "a little slow memory beside cold memory"
area = [{ name = "cold", size = "256 MiB" }, { name = "slow", size = "3 MiB" }]
[[phase]]
time = "60 s"
touch = [{ area = "slow", every = "300 ms", order = "sequential" }]
"#;

#[test]
fn memory_that_samples_miss_is_found_to_the_page() {
    let found = monitor(SLOW, SECOND * 8, UNBOUNDED);
    for survey in &found.surveys[2..] {
        let total = survey.targets[0].total();
        assert_eq!(
            (total.figures.present, total.figures.touched, total.figures.unknown),
            (259 * MIB, 3 * MIB, 0),
            "{:?}",
            survey.time
        );
    }
    let regions = &found.snapshot.targets[0].regions;
    let touched: u64 = regions.iter().filter_map(|region| region.pages).map(|pages| pages.touched).sum();
    let in_use = regions.iter().filter(|region| region.pages.unwrap().touched > 0);
    assert_eq!((touched, in_use.map(|region| region.range.size()).sum::<u64>()), (3 * MIB, 3 * MIB));
}

#[test]
fn no_region_ends_up_without_pages_and_the_maximum_is_kept() {
    let found = monitor(SLOW, SECOND * 8, UNBOUNDED);
    let regions = &found.snapshot.targets[0].regions;
    assert!(regions.len() <= Attributes::default().max_regions());
    assert!(regions.iter().all(|region| region.pages.unwrap().present > 0));
    assert_eq!(regions.iter().map(|region| region.pages.unwrap().present).sum::<u64>(), 259 * MIB);
}

#[test]
fn the_bound_on_clears_is_kept_and_the_rest_is_unknown_at_first() {
    let hot = SLOW.replace(r#"area = "slow""#, r#"area = "cold""#).replace("300 ms", "100 ms");
    let limits = SurveySettings::default();
    let found = monitor(&hot, SECOND * 30, limits);
    for survey in &found.surveys {
        // So many pages are accessed again in a survey interval, unless most that were cleared before were not.
        assert!(survey.cost.clears <= 2 * 12_500, "{:?}", survey.cost);
    }
    let first = found.surveys[2].targets[0].total();
    assert!(first.figures.unknown > 128 * MIB, "{first:?}");
    // The part that is cleared stands for the rest.
    assert!(first.figures.touched.abs_diff(256 * MIB) <= 13 * MIB, "{first:?}");
    let last = found.surveys.last().unwrap().targets[0].total();
    // Samples at a fixed interval have a part of what may be cleared, so that it takes a while until all is known.
    assert!(last.figures.touched.abs_diff(256 * MIB) <= 13 * MIB && last.figures.unknown <= 64 * MIB, "{last:?}");
}

#[test]
fn hot_memory_is_sampled_and_costs_a_sixteenth() {
    let hot = SLOW.replace(r#"area = "slow""#, r#"area = "cold""#);
    let found = monitor(&hot, SECOND * 12, UNBOUNDED);
    let last = found.surveys.last().unwrap();
    assert_eq!(last.targets[0].total().figures.touched, 256 * MIB);
    assert_eq!(last.cost.clears, 65_536 / 16);
}

#[test]
fn memory_that_the_first_survey_has_cleared_is_sampled_before_the_second() {
    let hot = SLOW.replace("300 ms", "5 ms");
    let found = monitor(&hot, SECOND * 2, SurveySettings { interval: SECOND * 30, ..UNBOUNDED });
    assert_eq!(found.surveys.len(), 1);
    let regions = &found.snapshot.targets[0].regions;
    let sampled = regions.iter().filter(|region| region.nr_samples > 0);
    let sampled: u64 = sampled.map(|region| region.pages.unwrap().present).sum();
    assert_eq!(sampled, 259 * MIB);
}

#[test]
fn windows_count_what_was_accessed_within_them() {
    let pattern = r#"
about = "first one area, then the other"
area = [{ name = "memory", size = "64 MiB" }, { name = "other", size = "16 MiB" }]
[[phase]]
time = "4 s"
touch = [{ area = "memory", every = "100 ms", order = "sequential" }]
[[phase]]
time = "60 s"
touch = [{ area = "other", every = "100 ms", order = "sequential" }]
"#;
    let found = monitor(pattern, SECOND * 12, UNBOUNDED);
    let last = found.surveys.last().unwrap();
    assert!(last.time >= SECOND * 11, "{:?}", last.time);
    let total = last.targets[0].total();
    let [second, .., longest] = total.within;
    assert_eq!((second, total.figures.touched, longest), (16 * MIB, 16 * MIB, 80 * MIB));
    // Of memory that was hot for several surveys, a random part stands for the whole: its end is seen in that part.
    let all = 80 * MIB - MIB / 4..=80 * MIB;
    assert!(total.within[2] == 16 * MIB && all.contains(&total.within[3]), "5 s and 10 s: {:?}", total.within);
    assert_eq!(last.targets[0].by_block.iter().map(|block| u64::from(block.pages.present)).sum::<u64>(), 80 * 256);
}

#[test]
fn idle_ranges_are_those_that_no_survey_found_accessed() {
    let found = monitor(SLOW, SECOND * 8, UNBOUNDED);
    let target = &found.snapshot.targets[0];
    let history = found.snapshot.history(target.id).unwrap();
    let all = isotherm_core::AddrRange::new(0, u64::MAX).unwrap();
    let idle = |time| history.idle_ranges(all, time).iter().map(|(range, _)| range.size()).sum::<u64>();
    assert_eq!(idle(SECOND * 5), 256 * MIB);
    assert_eq!(idle(SECOND * 60), 0);
    assert_eq!(history.idle_ranges(all, SECOND * 5)[0].0, target.mappings[0].range);
}

#[test]
fn memory_in_use_and_idle_memory_by_turns_do_not_exceed_the_maximum_of_regions() {
    // Every second page is touched, and the regions are few.
    let pattern = r#"
about = "every second page"
area = [{ name = "memory", size = "32 MiB" }]
[[phase]]
time = "60 s"
touch = [{ area = "memory", every = "50 ms", order = { strided = 2 } }]
"#;
    let clock = SimClock::default();
    let memory = SimMemory::new(Pattern::parse(pattern).unwrap(), clock.clone(), 1);
    let attributes = Attributes::new(Duration::from_millis(5), Duration::from_millis(100), SECOND, 10, 20).unwrap();
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::new(1), memory.clone(), memory, Found::default());
    monitor.set_survey(UNBOUNDED);
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && clock.now() < SECOND * 6
    {
        next = monitor.step(clock.pass(after)).unwrap();
        assert!((1..=20).contains(&monitor.regions().count()), "{:?}", clock.now());
    }
    let total = monitor.sink().surveys.last().unwrap().targets[0].total();
    assert_eq!((total.figures.present, total.figures.touched), (32 * MIB, 16 * MIB));
}

#[test]
fn a_page_that_a_survey_has_cleared_is_young_once_it_is_touched_again() {
    let text = "about = \"a\"\narea = [{ name = \"a\", size = \"2 MiB\" }]\n\
                [[phase]]\ntime = \"1000s\"\ntouch = [{ area = \"a\", every = \"8s\" }]\n";
    let clock = SimClock::default();
    let mut memory = SimMemory::new(Pattern::parse(text).unwrap(), clock.clone(), 1);
    let costs = Costs { young: SECOND * 8, ..Costs::default() };
    let mut machine = SimActuator::new(memory.clone(), clock.clone(), costs);
    let all = memory.areas().next().unwrap();
    let mut young = || {
        let mut found = Vec::new();
        machine.pages(SimMemory::ID, &[all], PageKind::Young, &mut found).unwrap();
        found.len()
    };
    clock.pass(SECOND * 16);
    assert_eq!(young(), 512);
    let mut pages = vec![ClearPages { start: all.start(), pages: PageBits::ALL, ..ClearPages::default() }];
    Survey::clear(&mut memory, SimMemory::ID, &mut pages).unwrap();
    assert_eq!(young(), 0);
    clock.pass(SECOND * 2);
    assert!((127..=129).contains(&young()), "{}", young());
}
