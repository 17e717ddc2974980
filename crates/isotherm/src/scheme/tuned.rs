//! `isotherm scheme tune`: finds the best values of a scheme for a program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_eval::{Objective, RunOptions, Search, TuneOptions, Workload, tune};
use isotherm_output::standard_output;
use isotherm_report::{Format, Options};
use isotherm_scheme::FreeSchemes;

use crate::cli::{PlainFormat, SchemeTune};
use crate::terminal::terminal;
use crate::{WrongCall, eval, tell};

const SUBCOMMAND: &str = "scheme tune";

pub fn run(options: &SchemeTune) -> Result<ExitCode> {
    let file = options.file.display().to_string();
    let read = isotherm_scheme::read_text(&options.file);
    let parsed = read.and_then(|text| Ok((FreeSchemes::parse(&file, &text)?, text)));
    // The lines have no program name: editors look for file, line and column at their start.
    let Ok((schemes, text)) = parsed.map_err(tell) else { return Ok(ExitCode::FAILURE) };
    let workload = workload(options)?;
    if workload.is_none() && options.recording.is_empty() {
        let what = "there is nothing to try the scheme on; name a command after --, a --workload, or a --recording";
        return Err(WrongCall::new(SUBCOMMAND, what).into());
    }
    let search = Search::ALL.into_iter().find(|search| search.name() == options.search).unwrap_or_default();
    let tuning = TuneOptions {
        schemes,
        text,
        workload,
        recordings: options.recording.clone(),
        objective: objective(options)?,
        search,
        runs: options.runs as usize,
        time: options.time,
        fault: options.fault,
        how: RunOptions {
            directory: options.output.clone(),
            resume: options.resume,
            scale: options.scale,
            may_change: eval::may_change(&options.may_change),
            isotherm: eval::this_program()?,
            options: eval::words(&options.with),
            parsec: options.parsec.clone(),
            timeout: options.timeout,
        },
        seed: options.seed,
    };
    let tuned = tune(&tuning, &*eval::stopped_by_signals()?, &mut eval::show(options.quiet))?;
    let format = match options.format {
        PlainFormat::Text => Format::Text,
        PlainFormat::Json => Format::Json,
    };
    let shown = Options { terminal: terminal(), ..Options::default() };
    tuned.result.write(format, &shown, &mut standard_output())?;
    if !options.quiet {
        let files: Vec<String> = tuned.files.iter().map(|path| path.display().to_string()).collect();
        tell(format_args!("isotherm: the result is in {}", files.join(", ")));
    }
    if tuned.result.best.is_none() {
        anyhow::bail!("all {} runs with the scheme failed; --resume makes no others", tuned.failed);
    }
    Ok(ExitCode::SUCCESS)
}

fn objective(options: &SchemeTune) -> Result<Objective> {
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    Ok(match (&options.score, options.max_slowdown, options.max_pressure) {
        (Some(score), ..) => Objective::score(score)?,
        (None, None, None) => Objective::default(),
        (None, slowdown, pressure) => Objective::most_memory(percent(slowdown), percent(pressure)),
    })
}

/// The program, and the directory of its suite.
fn workload(options: &SchemeTune) -> Result<Option<(Workload, PathBuf)>> {
    let here = std::env::current_dir().context("the current directory is unknown")?;
    if let Some(name) = &options.workload {
        let suite = eval::suite(SUBCOMMAND, &options.suite, options.parsec.as_deref())?;
        let found = suite.select(std::slice::from_ref(name))?;
        let workload = found.first().map(|workload| (*workload).clone());
        return Ok(workload.map(|workload| (workload, suite.directory.clone())));
    }
    if options.command.is_empty() {
        return Ok(None);
    }
    let words = options.command.iter().map(|word| quoted(word)).collect::<Result<Vec<_>>>()?;
    let name = options.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    // The program is where it would be without isotherm, and not in the directory of the result.
    let command = format!("cd {} && exec {}", quoted(here.as_os_str())?, words.join(" "));
    Ok(Some((Workload { name, command, ..Workload::default() }, here)))
}

/// A word as the shell takes it.
fn quoted(word: &std::ffi::OsStr) -> Result<String> {
    let text = OsString::from(word).into_string();
    let text = text.map_err(|word| WrongCall::new(SUBCOMMAND, format!("{word:?} is not text in UTF-8; rename it")))?;
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}
