//! What schemes are worth: programs with and without them, how long they take and how much memory they hold.

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

/// What isotherm is given in the laboratory: an emulated machine takes ten times as long or more for everything, so that the default
/// intervals would be as if a real one sampled every half millisecond.
const SLOWLY: &str = "--sample 25ms --aggr 500ms";

/// Swap space in the laboratory.
const SWAP: u64 = 1 << 30;

/// Measure what schemes are worth: programs with and without them, how long they take and how much memory they hold
///
/// bench/schemes runs it in the laboratory. Each program runs under each configuration in turn, again and again, so that
/// whatever else the machine does falls on all alike.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Measure),
    /// Say which programs there are
    List,
    /// Make the tables of runs: lines of JSON, as `run` writes them
    Table {
        /// Files with runs
        files: Vec<PathBuf>,
        /// Write the figures to this file, too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Do the work of one program: what is measured
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

/// Run programs, and write a line of JSON for each run as it ends
#[derive(Args)]
struct Measure {
    /// How often each program runs under each configuration
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u32,
    /// Only these programs, separated by commas (`bench/schemes --list`)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Only these configurations, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    configurations: Vec<Configuration>,
    /// Do so many times the work
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    length: f64,
    /// How often something else runs for a moment on each emulated processor, in milliseconds; 0 is never
    #[arg(long, value_name = "MS", default_value_t = 2)]
    switch: u64,
    /// Where isotherm is
    #[arg(long, default_value = "isotherm")]
    isotherm: PathBuf,
    /// Where the scheme files are
    #[arg(long, default_value = "schemes")]
    schemes: PathBuf,
    /// More for isotherm, separated by blanks: --more="--probe bpf" [default in the laboratory, where everything takes at least
    /// ten times as long: --sample 25ms --aggr 500ms]
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
        Command::Table { files, json } => tell(&files, json),
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
        machine.lets_programs_ask()?;
    }
    if machine == Machine::Laboratory {
        machine.swap_to_zram(SWAP)?;
        if options.switch > 0 {
            switches::begin(Duration::from_millis(options.switch))?;
        }
    }
    let default = if machine == Machine::Laboratory { SLOWLY } else { "" };
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
        // An emulator translates a program when it first runs, which takes many times as long as running it.
        eprintln!("{}: once to warm up", workload.name);
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

fn tell(files: &[PathBuf], json: Option<PathBuf>) -> Result<()> {
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
    println!("{}", summary::table(&lines));
    if let Some(table) = summary::huge_pages_table(&lines) {
        println!("\n{table}");
    }
    for sentence in summary::in_all(&lines) {
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
Runtime: of the program, without isotherm's start and end; ±: standard deviation; least: change of the least runtime, on which other work on the
machine tells least. RSS: of the program's processes, mean over the run; late: change over its last quarter. System: memory that is not free,
beyond that before the run, with isotherm and what zram holds. To orig: change of the mean.

The papers' figures, and what differs in the setting:
  DAMON (Middleware Industry '19, HPDC '22): prcl saves up to 93 % of RSS at 1.2 % slowdown, 20 % on the mean at 7.6 %; ethp removes 76 % of what
  huge pages waste and keeps 51 % of the speed they bring. It runs in the kernel, on PARSEC 3 and SPLASH-2x, on bare metal, for minutes a
  program, with zram as swap. Ours runs in user space, on other programs, for some 10 to 20 s each, of which prcl waits 5 and ethp 7. In the
  laboratory the machine is emulated: to watch, to compress and to fault take ten times as long or more; a huge page saves page faults and a
  level of the page table, but no TLB entry; and isotherm competes with the program for this machine's processors.";
