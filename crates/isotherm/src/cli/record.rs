//! The options of `isotherm record`.

use std::path::PathBuf;

use clap::Args;

use super::targets::SELECTORS;
use super::{FilesOption, PhysicalOptions, RECORDING, WatchOptions};

/// Record the memory accesses of processes, or of all physical memory
///
/// Name processes with --pid, give a command after `--`, or choose --physical. The recording ends when the last process
/// or the command has ended, after --duration, or at Ctrl-C.
///
/// The memory of each target is divided into regions. In each sampling round isotherm checks for one random page of
/// each region whether it was accessed. A region whose access rate has been steady for ten aggregation intervals is
/// sampled less often, down to one round in 12. So a round never checks more pages than there are regions.
///
/// With the probes idle and bpf, isotherm also surveys all pages in memory, once a second or less often (--survey). The
/// survey finds which pages were accessed since the survey before, also those that are accessed too rarely for samples
/// to find. `isotherm report wss --window 5s` shows how much memory was accessed within 5 seconds. docs/survey.md has
/// the details.
///
/// After each aggregation interval isotherm writes a snapshot of all regions. It then merges neighbouring regions of
/// about the same access rate, and splits regions at random addresses to find new borders. After each update interval
/// it reads the mappings of the targets again.
///
/// With --physical on a kernel without idle page tracking, all processes are surveyed, isotherm included. Page cache
/// that no process maps and the memory of the kernel are left out. With idle page tracking, all memory of users is
/// surveyed, page cache included. docs/probes.md describes what each probe sees.
///
/// The recording is an Apache Arrow IPC stream (docs/recording.md). If isotherm is killed, the recording stays
/// readable, and at most the last second is lost. If a command ends before the first aggregation interval is over, the
/// recording has what was observed until then.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Record {
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub files: FilesOption,
    #[command(flatten)]
    pub physical: PhysicalOptions,
    /// Also record which code maps memory, for `isotherm report summary --by stack`. Needs root
    ///
    /// The recording has the call stack of each mmap(), mremap() and brk() of the processes, from its start or that of
    /// the command. This slows down the system calls of the whole machine (docs/stacks.md).
    #[arg(long, conflicts_with_all = ["physical", "files", "open_files"])]
    pub stacks: bool,
    /// Watch a group, which this file describes as it stands in the configuration of `isotherm daemon`: its processes,
    /// its attributes, and its schemes, which act if it says `act: true`. Takes the place of all options about what is
    /// watched, and how (docs/daemon.md)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[arg(conflicts_with_all = SELECTORS, conflicts_with_all = WATCHING)]
    pub config: Option<PathBuf>,
    /// Write the recording to this file, which only its owner can read. An existing recording is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = RECORDING)]
    pub output: PathBuf,
    /// Take each line of standard input as a mark, which names the moment at which the line is read. Reports show marks
    /// on their time axes. At most 256 bytes of a line are kept. A command then has no standard input
    #[arg(long, hide_short_help = true)]
    pub stdin_marks: bool,
    /// Show no progress, and no summary at the end
    #[arg(short, long)]
    pub quiet: bool,
}

/// The options whose place a group takes.
const WATCHING: [&str; 25] = [
    "command",
    "physical",
    "files",
    "open_files",
    "range",
    "exclude",
    "children",
    "wait",
    "mapping",
    "user",
    "probe",
    "survey",
    "shared",
    "shared_hold",
    "allow_pauses",
    "cpu_budget",
    "target_budget",
    "start",
    "nice",
    "cpu_affinity",
    "intervals",
    "sample",
    "aggr",
    "update",
    "regions",
];

const AFTER_HELP: &str = "\
Examples:
  isotherm record -- ./my-program             from its start to its end
  isotherm record --pid 1234 --duration 1m    one minute of a process
  isotherm record --pid 1234 --children       a process and all that it starts
  isotherm record --stacks -- ./my-program    also which code maps memory
  isotherm record --pid 1234 --aggr 1s        fewer snapshots, finer rates
  isotherm record --pid 1234 --sample off     surveys only: no access rates
  ./load-test | isotherm record --pid 1234 --stdin-marks
  isotherm record --physical --duration 1m    all memory of the machine
  isotherm record --physical -- ./my-program  all memory while a program runs

Signals: with a command, isotherm passes HUP, INT, QUIT, TERM, USR1 and USR2 on to it, and ends when the command has \
ended. Without a command, HUP, INT, QUIT and TERM end the recording properly.";
