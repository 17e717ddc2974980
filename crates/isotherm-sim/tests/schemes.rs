//! Schemes on simulated memory: the monitor, the schemes and the machine that they act on together.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Condition, Filter, FilterKind, Goal, Metric, PageKind, Quota, Report, Scheme, Schemes,
    Statistics, Watermarks, Weights,
};
use isotherm_core::survey::SurveySettings;
use isotherm_core::{Attributes, Monitor, Next, PAGE_SIZE, Snapshot};
use isotherm_sim::{Costs, FAST, FastNode, Pattern, SLOW, SimActuator, SimClock, SimMemory};
use rand_pcg::Pcg64Mcg;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// A simulated machine on which schemes run.
struct World {
    clock: SimClock,
    monitor: Monitor<SimMemory, SimMemory, Schemes<SimActuator, SimActuator, SimActuator>, Pcg64Mcg>,
    machine: SimActuator,
    next: Next,
    /// For how long nothing was monitored, because all schemes slept.
    slept: Duration,
}

impl World {
    fn new(pattern: Pattern, costs: Costs, schemes: Vec<Scheme>) -> Self {
        let clock = SimClock::default();
        let memory = SimMemory::new(pattern, clock.clone(), 1);
        let machine = SimActuator::new(memory.clone(), clock.clone(), costs);
        let schemes = Schemes::new(schemes, machine.clone(), machine.clone(), machine.clone()).unwrap();
        let mut monitor = Monitor::new(Attributes::default(), Pcg64Mcg::new(1), memory.clone(), memory, schemes);
        let next = monitor.start().unwrap();
        Self { clock, monitor, machine, next, slept: Duration::ZERO }
    }

    /// Drives the monitor for this time. While all schemes sleep, nothing is monitored.
    fn run(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            if let Some(until) = self.monitor.sink().sleeps_until() {
                let asleep = until.min(end) - self.clock.now();
                self.slept += asleep;
                let now = self.clock.pass(asleep);
                self.monitor.sink_mut().look(now, &Snapshot::default());
                if self.monitor.sink().sleeps_until().is_none() {
                    self.next = self.monitor.resume(self.clock.now()).unwrap();
                }
                continue;
            }
            let Next::Step { after } = self.next else { panic!("the target never ends") };
            self.next = self.monitor.step(self.clock.pass(after)).unwrap();
        }
    }

    fn total(&self) -> &Statistics {
        &self.monitor.sink().reports().next().unwrap().total
    }
}

fn hot_in_cold() -> Pattern {
    Pattern::shipped("hot-small-in-huge").unwrap()
}

/// 64 MiB of which each page is touched about once in `every`.
fn uniform(every: &str, order: &str) -> Pattern {
    let text = format!(
        "about = \"uniform\"\n[[area]]\nname = \"a\"\nsize = \"64 MiB\"\n\
         [[phase]]\ntime = \"10000s\"\ntouch = [{{ area = \"a\", every = \"{every}\", order = \"{order}\" }}]\n"
    );
    Pattern::parse(&text).unwrap()
}

fn idle(age: Duration) -> Condition {
    Condition {
        rate: ClosedInterval::new(0.0, 0.0).unwrap(),
        age: ClosedInterval::new(age, Duration::MAX).unwrap(),
        ..Condition::ANY
    }
}

fn prcl() -> Scheme {
    Scheme::new("prcl", idle(SECOND * 5), Action::PageOut)
}

#[test]
fn proactive_reclamation_takes_cold_memory_and_leaves_hot_memory() {
    let mut world = World::new(hot_in_cold(), Costs::default(), vec![prcl()]);
    world.run(SECOND * 11);
    let cold = world.machine.resident("cold below").unwrap() + world.machine.resident("cold above").unwrap();
    assert!(cold < 252 * MIB / 20, "{cold} bytes of 252 MiB cold memory are left");
    assert_eq!(world.machine.resident("hot"), Some(4 * MIB));
    // Until a border is found, a few hot pages are reclaimed and read back.
    assert!(world.machine.faults() < 100, "{} faults", world.machine.faults());
}

#[test]
fn reclaimed_memory_is_read_back_when_it_is_touched() {
    let mut world = World::new(
        Pattern::shipped("periodic").unwrap(),
        Costs::default(),
        vec![Scheme { condition: idle(SECOND), ..prcl() }],
    );
    world.run(SECOND * 5);
    assert!(world.machine.resident("sometimes").unwrap() < 6 * MIB, "cold for three seconds");
    world.run(SECOND * 3);
    assert_eq!(world.machine.resident("sometimes"), Some(64 * MIB), "hot again");
    assert!(world.machine.faults() > 58 * MIB / PAGE_SIZE);
}

#[test]
fn a_quota_bounds_what_is_reclaimed() {
    let quota = Quota::new(Some(2 * MIB), None, SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    let mut world = World::new(hot_in_cold(), Costs::default(), vec![Scheme { quota, ..prcl() }]);
    world.run(SECOND * 11);
    let applied = world.total().applied_bytes;
    assert!((10 * MIB..=14 * MIB).contains(&applied), "{applied} bytes in six seconds");
    assert_eq!(
        world.machine.resident("cold below").unwrap() + world.machine.resident("cold above").unwrap(),
        252 * MIB - applied
    );
}

#[test]
fn huge_pages_are_made_of_hot_memory() {
    let condition = Condition { rate: ClosedInterval::new(0.5, 1.0).unwrap(), ..Condition::ANY };
    let mut world = World::new(hot_in_cold(), Costs::default(), vec![Scheme::new("ethp", condition, Action::Collapse)]);
    world.run(SECOND * 5);
    assert!((1..=3).contains(&world.machine.huge_pages()), "{} huge pages in 4 MiB", world.machine.huge_pages());
}

#[test]
fn young_pages_are_not_reclaimed() {
    // Each page is touched every two seconds: too seldom for samples of one page in each region.
    let young = Filter { kind: FilterKind::Pages(PageKind::Young), matching: true, allow: false };
    let costs = Costs { young: SECOND * 5 / 2, ..Costs::default() };
    let without = Scheme { condition: idle(SECOND * 3), ..prcl() };
    let with = Scheme { filters: vec![young], ..without.clone() };
    let run = |scheme: Scheme| {
        let mut world = World::new(uniform("2s", "sequential"), costs, vec![scheme]);
        world.run(SECOND * 10);
        (world.machine.faults(), world.total().applied_bytes, world.total().rejected_bytes)
    };
    let (faults, applied, rejected) = run(without);
    assert!(faults > 10_000 && applied > 60 * MIB && rejected == 0, "{faults} {applied}");
    let (faults, applied, rejected) = run(with);
    assert!(faults == 0 && applied == 0 && rejected > 60 * MIB, "{faults} {applied} {rejected}");
}

#[test]
fn watermarks_stop_reclaiming_when_enough_is_free() {
    let marks = Watermarks::new(Metric::FreeMemory, SECOND / 10, 0.4, 0.3, 0.0).unwrap();
    let quota = Quota::new(Some(16 * MIB), None, SECOND / 2, Weights::DEFAULT, Vec::new()).unwrap();
    let scheme = Scheme { watermarks: Some(marks), quota, condition: idle(SECOND), ..prcl() };
    let mut world = World::new(hot_in_cold(), Costs::default(), vec![scheme]);
    world.run(SECOND * 10);
    let free = world.total().applied_bytes as f64 / (256 * MIB) as f64;
    assert!((0.4..0.5).contains(&free), "{free} of all memory is free");
    assert!(world.monitor.sink().sleeps_until().is_some());
    assert!(world.slept > SECOND * 5, "the time without monitoring: {:?}", world.slept);
}

#[test]
fn a_sleeping_scheme_wakes_when_memory_is_needed() {
    // All memory is touched from the twelfth second on, so that less is free.
    let text = r#"
        about = "cold, then hot, then cold"
        [[area]]
        name = "a"
        size = "64 MiB"
        [[phase]]
        time = "12s"
        [[phase]]
        time = "2s"
        touch = [{ area = "a", every = "10ms" }]
        [[phase]]
        time = "20s"
    "#;
    let marks = Watermarks::new(Metric::FreeMemory, SECOND, 0.4, 0.3, 0.0).unwrap();
    let scheme = Scheme { watermarks: Some(marks), condition: idle(SECOND * 2), ..prcl() };
    let mut world = World::new(Pattern::parse(text).unwrap(), Costs::default(), vec![scheme]);
    world.run(SECOND * 11);
    assert!(world.monitor.sink().sleeps_until().is_some() && world.machine.faults() == 0);
    let before = world.total().applied_bytes;
    world.run(SECOND * 13);
    assert!(world.machine.faults() > 10_000);
    assert!(world.total().applied_bytes > before + 20 * MIB, "the scheme reclaimed more");
    assert!(world.monitor.sink().sleeps_until().is_some());
}

#[test]
fn a_goal_of_stall_time_settles() {
    // Each page is touched every 100 seconds on average: the more pages are reclaimed, the more faults there are.
    let goal = Goal::new(Metric::StallTime, 0.0005).unwrap();
    let quota = Quota::new(None, None, SECOND, Weights::DEFAULT, vec![goal]).unwrap();
    let scheme = Scheme { quota, condition: idle(Duration::ZERO), ..prcl() };
    let mut world = World::new(uniform("100s", "random"), Costs::default(), vec![scheme]);
    let mut each = Vec::new();
    for _ in 0..50 {
        let before = world.machine.faults();
        world.run(SECOND * 20);
        each.push((world.machine.faults() - before) as f64 / 20.0);
    }
    // A fault takes 10 µs: 50 faults in a second take half a millisecond.
    let late = &each[25..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((45.0..55.0).contains(&mean), "{mean} faults a second, {each:?}");
    assert!(late.iter().all(|faults| (35.0..65.0).contains(faults)), "{each:?}");
}

#[test]
fn the_same_seed_makes_the_same_run() {
    let run = || {
        let mut world = World::new(Pattern::shipped("stairs").unwrap(), Costs::default(), vec![prcl()]);
        world.run(SECOND * 8);
        (world.total().clone(), world.machine.faults())
    };
    assert_eq!(run(), run());
}

impl World {
    /// The same with a survey each second that clears all pages.
    fn surveyed(pattern: &str, costs: Costs, schemes: Vec<Scheme>) -> Self {
        let mut world = Self::new(Pattern::parse(pattern).unwrap(), costs, schemes);
        world.monitor.set_survey(SurveySettings { target_share: 1000.0, ..SurveySettings::default() });
        world.next = world.monitor.start().unwrap();
        world
    }

    fn report(&self) -> &Report {
        self.monitor.sink().reports().next().unwrap()
    }
}

/// 32 MiB in use, 32 MiB that is touched once in 8 seconds, and 64 MiB that is never touched.
const IN_TURNS: &str = r#"
    about = "hot, in turns, cold"
    area = [{ name = "hot", size = "32 MiB" }, { name = "turns", size = "32 MiB" }, { name = "cold", size = "64 MiB" }]
    [[phase]]
    time = "1000s"
    touch = [
        { area = "hot", every = "100 ms", order = "sequential" },
        { area = "turns", every = "8 s", order = "sequential" },
    ]
"#;

#[test]
fn with_a_survey_what_was_reclaimed_is_not_advised_again() {
    let scheme = Scheme { condition: idle(SECOND * 12), ..prcl() };
    let mut world = World::surveyed(IN_TURNS, Costs::default(), vec![scheme]);
    world.run(SECOND * 60);
    let resident = |area| world.machine.resident(area).unwrap();
    assert_eq!((resident("hot"), resident("turns"), resident("cold")), (32 * MIB, 32 * MIB, 0));
    assert_eq!((world.machine.faults(), world.total().tried_bytes), (0, 64 * MIB), "each page was advised once");
    assert_eq!((world.total().watched_bytes, world.total().returned_bytes), (64 * MIB, 0));
    assert_eq!(world.report().quota_share, None);
}

#[test]
fn with_a_survey_memory_in_use_is_reclaimed_ever_more_rarely_and_a_quota_slows_its_scheme() {
    // Reclaimed after 4 seconds, the memory that is touched once in 8 seconds comes back within 4 seconds.
    let run = |pattern: &str, quota: Quota| {
        let scheme = Scheme { condition: idle(SECOND * 4), quota, ..prcl() };
        let mut world = World::surveyed(pattern, Costs::default(), vec![scheme]);
        world.run(SECOND * 200);
        world
    };
    let quota = Quota::new(Some(8 * MIB), None, SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    let slowed = run(IN_TURNS, quota);
    let free = run(IN_TURNS, Quota::UNLIMITED);
    assert!(free.total().returned_bytes * 2 > free.total().watched_bytes, "{:?}", free.total());
    let each_time = 32 * MIB / PAGE_SIZE * (200 / 8);
    let (slowed_faults, free_faults) = (slowed.machine.faults(), free.machine.faults());
    assert!(free_faults * 3 < each_time, "{free_faults} of {each_time}");
    assert!(slowed_faults * 2 < free_faults, "{slowed_faults} {free_faults}");
    assert!(slowed.report().quota_share.is_some_and(|share| share < 0.5), "{:?}", slowed.report());
    assert_eq!(slowed.machine.resident("cold"), Some(0), "cold memory is reclaimed all the same");
}

#[test]
fn with_a_survey_memory_in_use_is_promoted_and_memory_that_is_read_once_a_minute_is_not() {
    let pattern = r#"
        about = "cold, in use, read once a minute"
        area = [
            { name = "cold", size = "64 MiB" }, { name = "used", size = "16 MiB" }, { name = "read", size = "32 MiB" },
        ]
        [[phase]]
        time = "1000s"
        touch = [{ area = "used", every = "1 s" }, { area = "read", every = "60 s" }]
    "#;
    let costs = Costs { fast: Some(FastNode { size: 64 * MIB, kept: 0 }), ..Costs::default() };
    let up = Scheme::new("up", Condition::ANY, Action::Promote);
    let down = Scheme::new("down", idle(SECOND * 10), Action::Demote);
    let mut world = World::surveyed(pattern, costs, vec![up, down]);
    assert_eq!(world.machine.on_node("used", SLOW), Some(16 * MIB));
    world.run(SECOND * 150);
    assert_eq!(world.machine.on_node("used", FAST), Some(16 * MIB));
    assert_eq!(world.machine.on_node("read", FAST), Some(0));
    assert_eq!(world.machine.on_node("cold", SLOW), Some(64 * MIB));
}

#[test]
fn with_a_survey_memory_keeps_its_age_when_a_part_beside_it_comes_into_use() {
    // Each 32 MiB: four landings that are never used, and of the steps the first, which is used until the third second,
    // and the last, which is used from the ninth second on.
    let cold = Condition {
        size: ClosedInterval::new(2 * MIB, u64::MAX).unwrap(),
        rate: ClosedInterval::new(0.0, 0.0).unwrap(),
        age: ClosedInterval::new(SECOND * 7, Duration::MAX).unwrap(),
        hz: Condition::ANY.hz,
    };
    let [sampling, aggregation] = [50, 1000].map(Duration::from_millis);
    for survey in [1000, 1700].map(Duration::from_millis) {
        let scheme = Scheme { inside: true, ..Scheme::new("cold", cold, Action::NoHugePage) };
        let mut world = World::surveyed(include_str!("../patterns/stairs.toml"), Costs::default(), vec![scheme]);
        let settings = SurveySettings { target_share: 1000.0, interval: survey, ..SurveySettings::default() };
        world.monitor.set_survey(settings);
        world.monitor.set_attributes(Attributes::default().with_intervals(sampling, aggregation).unwrap());
        world.run(SECOND * 9);
        assert_eq!(world.total().applied_bytes, 160 * MIB, "{survey:?}");
        world.run(SECOND * 3 - sampling);
        assert_eq!(world.total().applied_bytes, 192 * MIB, "{survey:?}");
    }
}
