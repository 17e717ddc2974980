//! The monitor on simulated memory. The simulated clock runs as fast as the machine allows.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm_core::survey::{BlockPages, ClearPages, Rest, Survey, SurveyPart};
use isotherm_core::{
    AccessProbe, AddrRange, AttributeOptions, Attributes, BoxError, Budget, Granularity, IntervalsGoal, Monitor, Next,
    Observation, PaceOptions, Pacer, Sample, Sink, Snapshot, Start, StepWork, SurveyInterval, TargetId, TargetSpace,
};
use isotherm_kernel::monitor_cpu_time;
use isotherm_record::Cost;
use isotherm_sim::{Pattern, SimClock, SimMemory};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::large::{CLEAR_PAGE, CLEAR_RANGE, READ_BLOCK, ROUND, SAMPLE, SimulatedCpu};
use crate::{Monitored, PhaseTruth, TakenSnapshot};

/// Runs the monitor over all phases of the pattern. CPU time in the snapshots is that of the monitor without
/// the probe.
///
/// # Errors
/// If the monitor fails. Simulated memory itself does not.
pub fn watch(pattern: &Pattern, attributes: Attributes, seed: u64) -> Result<Monitored> {
    let clock = SimClock::default();
    let memory = SimMemory::new(pattern.clone(), clock.clone(), seed);
    let phases = phases(pattern, &memory);
    let probe = Timed { memory: memory.clone(), spent: Duration::ZERO };
    let rng = Pcg64Mcg::seed_from_u64(seed);
    let mut monitor = Monitor::new(attributes, rng, memory, probe, Keep::default());
    let mut next = monitor.start()?;
    while let Next::Step { after } = next
        && clock.now() < pattern.time()
    {
        let began = Instant::now();
        let before = monitor.probe().spent;
        next = monitor.step(clock.pass(after))?;
        let spent = monitor.probe().spent - before;
        let took = began.elapsed().saturating_sub(spent);
        monitor.sink_mut().took += took;
    }
    let snapshots = std::mem::take(&mut monitor.sink_mut().snapshots);
    Ok(Monitored { phases, snapshots, surveys: Vec::new() })
}

/// The truth of each phase.
fn phases(pattern: &Pattern, memory: &SimMemory) -> Vec<PhaseTruth> {
    let ranges: Vec<_> = memory.areas().collect();
    let mut start = Duration::ZERO;
    let shared = Rc::new(pattern.clone());
    let phases = pattern.phases.iter().enumerate().map(|(nth, phase)| {
        let mapped = |area: usize| (!phase.unmapped.contains(&pattern.areas[area].name)).then_some(ranges[area]);
        let truth = PhaseTruth::new(&shared, nth, start, mapped);
        start += phase.time;
        truth
    });
    phases.collect()
}

/// Runs the monitor over all phases of the pattern with surveys and within a budget, as it runs by default, but for the
/// panel, whose part of the budget is left out. What the kernel does takes simulated CPU time, `slow` times that of
/// [`large`](crate::large), and so does what the monitor computes: the same seed gives the same result, so that two
/// builds can be compared. CPU time in the snapshots is the sum.
///
/// # Errors
/// If the monitor fails.
pub fn watch_within(pattern: &Pattern, budget: Budget, slow: f64, seed: u64) -> Result<Monitored> {
    let clock = SimClock::default();
    let memory = SimMemory::new(pattern.clone(), clock.clone(), seed);
    let phases = phases(pattern, &memory);
    let cpu = SimulatedCpu::default();
    let probe = Charged { memory: memory.clone(), cpu: cpu.clone(), slow };
    let attributes = AttributeOptions { update: Some(UPDATE), ..AttributeOptions::default() };
    let attributes = attributes.resolve(Granularity::Page)?;
    let mut pacer = Pacer::new(PaceOptions {
        budget: Budget { cpu: budget.cpu * BESIDE_PANEL, ..budget },
        start: Start::default(),
        bounds_samples: true,
        has_budget: true,
        samples: true,
        survey: Some(SurveyInterval::Auto),
        goal: Some(IntervalsGoal::default().by_lengths()),
        longest_aggregation: None,
    });
    let rng = Pcg64Mcg::seed_from_u64(seed);
    let mut monitor = Monitor::new(attributes, rng, memory, probe, Keep::default());
    monitor.set_survey(pacer.survey_settings(attributes));
    monitor.read_by_lengths();
    let mut next = monitor.start()?;
    let mut known = 0;
    loop {
        let work = monitor.work();
        let is_snapshot = monitor.sink().snapshots.len() > known;
        let reported = if is_snapshot { monitor.sink().snapshots.last() } else { None };
        let took = cpu.take().0 + own_time(work, reported.map_or(0, |snapshot| snapshot.regions.len()));
        monitor.sink_mut().took += took;
        pacer.stepped(clock.now() + took, work, took);
        if is_snapshot {
            known = monitor.sink().snapshots.len();
            let snapshot = monitor.sink_mut().last.take();
            if let Some(new) = snapshot.and_then(|snapshot| pacer.aggregated(&snapshot, monitor.attributes())) {
                monitor.set_attributes(new);
            }
        }
        let attributes = monitor.attributes();
        if work.survey.is_some() || work.updated || is_snapshot {
            monitor.set_survey(pacer.survey_settings(attributes));
            monitor.set_update_gap(pacer.update_gap(attributes));
            monitor.set_sampling_stride(pacer.every(attributes));
        }
        let Next::Step { after } = next else { break };
        if clock.now() >= pattern.time() {
            break;
        }
        next = monitor.step(clock.pass(after.max(took)))?;
    }
    let snapshots = std::mem::take(&mut monitor.sink_mut().snapshots);
    Ok(Monitored { phases, snapshots, surveys: Vec::new() })
}

/// The CPU time that the monitor takes for a step, beside the kernel's: the means of 2,000 steps of a release build
/// (`frequencies --simulated --patterns 1`, November 2026). `reported` regions are those of a snapshot that it made.
fn own_time(work: StepWork, reported: usize) -> Duration {
    const STEP: f64 = 3e-6;
    const READ: f64 = 53e-9;
    const CHOSEN: f64 = 31e-9;
    const BLOCK: f64 = 4.1e-6;
    const REGION: f64 = 2.2e-6;
    let blocks = work.survey.map_or(0, |survey| survey.read);
    Duration::from_secs_f64(
        STEP + READ * work.samples as f64
            + CHOSEN * work.chosen as f64
            + BLOCK * blocks as f64
            + REGION * reported as f64,
    )
}

/// Clearing the page of a sample, and what clearing the pages of a round takes beside that: what calls of the kernel
/// for single pages took in a run of `frequencies` (`perf record`, November 2026, on a slow machine).
const CLEAR_SAMPLE: Duration = Duration::from_micros(5);
const CLEAR_ROUND: Duration = Duration::from_micros(50);

/// The part of the budget that the panel leaves.
const BESIDE_PANEL: f64 = 0.75;

/// The update interval of runs with surveys.
const UPDATE: Duration = Duration::from_millis(200);

/// Keeps the snapshots.
#[derive(Default)]
struct Keep {
    snapshots: Vec<TakenSnapshot>,
    last: Option<Snapshot>,
    /// CPU time of the monitor since the last snapshot.
    took: Duration,
}

impl Sink for Keep {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        let cost = Cost {
            rounds: snapshot.rounds,
            reads: snapshot.reads,
            max_reads: snapshot.max_reads,
            clears: snapshot.clears,
            cpu_ns: std::mem::take(&mut self.took).as_nanos() as u64,
            ..Cost::default()
        };
        let regions = snapshot.targets.iter().flat_map(|target| target.regions.iter().copied()).collect();
        self.snapshots.push(TakenSnapshot {
            time: snapshot.time,
            aggregation: snapshot.aggregation,
            samples: snapshot.samples,
            regions,
            cost,
        });
        self.last = Some(snapshot.clone());
        Ok(())
    }
}

/// Simulated memory that charges what the kernel would take.
struct Charged {
    memory: SimMemory,
    cpu: SimulatedCpu,
    slow: f64,
}

impl Charged {
    fn charge(&self, kernel: Duration, began: Duration) {
        self.cpu.charge(kernel.mul_f64(self.slow), began);
    }
}

impl AccessProbe for Charged {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        self.memory.update(targets)
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        let cleared = AccessProbe::clear(&mut self.memory, samples);
        self.charge(CLEAR_ROUND + CLEAR_SAMPLE * samples.len() as u32, began);
        cleared
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        let read = AccessProbe::read(&mut self.memory, samples, answers);
        self.charge(ROUND + SAMPLE * samples.len() as u32, began);
        read
    }

    fn clears(&self) -> u64 {
        self.memory.clears()
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

impl Survey for Charged {
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let began = monitor_cpu_time();
        let before = blocks.len();
        let rest = Survey::read(&mut self.memory, target, part, blocks);
        self.charge(READ_BLOCK * (blocks.len() - before) as u32, began);
        rest
    }

    fn look(
        &mut self,
        target: &TargetSpace,
        ranges: &[AddrRange],
        most: usize,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        let before = blocks.len();
        let looked = self.memory.look(target, ranges, most, blocks);
        self.charge(READ_BLOCK * (blocks.len() - before) as u32, began);
        looked
    }

    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let began = monitor_cpu_time();
        let ranges = blocks.len() as u32;
        let cleared = Survey::clear(&mut self.memory, target, blocks);
        let pages = cleared.as_ref().map_or(0, |&pages| pages);
        self.charge(CLEAR_RANGE * ranges + CLEAR_PAGE * pages as u32, began);
        cleared
    }
}

/// Simulated memory that measures its own CPU time, which is not the monitor's.
struct Timed {
    memory: SimMemory,
    spent: Duration,
}

impl AccessProbe for Timed {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        self.memory.update(targets)
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        let began = Instant::now();
        let cleared = AccessProbe::clear(&mut self.memory, samples);
        self.spent += began.elapsed();
        cleared
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let began = Instant::now();
        let read = AccessProbe::read(&mut self.memory, samples, answers);
        self.spent += began.elapsed();
        read
    }

    fn clears(&self) -> u64 {
        self.memory.clears()
    }
}
