//! Redis beside cold memory on two memory nodes, with `isotherm tier run` and without.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use isotherm_bench::schemes::machine::Machine;
use isotherm_bench::schemes::switches;
use isotherm_bench::tiering::run::{Run, Runner, Setting, be_cold};
use isotherm_bench::tiering::summary::{self, Line};
use isotherm_bench::tiering::{Configuration, Distribution};
use serde_json::json;

/// Cold memory, in per cent of what is free on the fast node.
const SIZES: [f64; 8] = [0.0, 85.0, 87.0, 89.0, 91.0, 93.0, 95.0, 97.0];

/// Interval of the forced address space switches on each emulated processor.
const SWITCH: Duration = Duration::from_millis(2);

/// Where the files of a measurement are in the laboratory.
const PLACE: &str = "/tmp";

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

fn main() -> Result<()> {
    match Options::parse().command {
        Command::Run(options) => measure(&options),
        Command::Table { files, json } => print_tables(&files, json),
        Command::Cold { bytes } => be_cold(bytes),
    }
}

fn measure(options: &Measure) -> Result<()> {
    ensure!(Machine::this() == Machine::Laboratory, "this measurement runs in the laboratory only: bench/tiering");
    ensure!(options.records >= 100, "--records must be at least 100");
    ensure!(options.sizes.iter().all(|size| (0.0..100.0).contains(size)), "--sizes are per cents below 100");
    switches::begin(SWITCH)?;
    let settings = settings(options);
    let start = Instant::now();
    let mut failed = 0;
    for (nth, setting) in settings.iter().enumerate() {
        let is_still = !setting.configuration.moves();
        let runner = Runner {
            isotherm: options.isotherm.clone(),
            options: options.more.split_whitespace().map(String::from).collect(),
            records: options.records,
            time: Duration::from_secs(if is_still { options.still_seconds } else { options.seconds }),
            with_load: options.with_load,
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
                let mut out = stdout().lock();
                writeln!(out, "{}", serde_json::to_string(&run)?)?;
                out.flush()?;
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

fn print_tables(files: &[PathBuf], json: Option<PathBuf>) -> Result<()> {
    let mut runs: Vec<Run> = Vec::new();
    for file in files {
        let lines = BufReader::new(File::open(file).with_context(|| format!("{} cannot be read", file.display()))?);
        for line in lines.lines() {
            let line = line?;
            if line.starts_with('{') {
                runs.push(serde_json::from_str(&line).with_context(|| format!("{} is damaged", file.display()))?);
            }
        }
    }
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
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&json!({ "lines": lines, "means": means, "runs": runs }))?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

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
