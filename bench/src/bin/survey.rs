//! What the monitor itself computes for a survey of simulated memory, without reading and clearing.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use isotherm_bench::large::{self, LargeMemory, Shape, SimulatedCpu};
use isotherm_bench::{pairs, table};
use isotherm_core::survey::{BLOCK_SIZE, SurveySettings};
use isotherm_core::units::setting;
use isotherm_core::{Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_kernel::monitor_cpu_time;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Measure what the monitor computes for a survey, on simulated memory
#[derive(Parser)]
struct Options {
    /// Sizes of memory in GiB
    #[arg(long, value_name = "GIB", value_delimiter = ',', default_value = "1,10")]
    sizes: Vec<u64>,
    /// How many surveys are made of each
    #[arg(long, default_value_t = 60)]
    surveys: usize,
    /// Which memory
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["cold", "hot", "mixed"])]
    kinds: Vec<Kind>,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/survey.json")]
    json: PathBuf,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
enum Kind {
    /// 64 KiB are hot
    Cold,
    /// A half is hot
    Hot,
    /// A tenth of each block of 2 MiB is hot
    Mixed,
}

/// The figures of one run.
#[derive(Debug, Serialize)]
struct Line {
    bytes: u64,
    kind: Kind,
    /// CPU time of a survey, in microseconds.
    median_us: f64,
    most_us: f64,
    /// How much memory the process has more than before.
    rss_bytes: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    for &size in &options.sizes {
        for &kind in &options.kinds {
            lines.push(measure(size << 30, kind, options.surveys)?);
        }
    }
    println!("{}", results(&lines));
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

/// Takes nothing in.
struct Nothing;

impl Sink for Nothing {
    fn aggregated(&mut self, _snapshot: &Snapshot) -> Result<(), BoxError> {
        Ok(())
    }
}

fn measure(size: u64, kind: Kind, surveys: usize) -> Result<Line> {
    let (hot, parts) = match kind {
        Kind::Cold => (64 << 10, 1),
        Kind::Hot => (size / 2, 1),
        Kind::Mixed => (size / 10, size / BLOCK_SIZE),
    };
    let cpu = SimulatedCpu::default();
    let simulated =
        LargeMemory::new(Shape { size, hot, parts, ..Shape::default() }, cpu.clone()).context("no hot memory")?;
    let before = large::resident().map_err(anyhow::Error::from_boxed)?;
    let rng = Pcg64Mcg::seed_from_u64(1);
    let mut monitor = Monitor::new(Attributes::default(), rng, simulated.clone(), simulated, Nothing);
    monitor.set_survey(SurveySettings::default());
    monitor.without_samples();
    let (mut now, mut took, mut began) = (Duration::ZERO, Vec::new(), monitor_cpu_time());
    let mut next = monitor.start()?;
    while took.len() < surveys {
        let (_, own) = cpu.take();
        if monitor.work().survey.is_some_and(|part| part.is_last_part) {
            took.push((monitor_cpu_time().saturating_sub(began).saturating_sub(own)).as_secs_f64() * 1e6);
        }
        let Next::Step { after } = next else { break };
        now += after;
        began = monitor_cpu_time();
        next = monitor.step(now)?;
    }
    Ok(Line {
        bytes: size,
        kind,
        median_us: pairs::median(&mut took.clone()),
        most_us: took.iter().copied().fold(0.0, f64::max),
        rss_bytes: large::resident().map_err(anyhow::Error::from_boxed)?.saturating_sub(before),
    })
}

fn results(lines: &[Line]) -> String {
    let header = ["memory", "kind", "median, \u{b5}s", "most, \u{b5}s", "monitor's memory"];
    let row = |line: &Line| {
        vec![
            setting::bytes(line.bytes),
            format!("{:?}", line.kind).to_lowercase(),
            format!("{:.0}", line.median_us),
            format!("{:.0}", line.most_us),
            format!("{:.1} MiB", line.rss_bytes as f64 / 1048576.0),
        ]
    };
    table::table(&header, 2, lines.iter().map(row)).to_string()
}
