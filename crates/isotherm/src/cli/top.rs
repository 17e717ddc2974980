//! The options of `isotherm top`.

use std::path::PathBuf;

use clap::Args;

use super::ctl::SOCKET;
use super::targets::SELECTORS;
use super::{FilesOption, PhysicalOptions, WatchOptions};

/// The options that say what is watched, and how. The daemon has its configuration for that.
const WATCHING: [&str; 39] = [
    "pid",
    "name",
    "command-line",
    "cgroup",
    "unit",
    "container",
    "all",
    "min_rss",
    "exclude",
    "children",
    "wait",
    "mapping",
    "duration",
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
    "intervals_goal",
    "sample",
    "aggr",
    "update",
    "regions",
    "seed",
    "user",
    "command",
    "physical",
    "files",
    "open_files",
    "range",
    "node",
    "schemes",
    "log",
];

/// Watch the memory accesses of processes, or of all physical memory, live
///
/// The screen shows the working set, a heatmap, the hottest mappings, and what the monitor costs. In the heatmap time
/// goes from left to right and addresses go from bottom to top, without the gaps between mappings; the colour is the
/// access rate. Figures are means over the last second. Keys pause the screen and zoom into addresses and time.
///
/// Memory is watched as by `isotherm record`. With --schemes, isotherm also acts on it, as `isotherm run` does, and the
/// screen shows what each scheme does.
///
/// With --connect, a running daemon watches, and the screen shows what it finds in one of its groups.
///
/// The output of a command that isotherm starts is discarded, or written to the file that --log names. When the target
/// has ended, the last picture stays until q is pressed.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Top {
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub files: FilesOption,
    #[command(flatten)]
    pub physical: PhysicalOptions,
    /// Act on memory by the schemes of this file: YAML, the one-line form of the DAMON papers, or damo's JSON. isotherm
    /// reads the file again when it changes and at SIGHUP. If the changed file has an error, the previous schemes stay
    /// in force
    #[arg(short, long, value_name = "FILE")]
    pub schemes: Option<PathBuf>,
    /// Show this group of the running daemon, instead of watching with a probe of one's own
    #[arg(long, value_name = "GROUP", conflicts_with_all = WATCHING)]
    pub connect: Option<String>,
    /// With --connect: the socket of the daemon
    #[arg(long, value_name = "PATH", default_value = SOCKET, hide_short_help = true)]
    pub socket: PathBuf,
    /// Append the standard output and error of the command to this file [default: discard them]
    #[arg(long, value_name = "FILE", conflicts_with_all = SELECTORS)]
    pub log: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Keys:
  q, Ctrl-C       quit
  ?, F1           help on the screen
  Space, p        pause the screen; the monitor continues
  Up, Down, k, j  move the cursor through the addresses
  PgUp, PgDn      move it by half a screen
  +, Enter        zoom into the addresses at the cursor, or the selection
  v               start a selection at the cursor; Esc cancels it
  1 to 9          zoom into that line of the table; in the table of processes:
                  select that process; in the table of schemes: show the last
                  application of that scheme
  -               zoom out
  Home, 0         all addresses
  Left, Right     go back and forth in time (h, l)
  End             back to now
  [, ]            show less, more time: 15 s to 1 h
  s, S            sort the table by the next, the previous column
  r               reverse the order
  t               switch between the tables of processes and mappings
  g               group the processes by cgroup, and back
  a               switch to the table of schemes and back
  Tab, Shift-Tab  the next, the previous target
  Ctrl-L, Ctrl-Z  redraw, suspend

Examples:
  isotherm top --pid 1234                      a process
  isotherm top --pid 1234 --children           a process and all that it starts
  isotherm top --physical                      all memory of the machine
  isotherm top --schemes prcl.yaml --pid 1234  a process and what a scheme does
  isotherm top --log out.txt -- ./my-program
  isotherm top --connect redis                 a group of the running daemon

History: isotherm keeps about the last 60,000 aggregation intervals, 100 minutes by default, in at most 25 MB for all \
targets together. Older times are kept at a lower resolution. A paused screen takes the same amount again.

Terminal: the screen uses true colours or 256 colours. With fewer, or if NO_COLOR is set, access rates are digits. \
Standard input goes to the command unless it is a terminal.

Signals: HUP, INT, QUIT and TERM end isotherm and the command. With --schemes, a HUP that a process sends makes \
isotherm read the scheme file again. USR1 and USR2 are passed on to the command.

Exit status: that of the command if it ended by itself, or 128 plus the number of the signal that ended it; 0 \
if q ended \
the command (it gets SIGTERM) or there is no command; 1 if the run failed; 2 if the call was wrong or there is no \
terminal.";

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn all_options_but_those_of_the_daemon_contradict_it() {
        let command = Top::augment_args(clap::Command::new("top"));
        let mut found: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        found.retain(|id| !["connect", "socket"].contains(id));
        found.sort_unstable();
        let mut expected = WATCHING;
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
