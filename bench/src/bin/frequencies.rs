//! The frequencies that isotherm finds in memory that it does not know, beside the true ones.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::Table;
use isotherm_bench::frequency::{FrequencyScore, RIGHT, random_pattern};
use isotherm_bench::real::Pace;
use isotherm_bench::{Monitored, real, simulated};
use isotherm_core::{Attributes, Budget};
use serde::Serialize;

/// Measure how well isotherm tells frequencies
///
/// Random patterns: 1 GiB, half of it idle, the other half areas of 16 to 64 MiB that are accessed 0.5 to 200 times a
/// second, in order or at random, and others after 20 s; and the pattern `zipfian`, as large. What was found is the
/// mean of 10 s that begin 5 s after a change. Memory that is accessed at least 10 times a second is hot; none of the
/// random areas is accessed 7 to 14 times.
#[derive(Parser)]
struct Options {
    /// So many random patterns
    #[arg(long, value_name = "N", default_value_t = 3)]
    patterns: u64,
    /// The number of the first
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// The size of the patterns, a multiple of 256 MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = mebibytes)]
    size: u64,
    /// Simulated memory only
    #[arg(long)]
    simulated: bool,
    /// Real processes only
    #[arg(long, conflicts_with = "simulated")]
    real: bool,
    /// Also with DAMON's intervals, 5 ms and 100 ms, without a budget
    #[arg(long)]
    fixed: bool,
    /// The budget, in per cent of one CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * Budget::default().cpu)]
    cpu_budget: f64,
    /// Print each area
    #[arg(long)]
    areas: bool,
    /// Probes for real processes, as for `isotherm record`; damon tunes its intervals by its goal (Linux 6.15)
    #[arg(long, value_name = "PROBE,...", default_value = "auto", value_delimiter = ',')]
    probe: Vec<String>,
    /// Switch address spaces so often, in milliseconds, as `against_kernel` does on an emulated processor; 0 for never
    #[arg(long, value_name = "MS", default_value_t = 0)]
    switch: u64,
    /// Path of isotherm
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/frequencies.json")]
    json: PathBuf,
}

#[derive(Serialize)]
struct Line {
    pattern: String,
    how: String,
    #[serde(flatten)]
    score: FrequencyScore,
    cpu_percent: f64,
}

fn mebibytes(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().filter(|size| *size > 0 && size % 256 == 0);
    size.ok_or_else(|| "give a multiple of 256".into())
}

fn main() -> Result<()> {
    let options = Options::parse();
    real::switch_address_spaces(options.switch);
    let place = tempfile::tempdir()?;
    let mut patterns = Vec::new();
    for seed in options.first..options.first + options.patterns {
        let path = place.path().join(format!("random-{seed}.toml"));
        std::fs::write(&path, random_pattern(seed, options.size))?;
        patterns.push((path.to_string_lossy().into_owned(), 1));
    }
    patterns.push(("zipfian".into(), (options.size / 256) as u32));
    let mut lines = Vec::new();
    for (name, scale) in &patterns {
        let short = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".toml");
        let mut add = |how: &str, monitored: &Monitored| {
            let score = FrequencyScore::new(monitored);
            if options.areas {
                for (hz, found) in &score.areas {
                    eprintln!("  {short}, {how}: {hz:.2} Hz, found {found:.2}");
                }
            }
            lines.push(Line { pattern: short.into(), how: how.into(), score, cpu_percent: monitored.cpu_percent() });
        };
        let pattern = real::pattern(name)?.scaled((*scale).into());
        let budget = Budget { cpu: options.cpu_budget / 100.0, ..Budget::default() };
        if !options.real {
            add("simulated", &simulated::watch_within(&pattern, budget, 1.0, options.first)?);
        }
        for probe in options.probe.iter().filter(|_| !options.simulated) {
            let watch = |pace| real::watch(&options.isotherm, probe, name, *scale, pace, options.first);
            let how = if options.probe.len() > 1 { format!("real, {probe}") } else { "real".into() };
            eprintln!("{short}: {how}, {} s", pattern.time().as_secs());
            add(&how, &watch(Pace::Tuned { cpu: budget.cpu })?);
            if options.fixed {
                add(&format!("{how}, fixed"), &watch(Pace::Fixed(Attributes::default()))?);
            }
        }
    }
    println!("{}", table(&lines));
    println!(
        "Right: areas whose frequency is within a factor of {RIGHT}; off: the median of found over true. Ranks: \
         Spearman, over all memory in use."
    );
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

fn table(lines: &[Line]) -> Table {
    let share = |share: Option<f64>| share.map_or_else(|| "-".into(), |share| format!("{share:.2}"));
    let row = |line: &Line| {
        let (right, off) = line.score.in_use().unzip();
        vec![
            line.pattern.clone(),
            line.how.clone(),
            share(line.score.precision),
            share(line.score.recall),
            share(right),
            share(off),
            share(line.score.ranks),
            format!("{:.2} %", line.cpu_percent),
        ]
    };
    let header = ["pattern", "how", "precision", "recall", "right", "off", "ranks", "CPU"];
    isotherm_bench::table::table(&header, 2, lines.iter().map(row))
}
