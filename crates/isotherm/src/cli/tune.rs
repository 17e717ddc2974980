//! The options of `isotherm tune`.

use std::path::PathBuf;

use clap::Args;
use isotherm_report::{Format, Kind};

use super::report::formats;
use super::{PhysicalOptions, WatchOptions};

/// Find suitable attributes and the working set of a process, and give advice on its memory
///
/// isotherm watches as `record` does, for 30 seconds unless --duration says otherwise, and then prints the attributes
/// that it has settled on, as options of `isotherm record`; the working set over windows from a second to the time
/// watched, with the memory that was idle for as long; and advice: a suitable limit of memory, how much memory could be
/// reclaimed, and whether huge pages are worth a try. A command after `--` is watched to its end, unless there is a
/// --duration.
///
/// Each piece of advice names the figures that it rests on and what it does not know. If the evidence is too small for
/// advice, isotherm says so. isotherm changes nothing without --apply. docs/tune.md describes the rules and the
/// figures.
///
/// `isotherm report tune` prints the same about an existing recording, without the facts that only the running machine
/// has: the cgroup of the target, and huge pages in use.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Tune {
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub physical: PhysicalOptions,
    /// Keep the recording in this file, which only its owner can read, for `isotherm report` and `isotherm scheme
    /// try`. An existing recording is kept as FILE.old
    #[arg(short, long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// The format [default: that of the extension of -o (.txt or .json), else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(Kind::Tune.formats()))]
    pub format: Option<Format>,
    /// Write the schemes that are advised to this file, for `isotherm run --schemes FILE`. If none is advised, nothing
    /// is written
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Write the report to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// After the report, limit the cgroups of the targets (memory.high) to their right size until Ctrl-C: what they
    /// have needed in 95 % of the minutes, and 15 % more. The limits become what they were when a cgroup waits for
    /// memory, at the end, and after a crash at the next start. Needs --cgroup, --unit or --container, and a longer
    /// --duration [default: 5m]
    #[arg(long)]
    pub apply: bool,
    /// With --apply, set no limit, and say which ones would be set
    #[arg(long, requires = "apply")]
    pub dry_run: bool,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm tune --pid 1234                  30 seconds of a process
  isotherm tune --pid 1234 --duration 5m    longer windows, better advice
  isotherm tune --pid 1234 --children       a process and all that it starts
  isotherm tune -- ./my-program             from its start to its end
  isotherm tune --pid 1234 --format json -o tune.json
  isotherm tune --pid 1234 --record tune.rec
  isotherm tune --pid 1234 --save mine.yaml
  isotherm tune --unit redis --duration 1h --apply

Signals: without a command, HUP, INT, QUIT and TERM end the time early, and the report is about what is known so far. \
With a command, isotherm passes them, USR1 and USR2 on to it, and ends when the command has ended.";
