//! A quota that is tuned to a goal settles, for plants of several kinds, with noise and delay.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, CgroupPressure, Condition, DryRunInspector, Feed, Gauges, Goal, Metric, Outcome, PressureWindow,
    Quota, Scheme, Schemes, Waiting, Weights, Work,
};
use isotherm_core::{BoxError, Sink, Snapshot};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64Mcg;

use crate::fixtures::{snapshot, target};

const MIB: f64 = (1 << 20) as f64;

/// What the quota acts on: takes the bytes acted on in a period and returns the metric.
type Plant = Box<dyn FnMut(f64) -> f64>;

/// A plant with delay and noise: it takes the bytes some periods late, and its metric is read with noise.
struct World {
    plant: Plant,
    delayed: VecDeque<f64>,
    acted: f64,
    noise: f64,
    rng: Pcg64Mcg,
    stalled: f64,
    value: f64,
    metric: Metric,
}

impl World {
    fn new(metric: Metric, delay: usize, noise: f64, plant: impl FnMut(f64) -> f64 + 'static) -> Rc<RefCell<Self>> {
        let rng = Pcg64Mcg::new(7);
        let delayed = VecDeque::from(vec![0.0; delay]);
        let plant: Plant = Box::new(plant);
        Rc::new(RefCell::new(Self { plant, delayed, acted: 0.0, noise, rng, stalled: 0.0, value: 0.0, metric }))
    }

    fn period(&mut self) {
        self.delayed.push_back(std::mem::take(&mut self.acted));
        let felt = self.delayed.pop_front().unwrap();
        self.value = (self.plant)(felt);
        self.stalled += self.noisy();
    }

    fn noisy(&mut self) -> f64 {
        let spread: f64 = (0..4).map(|_| self.rng.random_range(-1.0..1.0)).sum::<f64>() / 2.0;
        (self.value * (1.0 + self.noise * spread)).max(0.0)
    }
}

struct Shared(Rc<RefCell<World>>);

impl Gauges for Shared {
    fn read(&mut self, metric: &Metric, _snapshot: &Snapshot) -> Option<f64> {
        let mut world = self.0.borrow_mut();
        assert_eq!(*metric, world.metric);
        Some(if *metric == Metric::StallTime { world.stalled } else { world.noisy() })
    }
}

impl Actuator for Shared {
    fn supports(&mut self, _: Action, _: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            self.0.borrow_mut().acted += range.size() as f64;
            *outcome = Outcome::all(*range);
        }
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        Duration::ZERO
    }
}

/// Tunes a quota to a goal for this many periods of a second, and returns the metric of each.
fn run(world: &Rc<RefCell<World>>, target_value: f64, ceiling: Option<u64>, periods: u32) -> Vec<f64> {
    let metric = world.borrow().metric.clone();
    let goal = Goal::new(metric, target_value).unwrap();
    let quota = Quota::new(ceiling, None, Duration::from_secs(1), Weights::DEFAULT, vec![goal]).unwrap();
    let scheme = Scheme { quota, ..Scheme::new("tuned", Condition::ANY, Action::PageOut) };
    let mut schemes =
        Schemes::new(vec![scheme], Shared(Rc::clone(world)), DryRunInspector::default(), Shared(Rc::clone(world)))
            .unwrap();
    let step = |nth: u32| {
        // There is always more than the quota allows.
        schemes.aggregated(&snapshot(nth * 10, vec![target(1, &[(0, 1 << 34, 0, nth)], &[(0, 1 << 34, "")])])).unwrap();
        world.borrow_mut().period();
        world.borrow().value
    };
    (1..=periods).map(step).collect()
}

/// Asserts that the second half of a run stays at its goal: the mean within the share `near` of it, the standard
/// deviation within the share `swing`.
#[track_caller]
fn settled(values: &[f64], goal: f64, near: f64, swing: f64) {
    let late = &values[values.len() / 2..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    let deviation = (late.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / late.len() as f64).sqrt();
    assert!((mean / goal - 1.0).abs() <= near, "mean {mean} of goal {goal}");
    assert!(deviation / goal <= swing, "swings by {deviation} around {mean}, goal {goal}");
}

fn noise_of(rng: &mut impl Rng) -> f64 {
    rng.random_range(-1.0..1.0)
}

#[test]
fn settles_on_pressure_in_proportion_to_reclaimed_memory() {
    // The quotas that reach the goal are from a hundredth to a hundred times the first one.
    for per_mib in [2e-5, 1e-3, 0.2] {
        for delay in [0, 2] {
            let world = World::new(Metric::StallTime, delay, 0.1, move |acted| acted / MIB * per_mib);
            settled(&run(&world, 0.01, None, 300), 0.01, 0.05, 0.1);
        }
    }
}

#[test]
fn settles_on_pressure_that_rises_with_the_third_power() {
    // First idle memory is reclaimed, then memory that is needed.
    let world = World::new(Metric::StallTime, 1, 0.1, |acted| 0.02 * (acted / (100.0 * MIB)).powi(3));
    settled(&run(&world, 0.01, None, 400), 0.01, 0.1, 0.2);
}

#[test]
fn settles_on_free_memory_when_reclaimed_memory_is_read_back() {
    // Of 16 GiB, 10 % free at first; a hundredth of what was reclaimed is faulted in again each second.
    let mut reclaimed = 0.0;
    let world = World::new(Metric::FreeMemory, 1, 0.01, move |acted| {
        reclaimed = (reclaimed + acted) * 0.99;
        0.1 + reclaimed / (16384.0 * MIB)
    });
    settled(&run(&world, 0.3, None, 1500), 0.3, 0.05, 0.05);
}

#[test]
fn settles_on_free_memory_that_others_use_up() {
    // Others use up about 20 MiB each second.
    let mut free = 2000.0 * MIB;
    let mut rng = Pcg64Mcg::new(3);
    let world = World::new(Metric::FreeMemory, 0, 0.01, move |acted| {
        free = (free + acted - 20.0 * MIB * (1.0 + noise_of(&mut rng))).clamp(0.0, 16384.0 * MIB);
        free / (16384.0 * MIB)
    });
    settled(&run(&world, 0.2, None, 3000), 0.2, 0.1, 0.1);
}

#[test]
fn settles_on_a_working_set_that_is_read_back() {
    let mut missing: f64 = 0.0;
    let world = World::new(Metric::WorkingSetResident, 1, 0.005, move |acted| {
        missing = (missing + acted / (1000.0 * MIB)) * 0.8;
        (1.0 - missing).max(0.0)
    });
    settled(&run(&world, 0.9, None, 400), 0.9, 0.03, 0.03);
}

#[test]
fn settles_on_a_figure_of_the_user() {
    let world = World::new(Metric::Fed(Feed::Named("latency".into())), 3, 0.1, |acted| 5.0 + acted / (10.0 * MIB));
    settled(&run(&world, 20.0, None, 400), 20.0, 0.05, 0.1);
}

#[test]
fn a_goal_out_of_reach_raises_the_quota_to_its_ceiling() {
    let world = World::new(Metric::StallTime, 0, 0.0, |acted| acted / MIB * 1e-6);
    run(&world, 0.1, Some(64 << 20), 100);
    let felt = world.borrow().value;
    assert!((felt - 64e-6).abs() < 1e-9, "{felt}");
}

#[test]
fn nothing_is_done_in_a_period_that_begins_with_a_bound_reached() {
    let (waiting, window) = (Waiting::Some, PressureWindow::TenSeconds);
    let metric = Metric::CgroupPressure(CgroupPressure { cgroup: None, waiting, window });
    let acted = Rc::new(RefCell::new(Vec::new()));
    let by_period = Rc::clone(&acted);
    // The pressure of each period is read at the beginning of the next one.
    let world = World::new(metric, 0, 0.0, move |bytes| {
        by_period.borrow_mut().push(bytes);
        if (5..10).contains(&by_period.borrow().len()) { 0.001 } else { 0.0 }
    });
    run(&world, 0.001, None, 20);
    let acted = acted.borrow();
    for (period, bytes) in (1..).zip(acted.iter()) {
        assert_eq!(*bytes == 0.0, (6..=10).contains(&period), "{period}: {acted:?}");
    }
    assert!(acted[10] < acted[4], "it goes on with less: {acted:?}");
}
