//! The effect of schemes: runtime and memory of programs with and without them.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use isotherm_bench::schemes::machine::Machine;
use isotherm_bench::schemes::run::{Runner, default_place};
use isotherm_bench::schemes::workload::Workload;
use isotherm_bench::schemes::{Configuration, Run, summary, switches, work};
use serde_json::json;

/// Options of isotherm in the laboratory. An emulated machine is at least ten times slower than a real one;
/// with the default intervals, monitoring would cost as much as sampling every half millisecond on a real
/// machine.
const LABORATORY_OPTIONS: &str = "--sample 25ms --aggr 500ms";

/// Size of swap in the laboratory.
const SWAP: u64 = 1 << 30;

/// Measure the effect of schemes: runtime and memory of programs with and without them
///
/// bench/schemes runs this program in the laboratory. The configurations of a program run in turn, so that
/// other work on the machine affects all of them alike.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Measure),
    /// List the programs
    List,
    /// Print the tables of runs; the input is JSON Lines as `run` writes them
    Table {
        /// Files of runs
        files: Vec<PathBuf>,
        /// Write the figures to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Do the work of one program
    #[command(hide = true)]
    Work {
        workload: String,
        place: PathBuf,
        #[arg(long)]
        length: f64,
        #[arg(long)]
        huge: bool,
    },
}

/// Run programs and write a line of JSON for each run
#[derive(Args)]
struct Measure {
    /// Runs of each program under each configuration
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u32,
    /// Only these programs, separated by commas; bench/schemes --list prints the names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Only these configurations, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    configurations: Vec<Configuration>,
    /// Multiply the work of each program by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    length: f64,
    /// Interval of the forced address space switches on each emulated processor, in milliseconds; 0 for none
    #[arg(long, value_name = "MS", default_value_t = 2)]
    switch: u64,
    /// Path of isotherm
    #[arg(long, default_value = "isotherm")]
    isotherm: PathBuf,
    /// Directory of the scheme files
    #[arg(long, default_value = "schemes")]
    schemes: PathBuf,
    /// More options for isotherm, separated by blanks: --more="--probe bpf" [default in the laboratory: --sample 25ms
    /// --aggr 500ms]
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    more: Option<String>,
}

fn main() -> Result<()> {
    match Options::parse().command {
        Command::Run(options) => measure(&options),
        Command::List => {
            for (place, machine) in [("in the laboratory", Machine::Laboratory), ("with --here", Machine::Here)] {
                println!("{place}:");
                for workload in Workload::all(machine) {
                    println!("  {:<18} {}", workload.name, workload.about);
                }
            }
            Ok(())
        }
        Command::Table { files, json } => print_tables(&files, json),
        Command::Work { workload, place, length, huge } => work::work(&named(&workload)?, &place, length, huge),
    }
}

fn named(name: &str) -> Result<Workload> {
    Workload::named(Machine::this(), name)
        .with_context(|| format!("there is no workload {name}; see bench/schemes --list"))
}

fn measure(options: &Measure) -> Result<()> {
    let machine = Machine::this();
    let workloads: Vec<Workload> = match &options.workloads[..] {
        [] => Workload::all(machine).to_vec(),
        names => names.iter().map(|name| named(name)).collect::<Result<_>>()?,
    };
    let wanted = |configuration: &Configuration| match &options.configurations[..] {
        [] => *configuration != Configuration::Rec,
        wanted => wanted.contains(configuration),
    };
    let of = |workload: &Workload| workload.configurations(machine).iter().copied().filter(wanted).collect::<Vec<_>>();
    if workloads.iter().any(|workload| of(workload).contains(&Configuration::Thp)) {
        machine.require_madvise()?;
    }
    if machine == Machine::Laboratory {
        machine.swap_to_zram(SWAP)?;
        if options.switch > 0 {
            switches::begin(Duration::from_millis(options.switch))?;
        }
    }
    let default = if machine == Machine::Laboratory { LABORATORY_OPTIONS } else { "" };
    let more = options.more.as_deref().unwrap_or(default);
    std::fs::create_dir_all(default_place(machine))?;
    let place = tempfile::tempdir_in(default_place(machine))?;
    let runner = Runner {
        isotherm: options.isotherm.clone(),
        schemes: options.schemes.clone(),
        more: more.split_whitespace().map(String::from).collect(),
        length: options.length,
        machine,
        place: std::path::absolute(place.path())?,
    };
    let (all, mut done) =
        (options.runs as usize * workloads.iter().map(|workload| of(workload).len()).sum::<usize>(), 0);
    let mut failed = 0;
    for workload in &workloads {
        runner.prepare(workload)?;
        // An emulator translates a program's code at its first run, which is many times slower.
        eprintln!("{}: warm-up", workload.name);
        if let Err(error) = runner.run(workload, Configuration::Orig, 0) {
            eprintln!("{error:#}");
        }
    }
    let start = Instant::now();
    for nth in 1..=options.runs {
        for workload in &workloads {
            for configuration in &of(workload) {
                done += 1;
                let at = format!("{:>4.0} s  {done}/{all}", start.elapsed().as_secs_f64());
                match runner.run(workload, *configuration, nth) {
                    Ok(run) => {
                        let mib = |bytes: f64| bytes / f64::from(1 << 20);
                        eprintln!(
                            "{at}  {} {}: {:.2} s, RSS {:.1} MiB, system {:.1} MiB",
                            run.workload,
                            configuration.name(),
                            run.seconds,
                            mib(run.rss_mean),
                            mib(run.system_mean)
                        );
                        let mut out = stdout().lock();
                        writeln!(out, "{}", serde_json::to_string(&run)?)?;
                        out.flush()?;
                    }
                    Err(error) => {
                        failed += 1;
                        eprintln!("{at}  {error:#}");
                    }
                }
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {all} runs failed");
    }
    Ok(())
}

fn print_tables(files: &[PathBuf], json: Option<PathBuf>) -> Result<()> {
    let mut runs: Vec<Run> = Vec::new();
    for file in files {
        let lines = BufReader::new(File::open(file).with_context(|| format!("{} cannot be read", file.display()))?);
        for line in lines.lines() {
            let line = line?;
            if line.starts_with('{') {
                runs.push(serde_json::from_str(&line).with_context(|| format!("{} holds {line}", file.display()))?);
            }
        }
    }
    let lines = summary::lines(&runs);
    println!("{}", summary::runtime_table(&lines));
    println!("\n{}", summary::memory_table(&lines));
    if let Some(table) = summary::huge_pages_table(&lines) {
        println!("\n{table}");
    }
    for sentence in summary::sentences(&lines) {
        println!("\n{sentence}");
    }
    println!("{PAPERS}");
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&json!({ "lines": lines, "runs": runs }))?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

const PAPERS: &str = "
Runtime: of the program, without isotherm's start and end; ±: standard deviation; min: change of the shortest
runtime, which other work on the machine affects least. RSS: of the program's processes, mean over the run;
late: change over its last quarter. System: memory that is not free, minus the same before the run; includes
isotherm and zram. vs orig: change of the mean.

Figures of the papers, and how their setting differs:
  DAMON (Middleware Industry '19, HPDC '22): prcl saves up to 93 % of RSS at 1.2 % slowdown, 20 % on the mean
  at 7.6 %; ethp removes 76 % of the memory that huge pages waste and keeps 51 % of the speed they gain. It
  runs in the kernel, on PARSEC 3 and SPLASH-2x, on bare metal, for minutes a program, with zram as swap.
  isotherm runs in user space, on other programs, for 10 to 20 s each; prcl waits 5 s of that, ethp 7 s. The
  laboratory's machine is emulated: monitoring, compression and page faults take at least ten times as long; a
  huge page saves page faults and a page-table level, but no TLB entry; and isotherm competes with the program
  for the processors.";
