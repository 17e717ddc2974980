//! The monitor on simulated memory. The simulated clock runs as fast as the machine allows.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm_core::{
    AccessProbe, Attributes, BoxError, Monitor, Next, Observation, Sample, Sink, Snapshot, TargetSpace,
};
use isotherm_record::Cost;
use isotherm_sim::{Pattern, SimClock, SimMemory};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::{Monitored, PhaseTruth, TakenSnapshot};

/// Runs the monitor over all phases of the pattern. CPU time in the snapshots is that of the monitor without
/// the probe.
///
/// # Errors
/// If the monitor fails. Simulated memory itself does not.
pub fn watch(pattern: &Pattern, attributes: Attributes, seed: u64) -> Result<Monitored> {
    let clock = SimClock::default();
    let memory = SimMemory::new(pattern.clone(), clock.clone(), seed);
    let ranges: Vec<_> = memory.areas().collect();
    let mut start = Duration::ZERO;
    let shared = Rc::new(pattern.clone());
    let phases = pattern.phases.iter().enumerate().map(|(nth, phase)| {
        let mapped = |area: usize| (!phase.unmapped.contains(&pattern.areas[area].name)).then_some(ranges[area]);
        let truth = PhaseTruth::new(&shared, nth, start, mapped);
        start += phase.time;
        truth
    });
    let phases = phases.collect();

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

/// Keeps the snapshots.
#[derive(Default)]
struct Keep {
    snapshots: Vec<TakenSnapshot>,
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
        Ok(())
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
        let cleared = self.memory.clear(samples);
        self.spent += began.elapsed();
        cleared
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let began = Instant::now();
        let read = self.memory.read(samples, answers);
        self.spent += began.elapsed();
        read
    }

    fn clears(&self) -> u64 {
        self.memory.clears()
    }
}
