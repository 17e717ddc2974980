//! `isotherm eval`: measures programs with and without isotherm, and shows the tables.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use isotherm_eval::{
    Configuration, EvalError, Evaluation, MayChange, Paper, PressureOptions, PressureScheme, Progress, Rendering,
    Report, Results, RunOptions, Suite, evaluate, pressure,
};
use isotherm_output::{Output, OutputError, standard_output};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::{Eval, EvalCommand, EvalPressure, EvalPrograms, EvalReport, EvalRun, PlainFormat};
use crate::{WrongCall, tell};

pub fn run(options: &Eval) -> Result<ExitCode> {
    match &options.command {
        EvalCommand::Run(options) => measure(options),
        EvalCommand::Pressure(options) => under_pressure(options),
        EvalCommand::Report(options) => report(options),
    }
}

fn measure(options: &EvalRun) -> Result<ExitCode> {
    let named: Vec<Configuration> = options.configs.iter().filter_map(|name| Configuration::named(name)).collect();
    let programs = &options.programs;
    let evaluation = Evaluation {
        suite: suite("eval run", &programs.suite, programs.parsec.as_deref())?,
        only: programs.only.clone(),
        configurations: (!named.is_empty()).then_some(named),
        runs: options.runs,
        schemes: options.scheme.clone(),
        how: how(programs, &options.output)?,
    };
    let summary = evaluate(&evaluation, &*stopped_by_signals()?, &mut show(programs.quiet))?;
    let directory = options.output.display();
    if !programs.quiet {
        tell(format_args!("isotherm: {} runs are in {directory}; `isotherm eval report` shows them", summary.runs));
    }
    if summary.failed > 0 {
        anyhow::bail!("{} of {} runs failed; --resume makes them again", summary.failed, summary.runs);
    }
    Ok(ExitCode::SUCCESS)
}

fn under_pressure(options: &EvalPressure) -> Result<ExitCode> {
    let programs = &options.programs;
    let pressed = PressureOptions {
        suite: suite("eval pressure", &programs.suite, programs.parsec.as_deref())?,
        only: programs.only.clone(),
        limits: options.limits.clone(),
        schemes: options.configs.iter().filter_map(|name| PressureScheme::named(name)).collect(),
        files: options.scheme.clone(),
        parent: options.cgroup.clone(),
        runs: options.runs,
        how: how(programs, &options.output)?,
    };
    let result = pressure(&pressed, &*stopped_by_signals()?, &mut show(programs.quiet))?;
    match options.format {
        PlainFormat::Text => result.write_text(&mut standard_output())?,
        PlainFormat::Json => result.write_json(&mut standard_output())?,
    }
    if !result.failed.is_empty() {
        anyhow::bail!("{} runs failed; --resume makes them again", result.failed.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// How the runs of programs are made.
fn how(programs: &EvalPrograms, output: &Path) -> Result<RunOptions> {
    Ok(RunOptions {
        directory: output.to_owned(),
        resume: programs.resume,
        scale: programs.scale,
        may_change: may_change(&programs.may_change),
        isotherm: this_program()?,
        options: words(&programs.with),
        parsec: programs.parsec.clone(),
        timeout: programs.timeout,
    })
}

/// The words of further options.
pub fn words(options: &str) -> Vec<String> {
    options.split_whitespace().map(str::to_owned).collect()
}

/// A suite. `subcommand` is the one that lacks a tree of PARSEC if the suite needs one and has none.
pub fn suite(subcommand: &'static str, name: &str, parsec: Option<&Path>) -> Result<Suite> {
    let suite = Suite::open(name)?;
    if suite.needs_parsec() && parsec.is_none() {
        let what = format!("the suite {} needs a tree of PARSEC; name it with --parsec DIR", suite.name);
        return Err(WrongCall::new(subcommand, what).into());
    }
    Ok(suite)
}

/// The settings that these names allow to change.
pub fn may_change(names: &[String]) -> MayChange {
    let mut may_change = MayChange::default();
    for name in names {
        may_change.allow(name);
    }
    may_change
}

/// The path of isotherm, and its version.
pub fn this_program() -> Result<(PathBuf, String)> {
    let program = std::env::current_exe().context("the path of isotherm is unknown")?;
    Ok((program, env!("CARGO_PKG_VERSION").into()))
}

/// Is set by the signals that end runs.
pub fn stopped_by_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals cannot be handled")?;
    }
    Ok(stop)
}

/// Shows the progress of runs.
pub fn show(quiet: bool) -> impl FnMut(Progress<'_>) {
    move |progress| {
        if !quiet {
            tell(format_args!("isotherm: {progress}"));
        }
    }
}

fn report(options: &EvalReport) -> Result<ExitCode> {
    let named = options.format.as_deref();
    let chosen = named.and_then(|name| Rendering::ALL.into_iter().find(|rendering| rendering.name() == name));
    let rendering = match (chosen, options.output.as_ref().and_then(|path| path.extension())) {
        (Some(chosen), _) => chosen,
        (None, None) => Rendering::Text,
        (None, Some(extension)) => Rendering::of_extension(&extension.to_string_lossy()).ok_or_else(|| {
            let what = format!("the extension .{} selects no format; choose one with --format", extension.display());
            WrongCall::new("eval report", what)
        })?,
    };
    if rendering == Rendering::Html && options.output.is_none() && stdout().is_terminal() {
        let what = "html cannot be shown on a terminal; name a file with -o";
        return Err(WrongCall::new("eval report", what).into());
    }
    let paper = Paper::ALL.into_iter().find(|paper| paper.name() == options.paper).unwrap_or(Paper::V24);
    let results = Results::read(&options.directory)?;
    let report = Report::new(&results, options.fault)?;
    let write = |out: &mut dyn Write| report.write(rendering, &results, paper, options.spread, out);
    match &options.output {
        None => write(&mut standard_output())?,
        Some(path) => {
            let file = Output::new(path).apart_from(results.files()).create()?;
            let mut writer = file.writer()?;
            write(&mut writer).map_err(|error| match error {
                EvalError::Write(source) => OutputError::new(path, source).into(),
                error => anyhow::Error::from(error),
            })?;
            file.finish()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
