//! The call of `isotherm run`.

use std::path::PathBuf;

use clap::Args;

use super::Watch;

/// Act on the memory of processes by its temperature, as schemes say
///
/// Watches a command from its start to its end, or processes that run already until they end, the time is over, or Ctrl-C is
/// pressed; and after each aggregation interval does what the schemes want: reclaims what is cold, backs with huge pages what is hot.
/// docs/schemes.md describes the language of schemes, docs/acting.md what each action does to a process. `isotherm scheme
/// check` says what a file will do, `isotherm scheme try` what it would have done to a recording.
///
/// An action that does not work here is an error before the command is started. While it runs, what the kernel refuses is counted.
/// Actions run beside the monitor, on a thread of their own. While all schemes sleep, nothing is monitored.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, mut_arg("physical", |arg| arg.hide(true)))]
pub struct Run {
    /// The schemes: YAML, the lines of the DAMON papers, or damo's JSON. When the file changes, or at SIGHUP, they are read
    /// again; if there is an error in it, those in force stay
    #[arg(short, long, value_name = "FILE")]
    pub schemes: PathBuf,
    #[command(flatten)]
    pub watch: Watch,
    /// Write a recording to this file, which only its owner may read: what was found, what the schemes did, and how much
    /// memory was in use (isotherm report schemes)
    #[arg(short, long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Show no progress, and do not tell at the end what was done
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  isotherm scheme check prcl.yaml                        what it will do
  isotherm run --schemes prcl.yaml --pid 1234            until that process ends, or Ctrl-C
  isotherm run --schemes ethp.yaml -- ./my-program
  isotherm run --schemes prcl.yaml --children --record acted.rec -- make
  isotherm report schemes acted.rec                      what was done, beside the memory in use

Signals: HUP makes isotherm read the schemes again. With a command, INT, QUIT, TERM, USR1 and USR2 are passed on to it, and \
isotherm ends when it has. Without one, INT, QUIT and TERM end the run, and so does the end of its terminal.";
