//! isotherm's probes compared with the kernel's DAMON and with checking every page.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use comfy_table::Table;
use isotherm_bench::every_page::{self, Target};
use isotherm_bench::pairs::Pairs;
use isotherm_bench::real::Pace;
use isotherm_bench::speed::{self, PATTERN, SIZE};
use isotherm_bench::table::{self, found_in, share};
use isotherm_bench::{Score, real};
use isotherm_core::units::setting;
use isotherm_core::{AccessProbe, Attributes};
use isotherm_probes::bpf::BpfProbe;
use isotherm_probes::idle::IdleProbe;
use isotherm_run::SurveyChoice;
use isotherm_sim::Pattern;
use serde::Serialize;

/// Compare isotherm's probes with the kernel's DAMON and with checking every page
///
/// The kernel needs DAMON and idle page tracking; bench/against-kernel runs this program in the laboratory.
/// All probes record each pattern in turn, with the default attributes.
///
/// An emulated processor keeps a translation until the address space is switched. That hides accesses from
/// probes that clear accessed bits without a TLB flush. Therefore this program wakes up every few
/// milliseconds, whichever probe records.
#[derive(Parser)]
struct Options {
    /// Only these patterns
    patterns: Vec<String>,
    /// Probes, as for `isotherm record`; CPU time is compared with the first
    #[arg(long, value_name = "PROBES", value_delimiter = ',', default_value = "damon,idle,bpf")]
    probes: Vec<String>,
    /// Multiply the size of the patterns, 256 MiB, by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1)]
    scale: u32,
    /// Runs of each pattern, each with another seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: u64,
    /// Pairs of measurements, with and without the monitor, for the slowdown of the target
    #[arg(long, value_name = "N", default_value_t = 5)]
    pairs: u32,
    /// Sizes for the comparison with checking every page, in units of 256 MiB
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1,4,8")]
    sizes: Vec<u32>,
    /// Interval of the forced address space switches, in milliseconds; 0 for none
    #[arg(long, value_name = "MS", default_value_t = 2)]
    switch: u64,
    /// Let isotherm tune the intervals and keep its budget, and the kernel by its intervals goal (Linux 6.15). Without
    /// this, they are DAMON's: 5 ms and 100 ms
    #[arg(long)]
    auto: bool,
    /// With `--auto`, the budget of isotherm's own probes, in per cent of one CPU. An emulated processor is ten times
    /// as slow, or more; the kernel's DAMON has no budget
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    cpu_budget: f64,
    /// Path of isotherm
    #[arg(long, default_value = "isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The probes that can check single pages. The kernel's DAMON has no interface for it, and `refs` clears whole
/// processes.
const CHECK_SINGLE_PAGES: [&str; 2] = ["idle", "bpf"];

/// All figures.
#[derive(Default, Serialize)]
struct Figures {
    patterns: Vec<Run>,
    slowdowns: Vec<Slowdown>,
    every_page: Vec<EveryPage>,
}

/// One probe on one pattern.
#[derive(Serialize)]
struct Run {
    pattern: String,
    probe: String,
    seed: u64,
    #[serde(flatten)]
    score: Score,
    /// CPU time of the monitor: the kernel's and isotherm's together.
    cpu_percent: f64,
    late_rounds: u64,
}

/// The slowdown of a target that touches memory as fast as it can.
#[derive(Serialize)]
struct Slowdown {
    probe: String,
    /// Median, minimum, maximum.
    percent: [f64; 3],
}

/// A sampling round of isotherm, and a round that checks every page with the same probe.
#[derive(Serialize)]
struct EveryPage {
    bytes: u64,
    probe: String,
    isotherm: every_page::Round,
    every_page: every_page::Round,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let attributes = Attributes::default();
    let pace = if options.auto { Pace::Tuned { cpu: options.cpu_budget / 100.0 } } else { Pace::Fixed(attributes) };
    real::switch_address_spaces(options.switch);
    let mut figures = Figures::default();
    let all = || Pattern::names().map(String::from).collect();
    let patterns: Vec<String> = if options.patterns.is_empty() { all() } else { options.patterns.clone() };
    for pattern in &patterns {
        for seed in 1..=options.runs {
            for probe in &options.probes {
                eprintln!("{pattern}: {probe}");
                let monitored = real::watch(&options.isotherm, probe, pattern, options.scale, pace, seed)?;
                figures.patterns.push(Run {
                    pattern: pattern.clone(),
                    probe: probe.clone(),
                    seed,
                    score: Score::new(&monitored),
                    cpu_percent: monitored.cpu_percent(),
                    late_rounds: monitored.snapshots.iter().map(|taken| u64::from(taken.cost.late_rounds)).sum(),
                });
            }
        }
    }
    println!("{}", patterns_table(&figures.patterns, &options.probes[0]));
    means(&figures.patterns, &options.probes);

    if options.pairs > 0 {
        for probe in &options.probes {
            eprintln!("slowdown: {probe}");
            let visits = speed::visit(
                &options.isotherm,
                (probe, SurveyChoice::Off),
                options.scale,
                Pairs::fixed(options.pairs),
                Duration::from_secs(4),
            )?;
            figures.slowdowns.push(Slowdown { probe: probe.clone(), percent: visits.slowdown.pairs });
        }
        println!("\nSlowdown of {PATTERN} running as fast as it can: median (min to max)");
        let row = |s: &Slowdown| {
            let [median, least, most] = s.percent;
            vec![s.probe.clone(), format!("{median:.2} ({least:.2} to {most:.2})")]
        };
        println!("{}", table::table(&["probe", "slowdown %"], 1, figures.slowdowns.iter().map(row)));
    }

    for &scale in &options.sizes {
        for probe in options.probes.iter().filter(|probe| CHECK_SINGLE_PAGES.contains(&probe.as_str())) {
            eprintln!("every page of {} MiB: {probe}", 256 * scale);
            let target = Target::start(&options.isotherm, scale)?;
            let isotherm = target.watch(probe)?;
            let every_page = target.check_every_page(open(probe)?.as_mut(), attributes.sampling())?;
            figures.every_page.push(EveryPage {
                bytes: SIZE * u64::from(scale),
                probe: probe.clone(),
                isotherm,
                every_page,
            });
        }
    }
    if !figures.every_page.is_empty() {
        println!("\nA sampling round of isotherm, and a round that checks all pages with the same probe");
        println!("{}", every_page_table(&figures.every_page));
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Opens a probe to use without a monitor.
fn open(probe: &str) -> Result<Box<dyn AccessProbe>> {
    Ok(match probe {
        "bpf" => Box::new(BpfProbe::open()?),
        "idle" => Box::new(IdleProbe::open()?),
        _ => bail!("the probe {probe} cannot check every page"),
    })
}

fn patterns_table(runs: &[Run], first: &str) -> Table {
    let ratio = format!("CPU / {first}");
    let header = ["pattern", "probe", "precision", "recall", "error", "found in, max", "late", "CPU %", &ratio];
    let row = |run: &Run| {
        let reference = runs.iter().find(|r| r.probe == first && r.pattern == run.pattern && r.seed == run.seed);
        let ratio = reference.map(|reference| run.cpu_percent / reference.cpu_percent);
        vec![
            run.pattern.clone(),
            run.probe.clone(),
            share(run.score.precision),
            share(run.score.recall),
            format!("{:.4}", run.score.error),
            found_in(&run.score.found_after_s),
            run.late_rounds.to_string(),
            format!("{:.2}", run.cpu_percent),
            ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        ]
    };
    table::table(&header, 2, runs.iter().map(row))
}

fn means(runs: &[Run], probes: &[String]) {
    println!("Means over all runs:");
    for probe in probes {
        let of: Vec<&Run> = runs.iter().filter(|run| run.probe == *probe).collect();
        let mean = |figure: &dyn Fn(&Run) -> f64| of.iter().map(|run| figure(run)).sum::<f64>() / of.len() as f64;
        let error = mean(&|run| run.score.error);
        println!("  {probe}: CPU {:.2} % of one, error {error:.4}", mean(&|run| run.cpu_percent));
    }
}

fn every_page_table(lines: &[EveryPage]) -> Table {
    let header = ["memory", "probe", "checks", "all pages", "ratio", "CPU ms", "all pages", "ratio"];
    let row = |line: &EveryPage| {
        let (ours, all) = (&line.isotherm, &line.every_page);
        vec![
            setting::bytes(line.bytes),
            line.probe.clone(),
            format!("{:.1}", ours.checks),
            format!("{:.0}", all.checks),
            format!("{:.0}", all.checks / ours.checks),
            format!("{:.3}", ours.cpu_ms),
            format!("{:.1}", all.cpu_ms),
            format!("{:.0}", all.cpu_ms / ours.cpu_ms),
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}
