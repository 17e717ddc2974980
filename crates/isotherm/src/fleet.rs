//! `isotherm fleet`: the memory temperature of many hosts as a table.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use isotherm_agent::fleet::{container_names, history_sources};
use isotherm_core::units::{self, counted};
use isotherm_core::{chain, sanitise};
use isotherm_fleet::{Dataset, Fleet, Source, VIEWS, Written};
use isotherm_output::standard_output;

#[cfg(feature = "fleet-query")]
mod query;

use crate::cli::{self, FleetCommand};
use crate::tell;

pub fn run(options: &cli::Fleet) -> Result<ExitCode> {
    match &options.command {
        FleetCommand::Write(options) => write(&options.paths, &options.to, &options.group, options.quiet),
        FleetCommand::Compact(options) => compact(&options.dataset, options.before.as_deref()),
        FleetCommand::Check(options) => check(&options.dataset, options.whole),
        FleetCommand::Views(options) => views(options.view.as_deref()),
        FleetCommand::Generate(options) => generate(
            &options.dataset,
            Fleet {
                hosts: options.hosts,
                days: options.days,
                services: options.services,
                first_day: now()? / 86_400 - i64::from(options.days),
                seed: options.seed,
            },
            options.truth,
        ),
        #[cfg(feature = "fleet-query")]
        FleetCommand::Query(options) => query::query(options),
        #[cfg(feature = "fleet-query")]
        FleetCommand::Report(options) => query::report(options),
    }
}

/// Seconds since the Unix epoch.
fn now() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock of this machine is before 1970")?;
    Ok(i64::try_from(since.as_secs())?)
}

fn write(paths: &[PathBuf], to: &Path, group: &str, quiet: bool) -> Result<ExitCode> {
    let mut sources = Vec::new();
    let mut recordings = Source { group: group.into(), paths: Vec::new() };
    for path in paths {
        if path.is_dir() {
            let groups =
                history_sources(path).with_context(|| format!("the history in {} cannot be read", path.display()))?;
            if groups.iter().all(|of| of.paths.is_empty()) {
                bail!(
                    "{} has no history (a history has a directory for each group, with seconds-*.rec in it; name \
                     recordings one by one)",
                    path.display()
                );
            }
            sources.extend(groups);
        } else if path.exists() {
            recordings.paths.push(path.clone());
        } else {
            bail!(
                "{} does not exist (name recordings, or the history of a daemon, which is the folder history in its \
                 history.directory)",
                path.display()
            );
        }
    }
    if !recordings.paths.is_empty() {
        sources.push(recordings);
    }
    let written = isotherm_fleet::write(&Dataset::at(to)?, &sources, &container_names(), now()?)?;
    written.problems.iter().for_each(|problem| tell(format_args!("isotherm: {problem}")));
    if !quiet {
        say(&written, to)?;
    }
    Ok(if written.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(written: &Written, to: &Path) -> Result<()> {
    let mut out = standard_output();
    let quarters = |number: u64| format!("{} of an hour", counted(number, "quarter"));
    let to = sanitise(&to.display().to_string()).into_owned();
    writeln!(out, "{} of {} in {to}", counted(written.rows, "row"), quarters(written.quarters))?;
    let rest = [
        (written.present, "there already"),
        (written.unfinished, "not over yet"),
        (written.waiting, "wait for a recording that cannot be read, for a day at most"),
        (written.future, "in the future: the clock of the host was wrong, or that of this machine is"),
    ];
    for (number, what) in rest.into_iter().filter(|(number, _)| *number > 0) {
        writeln!(out, "{}: {what}", quarters(number))?;
    }
    if written.twice > 0 {
        let events = counted(written.twice, "event");
        writeln!(out, "{events} left out: the clock was set back, and the minutes had been recorded")?;
    }
    Ok(())
}

fn compact(dataset: &Path, before: Option<&str>) -> Result<ExitCode> {
    let before = match before {
        Some(day) => day.to_owned(),
        None => isotherm_fleet::date_of(now()?),
    };
    let done = Dataset::at(dataset)?.compact(&before)?;
    let mut out = standard_output();
    writeln!(out, "{} of hosts, made of {}", counted(done.days, "day"), counted(done.files, "file"))?;
    if done.twice > 0 {
        writeln!(out, "{} removed, whose rows were there twice", counted(done.twice, "file"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(dataset: &Path, whole: bool) -> Result<ExitCode> {
    let found = Dataset::at(dataset)?.check(whole)?;
    found.wrong.iter().for_each(|error| tell(format_args!("isotherm: {}", chain(error))));
    let parts = [(found.files, "file"), (found.hosts, "host"), (found.days, "day"), (found.rows, "row")];
    let parts = parts.map(|(number, thing)| counted(number, thing)).join(", ");
    if !found.wrong.is_empty() {
        writeln!(standard_output(), "{parts} are right; {} wrong", counted(found.wrong.len() as u64, "file"))?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(standard_output(), "{parts}: nothing is wrong")?;
    Ok(ExitCode::SUCCESS)
}

fn views(name: Option<&str>) -> Result<ExitCode> {
    let mut out = standard_output();
    match name {
        Some(name) => write!(out, "{}", isotherm_fleet::view(name)?.sql)?,
        None => {
            for view in VIEWS {
                let about = view.about();
                let first = about.split(". ").next().and_then(|sentence| sentence.split(':').next());
                writeln!(out, "{:<12} {}", view.name, first.unwrap_or_default())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn generate(path: &Path, fleet: Fleet, truth: bool) -> Result<ExitCode> {
    if path.exists() {
        bail!(
            "{} exists; a made fleet gets a folder of its own, so that nothing real is mixed with it",
            path.display()
        );
    }
    let shows = stderr().is_terminal();
    let all = u64::from(fleet.hosts) * u64::from(fleet.days);
    isotherm_fleet::generate(&Dataset::at(path)?, &fleet, &|written| {
        if shows {
            let end = if written == all { "\n" } else { "" };
            _ = write!(stderr(), "\r{} of {}{end}", units::count(written), counted(all, "file"));
        }
    })?;
    if truth {
        writeln!(standard_output(), "{}", serde_json::to_string(&fleet.truth())?)?;
    }
    Ok(ExitCode::SUCCESS)
}
