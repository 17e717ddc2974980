//! What isotherm costs: CPU time of the monitor, slowdown of the target, reads, for memory of several sizes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::Table;
use isotherm_bench::speed::{self, PATTERN, SIZE};
use isotherm_bench::table::{self, share};
use isotherm_bench::{Score, simulated};
use isotherm_core::units::setting;
use isotherm_core::{Attributes, PAGE_SIZE};
use isotherm_sim::Pattern;
use serde::Serialize;

/// What a run takes at its start is told apart from what it takes then.
const FIRST: Duration = Duration::from_secs(1);

/// Measure what isotherm costs: CPU time of the monitor, slowdown of the target, pages read, for memory of several sizes
///
/// Slowdown: one process touches its hot memory as fast as it can, while the monitor comes and goes; the medians of its speed with
/// and without are compared pair by pair.
#[derive(Parser)]
struct Options {
    /// Sizes of real processes: this many times 256 MiB
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1,4,16")]
    scales: Vec<u32>,
    /// How often the monitor comes and goes
    #[arg(long, value_name = "N", default_value_t = 7)]
    pairs: u32,
    /// How long it stays, and how long it stays away
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    seconds: u64,
    /// Leave the real processes out
    #[arg(long)]
    simulated: bool,
    /// Where isotherm is
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE", default_value = "target/bench/overhead.json")]
    json: PathBuf,
}

/// What one size of memory cost.
#[derive(Debug, Serialize)]
struct Line {
    how: &'static str,
    bytes: u64,
    /// After the first second.
    cpu_percent: f64,
    /// Of a thread that only wakes up in every sampling interval, between the runs.
    waking_percent: Option<f64>,
    /// CPU time of the first second of a run, on the mean: the target's memory is swept once.
    first_second_ms: f64,
    /// The time of the target with the monitor over that without, less 1, in per cent: median, least and most of the pairs.
    slowdown_percent: Option<[f64; 3]>,
    reads_mean: f64,
    reads_max: u32,
    clears_per_s: f64,
    late_share: f64,
    /// Pages of the target for each page that is read: how many times lighter than reading every page.
    lighter: f64,
    precision: Option<f64>,
    recall: Option<f64>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    if !options.simulated {
        for &scale in &options.scales {
            eprintln!("a real process of {} MiB, {} s", 256 * scale, u64::from(options.pairs) * options.seconds * 2);
            lines.push(real(&options, scale)?);
        }
    }
    for scale in [1, 4, 16, 256, 4096, 20480] {
        lines.push(simulate(scale)?);
    }
    println!("{}", table(&lines));
    println!("{PAPERS}");
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

const PAPERS: &str = "
CPU: of the monitor's thread, in per cent of one, after the first second; where simulated without the probe. Waking: of a thread
that wakes up in every sampling interval and does nothing, after each run. Slowdown: median (least to most) of the pairs.
Of max.: pages read in a sampling round on the mean, of the 1,000 allowed. Lighter: pages of the target for each page read.

The papers' figures, and what differs in the setting:
  DAMON (Middleware Industry '19, HPDC '22): at most 1 % of one CPU; the target 0.41 % slower on the mean, 1.19 % at worst; checks at
  13 % of the allowed maximum on the mean; 3,159 times lighter than checking every page, 94,242 times at best. It runs in the kernel, on
  PARSEC 3, SPLASH-2x and more, on bare metal; ours in user space, on one made pattern, on a virtual machine whose TLB flush is dear.
  Telescope (USENIX ATC '24): precision and recall of 90 % on 5 TB at 0.9 % of a CPU. It walks page tables top down on a real machine;
  ours at 5 TiB is simulated, so that its precision and recall are those of the method alone.";

/// Lets the monitor come and go, and compares.
fn real(options: &Options, scale: u32) -> Result<Line> {
    let time = Duration::from_secs(options.seconds);
    let visits = speed::visit(&options.isotherm, "auto", scale, options.pairs, time)?;
    let mut costs = Vec::new();
    let mut wall = Duration::ZERO;
    let mut first_ns = 0;
    for visit in visits.costs {
        wall += visit.last().map_or(Duration::ZERO, |&(last, _)| last.saturating_sub(FIRST));
        let (first, then): (Vec<_>, Vec<_>) = visit.into_iter().partition(|&(time, _)| time <= FIRST);
        first_ns += first.iter().map(|(_, cost)| cost.cpu_ns).sum::<u64>();
        costs.extend(then.into_iter().map(|(_, cost)| cost));
    }
    let sum = |of: fn(&isotherm_record::Cost) -> u64| costs.iter().map(of).sum::<u64>() as f64;
    let rounds = sum(|cost| cost.rounds.into());
    let reads_mean = sum(|cost| cost.reads) / rounds;
    let bytes = SIZE * u64::from(scale);
    Ok(Line {
        how: "real",
        bytes,
        cpu_percent: sum(|cost| cost.cpu_ns) / wall.as_nanos() as f64 * 100.0,
        waking_percent: Some(visits.waking_percent),
        first_second_ms: first_ns as f64 / 1e6 / f64::from(options.pairs),
        slowdown_percent: Some(visits.slowdown_percent),
        reads_mean,
        reads_max: costs.iter().map(|cost| cost.max_reads).max().unwrap_or(0),
        clears_per_s: sum(|cost| cost.clears) / wall.as_secs_f64(),
        late_share: sum(|cost| cost.late_rounds.into()) / rounds,
        lighter: (bytes / PAGE_SIZE) as f64 / reads_mean,
        precision: None,
        recall: None,
    })
}

fn simulate(scale: u64) -> Result<Line> {
    let pattern = Pattern::shipped(PATTERN)?.scaled(scale);
    let watching = simulated::watch(&pattern, Attributes::default(), 1)?;
    let (reads_mean, reads_max) = watching.reads();
    let score = Score::new(&watching);
    let bytes = SIZE * scale;
    Ok(Line {
        how: "simulated",
        bytes,
        cpu_percent: watching.cpu_percent(),
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

fn table(lines: &[Line]) -> Table {
    let header = [
        "memory",
        "",
        "CPU %",
        "waking %",
        "first s, ms",
        "slowdown %",
        "reads, mean",
        "of max. %",
        "reads, max",
        "clears/s",
        "late %",
        "lighter",
        "precision",
        "recall",
    ];
    let row = |line: &Line| {
        let real = line.how == "real";
        vec![
            setting::bytes(line.bytes),
            line.how.into(),
            format!("{:.3}", line.cpu_percent),
            line.waking_percent.map_or("-".into(), |percent| format!("{percent:.3}")),
            if real { format!("{:.0}", line.first_second_ms) } else { "-".into() },
            line.slowdown_percent
                .map_or("-".into(), |[mid, least, most]| format!("{mid:.2} ({least:.2} to {most:.2})")),
            format!("{:.0}", line.reads_mean),
            format!("{:.1}", line.reads_mean / 10.0),
            line.reads_max.to_string(),
            if real { format!("{:.0}", line.clears_per_s) } else { "-".into() },
            if real { format!("{:.2}", line.late_share * 100.0) } else { "-".into() },
            format!("{:.0}", line.lighter),
            share(line.precision),
            share(line.recall),
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}
