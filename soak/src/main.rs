//! `isotherm-soak`: what goes on for long. `./dev soak` runs it.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, Subcommand};
use isotherm_soak::churn;
use isotherm_soak::daemon::{self, Load};
use isotherm_soak::faults::{self, Extent, Kind, Room};
use isotherm_soak::target::{self, Start};

/// Commands that watch take most of a second, so that each call of them would take hours.
const LIVE: u64 = 40;

/// Let isotherm run for long, under conditions that it has to stand.
#[derive(Parser)]
struct Cli {
    /// The program isotherm
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Let the n-th system call of each kind fail, for each command and each n
    Faults {
        /// Only commands that contain this text
        #[arg(long)]
        only: Option<String>,
        /// Let each call fail up to this one, and beyond, calls ever farther apart [default: each call of commands that
        /// read files, the first 40 of commands that watch]
        #[arg(long)]
        each: Option<u64>,
        /// Try one error for each call, which changes from call to call
        #[arg(long)]
        one_error: bool,
        /// Kill the command at each call, instead of letting the call fail
        #[arg(long)]
        kill: bool,
    },
    /// Record processes that come and go
    Churn {
        /// For how many minutes
        #[arg(long, default_value_t = 15.0)]
        minutes: f64,
        /// The probe
        #[arg(long, default_value = "auto")]
        probe: String,
    },
    /// Load the daemon, kill it, and let it watch processes that come and go
    Daemon {
        /// For how many minutes processes come and go
        #[arg(long, default_value_t = 30.0)]
        minutes: f64,
        /// For how many seconds it is loaded
        #[arg(long, default_value_t = 60)]
        load: u64,
        /// How often it is killed
        #[arg(long, default_value_t = 200)]
        kills: u32,
    },
}

fn main() -> Result<ExitCode> {
    if let Some(rounds) = std::env::var(target::ROUNDS).ok().and_then(|rounds| rounds.parse().ok()) {
        return Ok(target::is_target(rounds));
    }
    if std::env::var_os(target::CHURN).is_some() {
        churn::is_parent()?;
        return Ok(ExitCode::SUCCESS);
    }
    let cli = Cli::parse();
    let isotherm = cli.isotherm.canonicalize()?;
    let start = Start(vec![std::env::current_exe()?.to_string_lossy().into_owned()]);
    match cli.command {
        Command::Faults { only, each, one_error, kill } => {
            let room = Room::new(&isotherm, &start)?;
            let mut found = 0;
            for case in faults::cases(&room) {
                let call = case.arguments.join(" ");
                // Only what writes or acts can be killed at a bad moment.
                let is_harmless = kill && case.output.is_none() && !case.live;
                if is_harmless || only.as_ref().is_some_and(|only| !call.contains(only.as_str())) {
                    continue;
                }
                let begun = Instant::now();
                let each = each.unwrap_or(if case.live { LIVE } else { u64::MAX });
                let extent = Extent { each, every_error: !one_error };
                let (findings, runs) = match kill {
                    true => faults::kills(&room, &case, &Kind::ALL, extent)?,
                    false => faults::sweep(&room, &case, &Kind::ALL, extent)?,
                };
                println!("{call}: {runs} runs in {:.1} s", begun.elapsed().as_secs_f64());
                for finding in &findings {
                    println!("  {}\n    {}", finding.fault, finding.wrong.trim());
                }
                found += findings.len();
            }
            if found > 0 {
                println!("{found} findings");
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Churn { minutes, probe } => {
            let churned = churn::churn(&isotherm, &start, &probe, Duration::from_secs_f64(minutes * 60.0))?;
            println!("churn: {} targets in {minutes} minutes; {:?}", churned.targets, churned.used);
            if !churned.wrong.is_empty() {
                println!("  {}", churned.wrong.join("\n  "));
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Daemon { minutes, load, kills } => {
            let mut wrong = vec![];
            if load > 0 {
                let load = Load { time: Duration::from_secs(load), rate: 500, streams: 100 };
                let loaded = daemon::load(&isotherm, &start, load)?;
                println!("load: {loaded:#?}");
                wrong.extend(loaded.wrong);
            }
            if kills > 0 {
                let killed = daemon::kills(&isotherm, &start, kills)?;
                println!("{kills} kills: {killed:?}");
                wrong.extend(killed.wrong);
            }
            if minutes > 0.0 {
                let churned = daemon::churned(&isotherm, &start, Duration::from_secs_f64(minutes * 60.0))?;
                println!("churn: {minutes} minutes; {:?}", churned.used);
                wrong.extend(churned.wrong);
            }
            if !wrong.is_empty() {
                println!("  {}", wrong.join("\n  "));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
