//! The options of `isotherm run`.

use std::path::PathBuf;

use clap::Args;

use super::{FilesOption, PhysicalOptions, WatchOptions};

/// Watch memory, and act on it by schemes
///
/// A scheme says which memory to act on, by size, access rate and age, and what to do with it. An example is "page out
/// what was not accessed for two minutes". docs/schemes.md describes the language of schemes, docs/acting.md what each
/// action does to a process. `isotherm scheme check` explains a scheme file; `isotherm scheme try` shows what it would
/// have done to a recording.
///
/// Memory is watched as by `isotherm record`: that of processes, all physical memory, or the page cache of files. Not
/// all actions are for all of these (docs/acting.md). After each aggregation interval the schemes are applied to the
/// regions. Actions run on a thread of their own and do not delay the monitor. Requests that the kernel refuses are
/// counted. If more than a tenth of the memory that `pageout` frees is soon in memory again, isotherm warns and halves
/// the quota of the scheme, if it has one. While the watermarks of all schemes make them sleep, nothing is monitored.
///
/// A scheme with `limit` sets limits of cgroups. They become what they were at the end of the run. If isotherm is
/// killed, its next run with schemes, or the next start of its daemon, gives them back (docs/acting.md).
///
/// Before the command is started, isotherm tries each action of the schemes on its own memory. An action that does not
/// work is an error.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Run {
    /// The scheme file: YAML, the one-line form of the DAMON papers, or damo's JSON. isotherm reads the file again when
    /// it changes and at SIGHUP. If the changed file has an error, the previous schemes stay in force
    #[arg(short, long, value_name = "FILE")]
    pub schemes: PathBuf,
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub files: FilesOption,
    #[command(flatten)]
    pub physical: PhysicalOptions,
    /// Write a recording to this file, which only its owner can read: the snapshots, what the schemes did, and how much
    /// memory was in use. `isotherm report schemes` shows it. An existing recording is kept as FILE.old
    #[arg(short, long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// With --record: end the run if the recording can no longer be written, as on a full disk. Without this, isotherm
    /// says so, and goes on acting
    #[arg(long, requires = "record")]
    pub record_needed: bool,
    /// With --record: take each line of standard input as a mark, which names the moment at which the line is read.
    /// Reports show marks on their time axes. At most 256 bytes of a line are kept. A command then has no standard
    /// input
    #[arg(long, requires = "record")]
    pub stdin_marks: bool,
    /// Do nothing to any process or cgroup, and say what the schemes would do. That each action would work is checked
    #[arg(long)]
    pub dry_run: bool,
    /// Show no progress and no summary at the end
    #[arg(short, long)]
    pub quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm scheme check prcl.yaml              what will it do?
  isotherm run --schemes prcl.yaml --pid 1234  until the process ends, or Ctrl-C
  isotherm run --schemes ethp.yaml -- ./my-program
  isotherm run --schemes prcl.yaml --children --record acted.rec -- make
  isotherm run --schemes reclaim.yaml --unit redis --dry-run
  isotherm run --schemes prcl.yaml --physical --dry-run
  isotherm run --schemes cache.yaml --files /var/lib/backup
  isotherm report schemes acted.rec            what did it do?

Signals: HUP makes isotherm read the scheme file again. With a command, isotherm passes INT, QUIT, TERM, USR1 and USR2 \
on to it, and ends when the command has ended. Without a command, INT, QUIT and TERM end the run. It also ends when \
its \
terminal is closed.";
