//! The call of `isotherm top`.

use std::path::PathBuf;

use clap::Args;

use super::Watch;

/// Watch the memory temperature of processes, or of all physical memory, live
///
/// A screen that moves with time: the heatmap (time across, the newest at the right; addresses up, without the gaps
/// between them; colour is the access rate), the working set, the hottest mappings, and what the monitor itself costs.
/// Figures are means over the last second. A key pauses the screen, others zoom into addresses and time.
///
/// With --schemes it acts on what it sees, as `isotherm run` does: reclaims what is cold, backs with huge pages what is hot. What each
/// scheme does is on the screen, too.
///
/// A command that isotherm starts shows nothing on this screen: what it writes is discarded, or kept with --log. When
/// the target ends, the last picture stays until q is pressed.
#[derive(Args)]
#[command(after_long_help = KEYS)]
pub struct Top {
    #[command(flatten)]
    pub watch: Watch,
    /// Act as these schemes say: YAML, the lines of the DAMON papers, or damo's JSON. When the file changes, or at SIGHUP, they are
    /// read again; if there is an error in it, those in force stay
    #[arg(short, long, value_name = "FILE")]
    pub schemes: Option<PathBuf>,
    /// Add what the command writes to its standard output and error to this file [default: discard it]
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pub log: Option<PathBuf>,
}

const KEYS: &str = "\
Keys:
  q, Ctrl-C         quit
  ?, F1             help, on the screen
  Space, p          pause: the screen stands still, the monitor goes on
  Up, Down          move the cursor through the addresses (k, j); it says what lies there
  PgUp, PgDn        move it by half a screen
  +, Enter          zoom into the addresses around the cursor, or into the selection
  v                 begin a selection at the cursor; Esc gives it up
  1 to 9            zoom into that line of the table; of schemes: show what that one did last
  -                 zoom out
  Home, 0           all addresses
  Left, Right       go back and forth in time (h, l)
  End               back to now
  [, ]              show less, show more time: from 15 s to 1 h
  s, S              sort the table by the next, by the previous column
  r                 reverse the order
  a                 the table of schemes and what they did, and back (with --schemes)
  Tab, Shift-Tab    the next, the previous target
  Ctrl-L, Ctrl-Z    draw anew, suspend

Examples:
  isotherm top --pid 1234                  a process that runs
  isotherm top --pid 1234 --children       it and all that it starts
  isotherm top --physical                  all memory of the machine
  isotherm top --schemes prcl.yaml --pid 1234
                                           it, and what the scheme does to it
  isotherm top --log out.txt -- ./my-program

The past is kept for about 60,000 aggregations (100 minutes of 100 ms), the older the coarser, in at most 25 MB for \
all targets; a paused screen keeps as much again. Colours are true or of 256 where the terminal has them, otherwise access \
rates are digits; NO_COLOR is honoured. Standard input, if it is no terminal, goes to the command.

Signals: HUP, INT, QUIT and TERM end it, the command too; but a HUP that a process sends, and not the terminal, makes isotherm read \
the schemes again, if there are any. USR1 and USR2 are passed on to the command.

Exit status: with a command that ended by itself, its own, or 128 and the number of the signal that ended it; else 0, \
also if q ended the command (it gets SIGTERM). 1 if the run failed, 2 if the call was wrong or this is no terminal.";
