//! The command line: commands, options and their help texts. This module knows nothing of how the commands work.

mod check;
mod convert;
mod ctl;
mod cut;
mod daemon;
mod diff;
mod eval;
mod fleet;
mod idle;
mod man;
mod mark;
mod merge;
mod reading;
mod record;
mod report;
mod run;
mod scheme;
mod targets;
mod tier;
mod tools;
mod top;
mod tune;
mod watch;

use clap::{Parser, Subcommand, ValueEnum};

pub use check::Check;
pub use convert::Convert;
pub use ctl::{Ctl, CtlCommand, CtlReport, SOCKET, Set as CtlSet};
pub use cut::Cut;
pub use daemon::Daemon;
pub use diff::Diff;
pub use eval::{Eval, EvalCommand, EvalPressure, EvalPrograms, EvalReport, EvalRun};
#[cfg(feature = "fleet-query")]
pub use fleet::{AnswerFormat, AnswerOptions, FleetQuery, FleetReport};
pub use fleet::{Fleet, FleetCommand};
pub use idle::{By, Idle, IdleProbeChoice};
pub use man::Man;
pub use mark::Mark;
pub use merge::Merge;
pub use reading::Reading;
pub use record::Record;
pub use report::{KindOptions, RegionOptions, Report, selected};
pub use run::Run;
pub use scheme::{Scheme, SchemeCommand, SchemeTune};
pub use tier::{Grouping, Tier, TierCommand, TierConfig, TierList, TierRun, TierSchemes, TierTry};
pub use tools::{Completions, Doctor, Schema, Workload};
pub use top::Top;
pub use tune::Tune;
pub use watch::{
    BudgetOptions, Cpus, FilesOption, IntervalsChoice, PhysicalOptions, ProbeChoice, Sampling, SharedOption,
    StartChoice, WatchOptions,
};

/// The format of what has no picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlainFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// The recording that commands use unless another is named.
const RECORDING: &str = "isotherm.rec";

/// Show which memory is hot, which is cold, and for how long.
///
/// isotherm samples the memory accesses of running processes, or of all physical memory. Neighbouring pages of equal
/// access rate form a region, and one page stands for its region. So the cost does not grow with the size of the
/// memory. isotherm can also act on memory: it reclaims cold memory, or backs hot memory with huge pages.
///
/// The method is that of DAMON (Data Access MONitor). The kernel needs neither DAMON nor idle page tracking. Most
/// commands need root; `isotherm doctor` says what works on this machine.
#[derive(Parser)]
#[command(name = "isotherm", version, propagate_version = true, max_term_width = 100, after_long_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Values:
  SIZE   64K, 2M, 1.5GiB: K, M, G, T, P and E are powers of 1,024. A bare
         number is in bytes.
  TIME   100us, 5ms, 10s, 2m, 1h, 2m 30s. The unit is required.
  RATE   0.5 or 50%

Examples:
  isotherm doctor                        what works on this machine?
  isotherm top --pid 1234                watch a process live
  isotherm tune --pid 1234               attributes, working set, advice
  isotherm record --pid 1234 --duration 10s
  isotherm record -- ./my-program --its-option
  isotherm mark load                     name this moment of a recording
  isotherm report summary                how much memory is hot, warm, cold?
  isotherm report heatmap                when and where is it hot?
  isotherm report html -o memory.html    all reports in one page
  isotherm diff old.rec new.rec          what grew, what shrank?
  isotherm idle --pid 1234               which pages are idle? (reads all)
  isotherm scheme try prcl.yaml          what would this scheme do?
  isotherm tier try                      how much fast memory is needed?
  isotherm run --schemes prcl.yaml --pid 1234
  isotherm daemon                        watch all processes, all the time
  isotherm fleet write --to DIR          its history as a table, for SQL

Exit status:
  0  success
  1  failure
  2  wrong arguments

`isotherm check` has further ones; see `isotherm check --help`.

With a command after `--`, the exit status is that of the command, or 128 plus the number of the signal that ended it.";

#[derive(Subcommand)]
pub enum Command {
    Record(Box<Record>),
    Report(Box<Report>),
    Diff(Box<Diff>),
    Top(Box<Top>),
    Tune(Box<Tune>),
    Idle(Box<Idle>),
    Run(Box<Run>),
    Scheme(Scheme),
    Tier(Tier),
    Eval(Eval),
    Fleet(Fleet),
    Daemon(Daemon),
    Ctl(Ctl),
    Mark(Mark),
    Check(Check),
    Cut(Cut),
    Merge(Merge),
    Convert(Convert),
    Doctor(Doctor),
    Workload(Workload),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::Cli;

    /// All commands, each with its subcommands.
    fn commands() -> Vec<Command> {
        let mut cli = Cli::command();
        cli.build();
        let mut commands = vec![cli];
        let mut next = 0;
        while let Some(command) = commands.get(next).cloned() {
            commands.extend(command.get_subcommands().filter(|command| command.get_name() != "help").cloned());
            next += 1;
        }
        commands
    }

    /// The long options that a text mentions, such as `pid` in "with --pid".
    fn mentioned(text: &str) -> impl Iterator<Item = &str> {
        let options = text.split("--").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
            &rest[..end]
        });
        options.filter(|option| !option.is_empty())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_mentions_only_options_that_the_command_has() {
        for command in commands() {
            let known: Vec<&str> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
            let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
            let of_argument = command
                .get_arguments()
                .filter_map(|argument| argument.get_long_help().or(argument.get_help()).map(ToString::to_string));
            let of_value = command.get_arguments().flat_map(|argument| {
                argument.get_possible_values().into_iter().filter_map(|value| value.get_help().map(ToString::to_string))
            });
            for text in about.into_iter().chain(of_argument).chain(of_value) {
                // What stands in backticks is a call of some command.
                for prose in text.split('`').step_by(2) {
                    for option in mentioned(prose) {
                        let name = command.get_name();
                        assert!(known.contains(&option), "{name} --help mentions --{option}: {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_short_help_has_few_options() {
        for mut command in commands() {
            let shown = command.render_help().to_string();
            let options = shown.lines().filter(|line| line.trim_start().starts_with('-')).count();
            assert!(options <= 30, "{options} options: {shown}");
        }
    }

    #[test]
    fn examples_are_right_calls_that_fit_a_line() {
        let mut seen = 0;
        for command in commands() {
            let Some(text) = command.get_after_long_help().map(ToString::to_string) else { continue };
            for line in text.lines().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= 80, "{line}");
            }
            for call in text.lines().filter_map(|line| line.strip_prefix("  isotherm ")) {
                let call = call.split("  ").next().unwrap_or_default();
                let parsed = Cli::try_parse_from(["isotherm"].into_iter().chain(call.split(' ')));
                assert!(parsed.is_ok(), "isotherm {call}: {}", parsed.err().map_or(String::new(), |e| e.to_string()));
                seen += 1;
            }
        }
        assert!(seen >= 30, "{seen} examples");
    }
}
