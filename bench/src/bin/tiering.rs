//! Redis beside cold memory on two memory nodes, with `isotherm tier run` and without.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use isotherm_bench::switches;
use isotherm_bench::tiering::moving::{self, moving_table, phase_table};
use isotherm_bench::tiering::run::{Run, Runner, Setting, be_cold, fast_free};
use isotherm_bench::tiering::summary::{self, Line};
use isotherm_bench::tiering::{Configuration, Distribution, ensure_laboratory};
use isotherm_core::{PAGE_SIZE, units};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Cold memory, in per cent of what is free on the fast node.
const SIZES: [f64; 8] = [0.0, 85.0, 87.0, 89.0, 91.0, 93.0, 95.0, 97.0];

/// Interval of the forced address space switches on each emulated processor.
const SWITCH: Duration = Duration::from_millis(2);

/// Where the files of a measurement are in the laboratory.
const PLACE: &str = "/tmp";

/// Where the pattern and the last recording of a hot set that moves are: the host gets what is there.
const RESULTS: &str = "/results";

/// Measure where redis lies beside cold memory, on two memory nodes, with and without isotherm
///
/// bench/tiering runs this program in the laboratory.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Measure),
    /// Print the tables of runs; the input is JSON Lines as `run` writes them
    Table {
        /// Files of runs
        files: Vec<PathBuf>,
        /// Write the figures to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure with a hot set that moves, in place of redis
    Moving(MeasureMoving),
    /// Print the tables of runs of `moving`
    MovingTable {
        /// Files of runs
        files: Vec<PathBuf>,
        /// Write the figures to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Have cold memory
    #[command(hide = true)]
    Cold {
        bytes: u64,
    },
}

/// Make runs, and write a line of JSON for each
#[derive(Args)]
struct Measure {
    /// Only these distributions, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    distributions: Vec<Distribution>,
    /// Only these configurations, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    configurations: Vec<Configuration>,
    /// Amounts of cold memory, in per cent of what is free on the fast node, separated by commas
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = SIZES)]
    sizes: Vec<f64>,
    /// How long the load runs where memory is moved, in seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    seconds: u64,
    /// Start what moves memory with the load, and not before everything else
    #[arg(long)]
    with_load: bool,
    /// The same where nothing moves
    #[arg(long, value_name = "S", default_value_t = 5)]
    still_seconds: u64,
    /// Records of 1,000 bytes in redis
    #[arg(long, value_name = "N", default_value_t = 180_000)]
    records: u64,
    #[command(flatten)]
    isotherm: Isotherm,
}

/// Measure with a hot set that moves, and write a line of JSON for each run
#[derive(Args)]
struct MeasureMoving {
    /// Only these configurations, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_value = "default,isotherm")]
    configurations: Vec<Configuration>,
    /// Cold memory, in per cent of what is free on the fast node
    #[arg(long, value_name = "PERCENT", default_value_t = 93.0)]
    cold: f64,
    /// The number of sets of memory, each of which is accessed for 30 s
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    sets: u32,
    /// The size of each set
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, default_value = "48M")]
    set_size: u64,
    /// How long the sets are accessed, in seconds
    #[arg(long, value_name = "S", default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[command(flatten)]
    isotherm: Isotherm,
}

/// How isotherm is called.
#[derive(Args)]
struct Isotherm {
    /// Path of isotherm
    #[arg(long, default_value = "isotherm")]
    isotherm: PathBuf,
    /// Options for `isotherm tier run`, separated by blanks
    #[arg(
        long,
        value_name = "OPTIONS",
        allow_hyphen_values = true,
        default_value = "--all --min-rss 20M --survey 4s --cpu-budget 60%"
    )]
    more: String,
}

impl Isotherm {
    fn options(&self) -> Vec<String> {
        self.more.split_whitespace().map(String::from).collect()
    }
}

fn main() -> Result<()> {
    match Options::parse().command {
        Command::Run(options) => measure(&options),
        Command::Table { files, json } => print_tables(&files, json),
        Command::Moving(options) => measure_moving(&options),
        Command::MovingTable { files, json } => print_moving_tables(&files, json),
        Command::Cold { bytes } => be_cold(bytes),
    }
}

fn measure(options: &Measure) -> Result<()> {
    ensure_laboratory()?;
    ensure!(options.records >= 100, "--records must be at least 100");
    ensure!(options.sizes.iter().all(|size| (0.0..100.0).contains(size)), "--sizes are per cents below 100");
    switches::begin(SWITCH)?;
    let settings = settings(options);
    let free_bytes = fast_free()?;
    let start = Instant::now();
    let mut failed = 0;
    for (nth, setting) in settings.iter().enumerate() {
        let is_still = !setting.configuration.moves();
        let runner = Runner {
            isotherm: options.isotherm.isotherm.clone(),
            options: options.isotherm.options(),
            records: options.records,
            time: Duration::from_secs(if is_still { options.still_seconds } else { options.seconds }),
            with_load: options.with_load,
            free_bytes,
            place: Path::new(PLACE).into(),
        };
        let at = format!("{:>4.0} s  {}/{}", start.elapsed().as_secs_f64(), nth + 1, settings.len());
        match runner.run(*setting) {
            Ok(run) => {
                let line = Line::of(&run);
                eprintln!(
                    "{at}  {} {}, cold {:.0} %: slow accesses {:.1} % at first, {:.1} % late; {:.0} requests/s",
                    line.distribution.name(),
                    line.configuration.name(),
                    line.cold_share * 100.0,
                    line.slow_share.first * 100.0,
                    line.slow_share.late * 100.0,
                    line.requests
                );
                write_run(&run)?;
            }
            Err(error) => {
                failed += 1;
                eprintln!("{at}  {setting:?}: {error:#}");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} runs failed", settings.len());
    }
    Ok(())
}

fn measure_moving(options: &MeasureMoving) -> Result<()> {
    ensure_laboratory()?;
    ensure!((0.0..100.0).contains(&options.cold), "--cold is a per cent below 100");
    ensure!(
        options.set_size > 0 && options.set_size.is_multiple_of(PAGE_SIZE),
        "--set-size is a whole number of pages of {PAGE_SIZE} bytes"
    );
    switches::begin(SWITCH)?;
    let runner = moving::Runner {
        isotherm: options.isotherm.isotherm.clone(),
        options: options.isotherm.options(),
        cold_share: options.cold / 100.0,
        free_bytes: fast_free()?,
        sets: options.sets as usize,
        set_bytes: options.set_size,
        seconds: options.seconds,
        place: Path::new(RESULTS).into(),
    };
    let start = Instant::now();
    let mut failed = 0;
    for (nth, &configuration) in options.configurations.iter().enumerate() {
        let run = runner.run(configuration);
        let at = format!("{:>4.0} s  {}/{}", start.elapsed().as_secs_f64(), nth + 1, options.configurations.len());
        match run {
            Ok(run) => {
                let share = moving::Line::of(&run).slow_share * 100.0;
                eprintln!("{at}  {}: slow accesses {share:.1} %", configuration.name());
                write_run(&run)?;
            }
            Err(error) => {
                failed += 1;
                eprintln!("{at}  {}: {error:#}", configuration.name());
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} runs failed", options.configurations.len());
    }
    Ok(())
}

/// Writes a run to standard output as soon as it has ended.
fn write_run(run: &impl Serialize) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(run)?)?;
    Ok(out.flush()?)
}

/// The runs to make, in their order.
fn settings(options: &Measure) -> Vec<Setting> {
    let or_all = |given: &[Configuration]| match given {
        [] => [Configuration::Fast, Configuration::Slow, Configuration::Default, Configuration::Isotherm].to_vec(),
        given => given.to_vec(),
    };
    let distributions = match &options.distributions[..] {
        [] => &[Distribution::Zipfian, Distribution::Latest],
        given => given,
    };
    let configurations = or_all(&options.configurations);
    let mut settings = Vec::new();
    for &distribution in distributions {
        for &configuration in configurations.iter().filter(|configuration| configuration.is_alone()) {
            settings.push(Setting { configuration, distribution, cold_share: 0.0 });
        }
    }
    for size in &options.sizes {
        for &distribution in distributions {
            for &configuration in configurations.iter().filter(|configuration| !configuration.is_alone()) {
                settings.push(Setting { configuration, distribution, cold_share: size / 100.0 });
            }
        }
    }
    settings
}

/// Reads the runs that files have.
fn read_runs<R: DeserializeOwned>(files: &[PathBuf]) -> Result<Vec<R>> {
    let mut runs = Vec::new();
    for file in files {
        let lines = BufReader::new(File::open(file).with_context(|| format!("{} cannot be read", file.display()))?);
        for line in lines.lines() {
            let line = line?;
            if line.starts_with('{') {
                runs.push(serde_json::from_str(&line).with_context(|| format!("{} is damaged", file.display()))?);
            }
        }
    }
    Ok(runs)
}

/// Writes the figures to a file, if one is given.
fn write_figures(json: Option<PathBuf>, figures: &serde_json::Value) -> Result<()> {
    let Some(path) = json else { return Ok(()) };
    std::fs::write(&path, serde_json::to_string_pretty(figures)?)
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn print_tables(files: &[PathBuf], json: Option<PathBuf>) -> Result<()> {
    let mut runs: Vec<Run> = read_runs(files)?;
    runs.sort_by(|a, b| {
        let key = |run: &Run| (run.distribution, run.configuration);
        key(a).cmp(&key(b)).then(a.cold_share.total_cmp(&b.cold_share))
    });
    let lines: Vec<Line> = runs.iter().map(Line::of).collect();
    let means = summary::means(&lines);
    println!("{}", summary::placement_table(&lines));
    println!("\n{}", summary::moves_table(&lines));
    println!("\n{}", summary::means_table(&means));
    println!("{NOTES}");
    write_figures(json, &json!({ "lines": lines, "means": means, "runs": runs }))
}

fn print_moving_tables(files: &[PathBuf], json: Option<PathBuf>) -> Result<()> {
    let runs: Vec<moving::Run> = read_runs(files)?;
    let lines: Vec<moving::Line> = runs.iter().map(moving::Line::of).collect();
    println!("{}", moving_table(&lines));
    println!("\n{}", phase_table(&lines));
    println!("{MOVING_NOTES}");
    write_figures(json, &json!({ "lines": lines, "runs": runs }))
}

const MOVING_NOTES: &str = "
Cold: memory that is touched once before the sets, in per cent of what is free on the fast node. At first: the part of
all sets that is on the slow node at the beginning; the slow node serves this share of the accesses if nothing moves.
Slow accesses: the share of the accesses that the slow node serves, which is the part of the accessed set that is there.
It is a mean over the run, over the last cycle (in which each set is accessed once), and over the last 10 s of each
phase of 30 s. Converged: seconds until nine tenths of the accessed set are on the fast node, median over the phases.
Back: share of what moved that moved back within a minute. The second table has each phase: slow accesses in per cent,
and the seconds until it has converged. Best: all of the accessed set is always on the fast node.";

const NOTES: &str = "
What moves memory starts first, then cold memory, redis and the load, in this order; with --with-load it starts when the
load does. Cold: memory that is touched once before redis starts, in per cent of what is free on the fast node. Slow:
memory of redis on the slow node, mean over the load; late: over its last quarter. Slow accesses: share of the reads of
records that the slow node serves, from the requests' distribution and the page of each record. Modelled time: 1 + slow
accesses x (price - 1), with the price of the 2-tier patches' machine for all memory in the slow tier, 1.21 (zipfian)
and 1.18 (latest); an emulated machine has no slow memory. Converged: nine tenths of the way from the first placement
to the late one. B/access: bytes moved for each access that the fast node served instead of the slow one. Back: share
of what moved that moved back within a minute. The means leave out runs without cold memory; that of times is geometric.

Theirs: the patches \"DAMON based tiered memory management for CXL memory\" (merged in Linux 6.11): redis of 52.6 GB on
a machine with CXL memory, measured times, each the mean of 50 loads of about a minute. A later version of the same
authors, HMSDK, has 38.1 -> 0.7 GB in the slow tier.";
