//! Precision, recall and error of what isotherm finds, per pattern, simulated and real.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::Table;
use isotherm_bench::pairs::median;
use isotherm_bench::real::Pace;
use isotherm_bench::table::{self, found_in, share};
use isotherm_bench::{Monitored, Score, real, simulated, wakeups};
use isotherm_core::{Attributes, Budget};
use isotherm_sim::Pattern;
use serde::Serialize;

/// Measure how accurate isotherm is, per pattern, on simulated memory and on a real process
///
/// Memory counts as hot if at least half of its samples are accesses. Precision, recall and error are taken
/// from the second half of each phase. Hot memory counts as found when 90 % of its bytes are found hot. The
/// attributes are the defaults. Memory outside the pattern's areas is left out.
#[derive(Parser)]
struct Options {
    /// Only these patterns
    patterns: Vec<String>,
    /// Multiply the size of the patterns, 256 MiB, by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 4)]
    scale: u32,
    /// Runs of each pattern, each with another seed; the table has the medians, the JSON all runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: u64,
    /// Measure simulated memory only
    #[arg(long)]
    simulated: bool,
    /// Probe for real processes, as for `isotherm record`
    #[arg(long, value_name = "PROBE", default_value = "auto")]
    probe: String,
    /// Let the intervals follow from what is observed and from the budget, as they do by default, and survey simulated
    /// memory, too. Without this, the intervals are DAMON's, 5 ms and 100 ms, and simulated memory is not surveyed
    #[arg(long)]
    auto: bool,
    /// With --auto, what the kernel does in simulated runs takes this many times the CPU time that it takes on a fast
    /// host
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "auto")]
    slow: f64,
    /// The budget of these runs, in per cent of one CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * Budget::default().cpu, requires = "auto")]
    cpu_budget: f64,
    /// Path of isotherm
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/accuracy.json")]
    json: PathBuf,
}

const PAPERS: &str = "
Figures of the papers, and how their setting differs:
  DAMON (Middleware Industry '19, HPDC '22): at most 1 % of one CPU; mean checks 13 % of the maximum of 1,000.
  It runs in the kernel, on real programs, on bare metal. isotherm runs in user space, on synthetic patterns,
  here on a virtual machine.
  Telescope (USENIX ATC '24): precision and recall of 90 % on 5 TB at 0.9 % of a CPU. bench/overhead simulates
  5 TiB.";

#[derive(Serialize)]
struct Line {
    pattern: String,
    how: &'static str,
    seed: u64,
    #[serde(flatten)]
    score: Score,
    regions_max: usize,
    reads_mean: f64,
    reads_max: u32,
    cpu_percent: f64,
    /// CPU time of a thread that only wakes up in each sampling interval, measured after the run.
    waking_percent: Option<f64>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let attributes = Attributes::default();
    let pace = if options.auto { Pace::Tuned { cpu: options.cpu_budget / 100.0 } } else { Pace::Fixed(attributes) };
    let all = || Pattern::names().map(String::from).collect();
    let patterns: Vec<String> = if options.patterns.is_empty() { all() } else { options.patterns.clone() };
    let mut lines = Vec::new();
    for pattern in &patterns {
        for seed in 1..=options.runs {
            let scaled = Pattern::shipped(pattern)?.scaled(options.scale.into());
            let monitored = match pace {
                Pace::Fixed(attributes) => simulated::watch(&scaled, attributes, seed)?,
                Pace::Tuned { cpu } => {
                    let budget = Budget { cpu, ..Budget::default() };
                    simulated::watch_within(&scaled, budget, options.slow, seed)?
                }
            };
            lines.push(line(pattern, "simulated", seed, &monitored, None));
            if !options.simulated {
                eprintln!("{pattern}: a real process, {} s", scaled.time().as_secs());
                let monitored = real::watch(&options.isotherm, &options.probe, pattern, options.scale, pace, seed)?;
                let waking = wakeups::percent(attributes.sampling());
                lines.push(line(pattern, "real", seed, &monitored, Some(waking)));
            }
        }
    }
    println!("{}", table(&lines));
    println!(
        "Each pattern has {} MiB. Regions: {} to {}. CPU: time of the monitor's thread in per cent of one CPU; \
         simulated runs leave out the probe.",
        256 * options.scale,
        attributes.min_regions(),
        attributes.max_regions()
    );
    for how in ["simulated", "real"] {
        let of: Vec<&Line> = lines.iter().filter(|line| line.how == how).collect();
        if !of.is_empty() {
            let mean = of.iter().map(|line| line.cpu_percent).sum::<f64>() / of.len() as f64;
            println!("Mean CPU over all patterns, {how}: {mean:.2} %");
        }
    }
    let mut waking: Vec<f64> = lines.iter().filter_map(|line| line.waking_percent).collect();
    if !waking.is_empty() {
        println!(
            "CPU of a thread that only wakes up in each sampling interval, measured after each real run, median: \
             {:.2} %",
            median(&mut waking)
        );
    }
    println!("{PAPERS}");
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

fn line(pattern: &str, how: &'static str, seed: u64, monitored: &Monitored, waking_percent: Option<f64>) -> Line {
    let (reads_mean, reads_max) = monitored.reads();
    Line {
        pattern: pattern.into(),
        how,
        seed,
        score: Score::new(monitored),
        regions_max: monitored.snapshots.iter().map(|taken| taken.regions.len()).max().unwrap_or(0),
        reads_mean,
        reads_max,
        cpu_percent: monitored.cpu_percent(),
        waking_percent,
    }
}

/// A row per pattern and kind: medians over its runs, but maxima of the times and surveys to find, and of reads.
fn table(lines: &[Line]) -> Table {
    let header = [
        "pattern",
        "kind",
        "precision",
        "recall",
        "error",
        "found in, max",
        "surveys, max",
        "reads, mean",
        "reads, max",
        "CPU %",
    ];
    let mut kinds: Vec<(&str, &str)> = lines.iter().map(|line| (line.pattern.as_str(), line.how)).collect();
    let mut seen = HashSet::new();
    kinds.retain(|kind| seen.insert(*kind));
    let row = |&(pattern, how): &(&str, &'static str)| {
        let runs: Vec<&Line> = lines.iter().filter(|line| line.pattern == pattern && line.how == how).collect();
        let over = |figure: &dyn Fn(&Line) -> Option<f64>| {
            let mut figures: Vec<f64> = runs.iter().filter_map(|line| figure(line)).collect();
            (!figures.is_empty()).then(|| median(&mut figures))
        };
        let found: Vec<Option<f64>> = runs.iter().flat_map(|line| line.score.found_after_s.iter().copied()).collect();
        let surveys = runs.iter().flat_map(|line| line.score.found_after_surveys.iter().flatten()).max();
        vec![
            pattern.into(),
            how.into(),
            share(over(&|line| line.score.precision)),
            share(over(&|line| line.score.recall)),
            format!("{:.4}", over(&|line| Some(line.score.error)).unwrap_or_default()),
            found_in(&found),
            surveys.filter(|_| how == "real").map_or("-".into(), ToString::to_string),
            format!("{:.0}", over(&|line| Some(line.reads_mean)).unwrap_or_default()),
            runs.iter().map(|line| line.reads_max).max().unwrap_or_default().to_string(),
            format!("{:.2}", over(&|line| Some(line.cpu_percent)).unwrap_or_default()),
        ]
    };
    table::table(&header, 2, kinds.iter().map(row))
}
