//! The cost of isotherm: CPU time of the monitor, slowdown of the target, pages read, for several sizes of memory.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::Table;
use isotherm_bench::busy::BusyLoops;
use isotherm_bench::pairs::{Change, Pairs};
use isotherm_bench::speed::{self, PATTERN, SIZE};
use isotherm_bench::table::{self, share};
use isotherm_bench::{Score, simulated};
use isotherm_core::units::setting;
use isotherm_core::{Attributes, PAGE_SIZE};
use isotherm_record::Cost;
use isotherm_report::{Pacing, Windows};
use isotherm_run::SurveyChoice;
use isotherm_sim::Pattern;
use serde::Serialize;

/// The start of a run, which is measured separately.
const FIRST: Duration = Duration::from_secs(1);

/// Measure the cost of isotherm: CPU time of the monitor, slowdown of the target, pages read, for several
/// sizes of memory
///
/// For the slowdown, a process touches its hot memory as fast as it can. Its median speed with the monitor is
/// compared with its median speed without, pair by pair, until the pairs tell 1 % apart.
#[derive(Parser)]
struct Options {
    /// Sizes of real processes, in units of 256 MiB
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1,4,16")]
    scales: Vec<u32>,
    /// Least number of pairs of measurements, with and without the monitor
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Up to N pairs, until they tell 1 % of the speed apart
    #[arg(long, value_name = "N", default_value_t = 20)]
    most_pairs: u32,
    /// Length of a measurement: 15 or more, because the budget holds over 10 s
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(15..))]
    seconds: u64,
    /// Measure beside N busy loops for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: u32,
    /// Measure simulated memory only
    #[arg(long)]
    simulated: bool,
    /// Sample only, without surveys
    #[arg(long)]
    without_survey: bool,
    /// Path of isotherm
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/overhead.json")]
    json: PathBuf,
}

/// The figures of one size of memory.
#[derive(Debug, Serialize)]
struct Line {
    how: &'static str,
    bytes: u64,
    /// CPU time of all threads of isotherm after the first second, in per cent of one CPU.
    cpu_percent: f64,
    /// The same over each 10 s that begin after the first 3 s of a run.
    cpu_percent_10s: Option<Windows>,
    /// CPU time of a thread that only wakes up in each sampling interval, measured between the runs.
    waking_percent: Option<f64>,
    /// Mean CPU time of the first second of a run, in which the target's memory is cleared once.
    first_second_ms: f64,
    /// The change of the time of a touch by the monitor.
    slowdown_percent: Option<Change>,
    reads_mean: f64,
    reads_max: u32,
    clears_per_s: f64,
    late_share: f64,
    /// Pages of the target for each page that is read in a round.
    lighter: f64,
    precision: Option<f64>,
    recall: Option<f64>,
}

impl Line {
    fn is_real(&self) -> bool {
        self.how == "real"
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    let busy = (options.busy > 0).then(|| BusyLoops::start(options.busy)).transpose()?;
    if !options.simulated {
        for &scale in &options.scales {
            let [least, most] = [options.pairs, options.most_pairs.max(options.pairs)];
            let [least, most] = [least, most].map(|pairs| u64::from(pairs) * options.seconds * 2);
            eprintln!("a real process of {} MiB, {least} to {most} s", 256 * scale);
            lines.push(real(&options, scale)?);
        }
    }
    drop(busy);
    for scale in [1, 4, 16, 256, 4096, 20480] {
        lines.push(simulate(scale)?);
    }
    println!("{}", time_table(&lines));
    println!("\n{}", sampling_table(&lines));
    for line in lines.iter().filter(|line| line.slowdown_percent.is_some_and(|change| !change.tells())) {
        println!("{}: the pairs do not tell 1 % of the speed apart", setting::bytes(line.bytes));
    }
    println!("{PAPERS}");
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

const PAPERS: &str = "
CPU: time of all threads of isotherm after the first second, in per cent of one CPU; 10 s: over each 10 s that begin
after the first 3 s; simulated runs leave out the probe. Wake-ups: CPU time of a thread that only wakes up in each
sampling interval, measured after each run. Slowdown: mean of the pairs, with its 95 % confidence interval; pairs for
1 %: how many would tell 1 % apart. % of max.: mean reads in a sampling round, of the maximum of 1,000. Pages/read:
pages of the target for each page that is read in a round.

Figures of the papers, and how their setting differs:
  DAMON (Middleware Industry '19, HPDC '22): at most 1 % of one CPU; slowdown of the target 0.41 % on the
  mean, 1.19 % at most; mean checks 13 % of the maximum; 3,159 times fewer checks than checking every page, at
  best 94,242 times. It runs in the kernel, on PARSEC 3, SPLASH-2x and more, on bare metal. isotherm runs in
  user space, here on one synthetic pattern, on a virtual machine with an expensive TLB flush.
  Telescope (USENIX ATC '24): precision and recall of 90 % on 5 TB at 0.9 % of a CPU. It walks page tables top
  down on a real machine. isotherm's 5 TiB are simulated, so precision and recall are those of the method
  alone.";

/// Measures a real process.
fn real(options: &Options, scale: u32) -> Result<Line> {
    let time = Duration::from_secs(options.seconds);
    let survey = if options.without_survey { SurveyChoice::Off } else { SurveyChoice::Auto };
    let pairs = Pairs { least: options.pairs, most: options.most_pairs };
    let visits = speed::visit(&options.isotherm, ("auto", survey), scale, pairs, time)?;
    let mut costs = Vec::new();
    let mut wall = Duration::ZERO;
    let mut first_ns = 0;
    let mut windows = Vec::new();
    let runs = visits.costs.len();
    for visit in visits.costs {
        windows.extend(over_10s(&visit));
        wall += visit.last().map_or(Duration::ZERO, |&(last, _)| last.saturating_sub(FIRST));
        let (first, then): (Vec<_>, Vec<_>) = visit.into_iter().partition(|&(time, _)| time <= FIRST);
        first_ns += first.iter().map(|(_, cost)| all_cpu_ns(cost)).sum::<u64>();
        costs.extend(then.into_iter().map(|(_, cost)| cost));
    }
    let sum = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>() as f64;
    let rounds = sum(|cost| cost.rounds.into());
    let reads_mean = sum(|cost| cost.reads) / rounds;
    let bytes = SIZE * u64::from(scale);
    Ok(Line {
        how: "real",
        bytes,
        cpu_percent: sum(all_cpu_ns) / wall.as_nanos() as f64 * 100.0,
        cpu_percent_10s: worst(&windows),
        waking_percent: Some(visits.waking_percent),
        first_second_ms: first_ns as f64 / 1e6 / runs as f64,
        slowdown_percent: Some(visits.slowdown),
        reads_mean,
        reads_max: costs.iter().map(|cost| cost.max_reads).max().unwrap_or(0),
        clears_per_s: sum(|cost| cost.clears) / wall.as_secs_f64(),
        late_share: sum(|cost| cost.late_rounds.into()) / rounds,
        lighter: (bytes / PAGE_SIZE) as f64 / reads_mean,
        precision: None,
        recall: None,
    })
}

/// The CPU time of all threads of isotherm.
fn all_cpu_ns(cost: &Cost) -> u64 {
    cost.cpu_time().as_nanos() as u64
}

/// The mean of the runs, and the greatest of their other figures. `None` without runs.
fn worst(runs: &[Windows]) -> Option<Windows> {
    let greatest = |of: fn(&Windows) -> f64| runs.iter().map(of).fold(0.0, f64::max);
    let mean = runs.iter().map(|run| run.mean).sum::<f64>() / runs.len() as f64;
    (!runs.is_empty()).then(|| Windows { mean, p99: greatest(|run| run.p99), max: greatest(|run| run.max) })
}

/// The CPU time over each 10 s of a run, in per cent of one CPU.
fn over_10s(visit: &[(Duration, Cost)]) -> Option<Windows> {
    let mut pacing = Pacing::new(None);
    let mut from = Duration::ZERO;
    for (to, cost) in visit {
        pacing.snapshot(std::mem::replace(&mut from, *to), *to, cost);
    }
    pacing.finish().windows
}

fn simulate(scale: u64) -> Result<Line> {
    let pattern = Pattern::shipped(PATTERN)?.scaled(scale);
    let monitored = simulated::watch(&pattern, Attributes::default(), 1)?;
    let (reads_mean, reads_max) = monitored.reads();
    let score = Score::new(&monitored);
    let bytes = SIZE * scale;
    Ok(Line {
        how: "simulated",
        bytes,
        cpu_percent: monitored.cpu_percent(),
        cpu_percent_10s: None,
        waking_percent: None,
        first_second_ms: 0.0,
        slowdown_percent: None,
        reads_mean,
        reads_max,
        clears_per_s: 0.0,
        late_share: 0.0,
        lighter: (bytes / PAGE_SIZE) as f64 / reads_mean,
        precision: score.precision,
        recall: score.recall,
    })
}

/// CPU time and slowdown.
fn time_table(lines: &[Line]) -> Table {
    let header = [
        "memory",
        "kind",
        "CPU %",
        "10 s mean",
        "10 s p99",
        "10 s most",
        "wake-ups %",
        "first second, ms",
        "slowdown %",
        "95 % interval",
        "pairs",
        "pairs for 1 %",
    ];
    let of_10s = |line: &Line, of: fn(&Windows) -> f64| {
        line.cpu_percent_10s.as_ref().map_or("-".into(), |windows| format!("{:.2}", of(windows)))
    };
    let of_change = |line: &Line, of: fn(&Change) -> Option<String>| {
        line.slowdown_percent.as_ref().and_then(of).unwrap_or_else(|| "-".into())
    };
    let row = |line: &Line| {
        vec![
            setting::bytes(line.bytes),
            line.how.into(),
            format!("{:.3}", line.cpu_percent),
            of_10s(line, |windows| windows.mean),
            of_10s(line, |windows| windows.p99),
            of_10s(line, |windows| windows.max),
            line.waking_percent.map_or("-".into(), |percent| format!("{percent:.3}")),
            if line.is_real() { format!("{:.0}", line.first_second_ms) } else { "-".into() },
            of_change(line, |change| Some(format!("{:+.2}", change.mean))),
            of_change(line, |change| change.interval.map(|[low, high]| format!("{low:+.2} to {high:+.2}"))),
            of_change(line, |change| Some(change.count.to_string())),
            of_change(line, |change| change.needed.map(|needed| format!("{needed:.0}"))),
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}

/// Pages read and cleared, and accuracy.
fn sampling_table(lines: &[Line]) -> Table {
    let header = [
        "memory",
        "kind",
        "reads, mean",
        "% of max.",
        "reads, max",
        "clears/s",
        "late %",
        "pages/read",
        "precision",
        "recall",
    ];
    let row = |line: &Line| {
        vec![
            setting::bytes(line.bytes),
            line.how.into(),
            format!("{:.0}", line.reads_mean),
            format!("{:.1}", line.reads_mean / 10.0),
            line.reads_max.to_string(),
            if line.is_real() { format!("{:.0}", line.clears_per_s) } else { "-".into() },
            if line.is_real() { format!("{:.2}", line.late_share * 100.0) } else { "-".into() },
            format!("{:.0}", line.lighter),
            share(line.precision),
            share(line.recall),
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}
