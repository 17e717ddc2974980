//! Test doubles for the monitor: scripted mappings, scripted answers, and a sink that keeps everything.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Granularity, Layout, Mapping, Monitor, Next,
    Observation, PAGE_SIZE, Round, Sample, Sink, Snapshot, TargetId, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

pub const SAMPLING: Duration = Duration::from_millis(5);

/// Attributes with `samples` samples in an aggregation and `aggregations` aggregations from one update to the next.
pub fn attributes(samples: u32, aggregations: u32, min: usize, max: usize) -> Attributes {
    let aggregation = SAMPLING * samples;
    Attributes::new(SAMPLING, aggregation, aggregation * aggregations, min, max).unwrap()
}

/// A target with these mappings, given in pages.
pub fn target(id: u32, pages: &[(u64, u64)]) -> TargetSpace {
    let mappings: Arc<[Mapping]> = pages
        .iter()
        .map(|&(start, end)| Mapping::anonymous(AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()))
        .collect();
    TargetSpace { id: TargetId::process(id, Duration::ZERO), layout: Layout::Process, mappings }
}

/// Returns one list of targets after the other, and then the last one again and again.
pub struct ScriptedSpace(pub Vec<Vec<TargetSpace>>);

impl AddressSpace for ScriptedSpace {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        Ok(if self.0.len() > 1 { self.0.remove(0) } else { self.0[0].clone() })
    }
}

/// Answers by a function of the round and the page.
pub struct TestProbe<F> {
    pub answer: F,
    pub granularity: Granularity,
    /// The round that is read next, counted from 0. [`run`] sets it.
    pub round: Rc<Cell<u32>>,
    pub clears: u64,
    pub most_reads: Rc<RefCell<usize>>,
}

impl<F: FnMut(u32, Sample) -> Observation> TestProbe<F> {
    pub fn new(answer: F) -> Self {
        Self { answer, granularity: Granularity::Page, round: Rc::default(), clears: 0, most_reads: Rc::default() }
    }
}

impl<F: FnMut(u32, Sample) -> Observation> AccessProbe for TestProbe<F> {
    fn granularity(&self) -> Granularity {
        self.granularity
    }

    fn update(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        self.clears += samples.len() as u64;
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let mut most = self.most_reads.borrow_mut();
        *most = samples.len().max(*most);
        for (sample, answer) in samples.iter().zip(answers) {
            *answer = (self.answer)(self.round.get(), *sample);
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        self.clears
    }
}

/// Keeps all that it is given, and the order of the calls.
#[derive(Default)]
pub struct TestSink {
    pub hooks: Vec<&'static str>,
    pub rounds: Vec<Round>,
    pub snapshots: Vec<Snapshot>,
}

impl Sink for TestSink {
    fn start(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        self.hooks.push("start");
        Ok(())
    }

    fn sampled(&mut self, round: Round) -> Result<(), BoxError> {
        self.hooks.push("sampled");
        self.rounds.push(round);
        Ok(())
    }

    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.hooks.push("aggregated");
        self.snapshots.push(snapshot.clone());
        Ok(())
    }

    fn end(&mut self) -> Result<(), BoxError> {
        self.hooks.push("end");
        Ok(())
    }
}

pub type TestMonitor<F> = Monitor<ScriptedSpace, TestProbe<F>, TestSink, Pcg64Mcg>;

pub fn monitor<F: FnMut(u32, Sample) -> Observation>(
    attributes: Attributes,
    seed: u64,
    readings: Vec<Vec<TargetSpace>>,
    probe: TestProbe<F>,
) -> TestMonitor<F> {
    let rng = Pcg64Mcg::seed_from_u64(seed);
    Monitor::new(attributes, rng, ScriptedSpace(readings), probe, TestSink::default())
}

/// Starts the monitor and steps it until `rounds` sampling intervals have passed. Calls `look` after the start and
/// after each step.
pub fn run<F: FnMut(u32, Sample) -> Observation>(
    monitor: &mut TestMonitor<F>,
    rounds: u32,
    mut look: impl FnMut(&TestMonitor<F>),
) {
    let mut next = monitor.start().unwrap();
    assert_ne!(next, Next::End, "there is a target");
    look(monitor);
    let sampling = monitor.attributes().sampling();
    let mut passed = 0;
    while let Next::Step { after } = next
        && passed + rounds_in(after, sampling) <= rounds
    {
        passed += rounds_in(after, sampling);
        monitor.probe().round.set(passed - 1);
        next = monitor.step(SAMPLING * passed).unwrap();
        if next != Next::End {
            look(monitor);
        }
    }
    monitor.end().unwrap();
}

/// How many sampling intervals there are in a time.
pub fn rounds_in(time: Duration, sampling: Duration) -> u32 {
    let rounds = (time.as_nanos() / sampling.as_nanos()) as u32;
    assert_eq!(sampling * rounds, time, "a whole number of sampling intervals");
    rounds
}
