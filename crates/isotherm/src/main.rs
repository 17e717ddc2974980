//! `isotherm`: the command line.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod check;
mod cli;
mod command;
mod convert;
mod ctl;
mod cut;
mod daemon;
mod diff;
mod doctor;
mod ending;
mod eval;
mod fleet;
mod idle;
mod man;
mod marks;
mod merge;
mod moves_line;
mod progress;
mod record;
mod report;
mod run;
mod schema;
mod scheme;
mod terminal;
mod tier;
mod top;
mod tune;
mod watch;
mod workload;

use std::borrow::Cow;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use isotherm_agent::DaemonError;
use isotherm_eval::EvalError;
use isotherm_output::standard_output;
use isotherm_run::RunError;
use isotherm_scheme::Diagnostics;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(Cli { command }) => {
            // The screen writes to a terminal, which may be gone at its end.
            let is_screen = matches!(command, Command::Top(_));
            let done = run(command);
            if is_screen { done } else { done.and_then(flushed) }
        }
        Err(answer) => explain(&answer).and_then(flushed),
    };
    done.unwrap_or_else(|error| failed(&error))
}

/// Writes what standard output has buffered, which would be lost at the end without a word.
fn flushed(code: ExitCode) -> Result<ExitCode> {
    standard_output().flush()?;
    Ok(code)
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Record(options) => record::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Tune(options) => tune::run(&options),
        Command::Idle(options) => idle::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Mark(options) => marks::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Cut(options) => cut::run(&options),
        Command::Merge(options) => merge::run(&options),
        Command::Convert(options) => convert::run(&options),
        Command::Scheme(options) => scheme::run(&options),
        Command::Tier(options) => tier::run(&options),
        Command::Eval(options) => eval::run(&options),
        Command::Fleet(options) => fleet::run(&options),
        Command::Daemon(options) => daemon::run(&options),
        Command::Ctl(options) => ctl::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Workload(options) => workload::run(&options),
        Command::Schema(options) => schema::run(&options),
        Command::Completions(options) => {
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut Cli::command(), "isotherm", &mut script);
            standard_output().write_all(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(options) => man::run(&options, Cli::command()),
    }
}

/// Prints the answer of clap: help, the version, or what is wrong with the call.
fn explain(answer: &clap::Error) -> Result<ExitCode> {
    let code = u8::try_from(answer.exit_code()).unwrap_or(u8::MAX);
    let printed = answer.print();
    if !answer.use_stderr() {
        // The text goes to standard output, as what a command prints.
        printed.map_err(isotherm_output::StandardOutput::name)?;
    }
    Ok(ExitCode::from(code))
}

/// Reports an error. Returns the exit status.
fn failed(error: &anyhow::Error) -> ExitCode {
    if has_no_reader(error) {
        return ExitCode::SUCCESS;
    }
    if let Some(wrong) = error.downcast_ref::<WrongCall>() {
        return wrong.explain();
    }
    // These lines start with file, line and column, as those of compilers do, so that editors find the place.
    if let Some(RunError::SchemeFile(diagnostics)) = error.downcast_ref::<RunError>() {
        tell(diagnostics);
        return ExitCode::FAILURE;
    }
    if let Some(EvalError::Suite(diagnostics)) = error.downcast_ref::<EvalError>() {
        tell(diagnostics);
        return ExitCode::FAILURE;
    }
    if let Some(DaemonError::Config(diagnostics)) = error.downcast_ref::<DaemonError>() {
        tell(diagnostics);
        return ExitCode::FAILURE;
    }
    if let Some(diagnostics) = error.downcast_ref::<Diagnostics>() {
        tell(diagnostics);
        return ExitCode::FAILURE;
    }
    complain(error);
    ExitCode::FAILURE
}

/// Prints an error and its causes.
fn complain(error: &anyhow::Error) {
    tell(format_args!("isotherm: {}", isotherm_core::chain(&**error)));
}

/// Writes a line to standard error, or several. What a file or a process calls itself may be part of it, and does not
/// reach a terminal as it is. A failure is ignored, because there is no other place to report it.
fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{}", isotherm_core::sanitise_lines(&line.to_string()));
}

/// Whether an output is a pipe whose reader has closed it, which is not a failure.
fn has_no_reader(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// A call whose arguments are valid one by one, but not together.
#[derive(Debug)]
struct WrongCall {
    /// Its words, such as `tier run`.
    subcommand: Cow<'static, str>,
    what: String,
}

impl WrongCall {
    fn new(subcommand: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self { subcommand: subcommand.into(), what: what.into() }
    }

    /// Prints what is wrong and the usage of the command, as clap does for other wrong calls. Returns exit status 2.
    fn explain(&self) -> ExitCode {
        let mut cli = Cli::command();
        cli.build();
        let error = |command: &mut clap::Command| command.error(ErrorKind::ValueValidation, &self.what);
        let mut words = self.subcommand.split(' ');
        let command = words.try_fold(&mut cli, |command, word| command.find_subcommand_mut(word));
        let of_command = command.map(error);
        let _ = of_command.unwrap_or_else(|| error(&mut cli)).print();
        ExitCode::from(2)
    }
}

impl std::fmt::Display for WrongCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for WrongCall {}
