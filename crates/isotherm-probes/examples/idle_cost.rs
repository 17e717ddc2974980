//! Measures the cost of the `idle` probe: the time to mark and to read one sample, on this process's own memory.
//!
//! It needs root and a kernel with idle page tracking.
#![allow(missing_docs, clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::time::{Duration, Instant};

use isotherm_core::{AccessProbe, AddrRange, Layout, Mapping, Observation, Sample, TargetId, TargetSpace};
use isotherm_probes::idle::IdleProbe;

const PAGE: u64 = 4096;
const SAMPLES: u64 = 1000;
const ROUNDS: u32 = 20;

/// The distance between two samples in pages. Each sample is in another word of the bitmap, and in another batch of
/// every table.
const APART: u64 = 67;

fn main() {
    let size = SAMPLES * APART * PAGE;
    // The pages are small, unless the system forces huge pages.
    let mut memory = vec![1_u8; size as usize + PAGE as usize];
    let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
    let range = AddrRange::new(start, start + size).unwrap();
    let id = TargetId::process(std::process::id(), Duration::ZERO);
    let mapping = Mapping::anonymous(range);
    let space = TargetSpace { id, layout: Layout::Process, mappings: [mapping].into() };

    let begun = Instant::now();
    let mut probe = IdleProbe::open().unwrap();
    println!("opening: {:.2?}", begun.elapsed());
    let begun = Instant::now();
    probe.update(&[space]).unwrap();
    println!("update of a target: {:.2?}", begun.elapsed());

    let at = |page: u64| Sample { target: id, addr: start + page * PAGE };
    let apart: Vec<_> = (0..SAMPLES).map(|i| at(i * APART)).collect();
    let near: Vec<_> = (0..SAMPLES).map(|i| at(i * 2)).collect();
    let all: Vec<_> = (0..SAMPLES * APART).map(at).collect();

    measure("far apart, cold", &mut probe, &apart, || ());
    measure("far apart, hot", &mut probe, &apart, || memory.iter_mut().for_each(|byte| *byte += 1));
    measure("near each other, cold", &mut probe, &near, || ());
    let mut answers = vec![Observation::Idle; all.len()];
    probe.clear(&all).unwrap();
    probe.read(&all, &mut answers).unwrap();
    measure("far apart, cold, all pages marked", &mut probe, &apart, || ());
    drop(memory);
}

fn measure(what: &str, probe: &mut IdleProbe, samples: &[Sample], mut between: impl FnMut()) {
    let mut answers = vec![Observation::Idle; samples.len()];
    let (mut clearing, mut reading) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        probe.clear(samples).unwrap();
        clearing += begun.elapsed();
        between();
        let begun = Instant::now();
        probe.read(samples, &mut answers).unwrap();
        reading += begun.elapsed();
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(ROUNDS) / samples.len() as f64;
    let accessed = answers.iter().filter(|&&answer| answer == Observation::Accessed).count();
    let dark = answers.iter().filter(|&&answer| answer == Observation::Unobservable).count();
    println!(
        "{what:<34} marking {:6.2} µs, reading {:6.2} µs a sample; {accessed} of {} accessed, {dark} unobservable",
        each(clearing),
        each(reading),
        samples.len()
    );
}
