//! Prepares a run from the options that `record`, `run` and `top` have in common.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result};
use isotherm_core::{AddrRange, AttributeOptions};
use isotherm_run::{
    CommandLine, ConfigError, Prepared, ProbeChoice, RunConfig, RunError, SchemeOptions, SchemeSource, Source, Streams,
    Targets,
};

use crate::WrongCall;
use crate::cli::{self, PhysicalOptions, Sampling, WatchOptions};

/// The time from one snapshot to the next if nothing is sampled.
const SNAPSHOTS: Duration = Duration::from_secs(1);

/// The options of a command, as far as they describe the run.
#[derive(Clone)]
pub struct Call<'a> {
    /// The name of the command, such as `record`.
    pub subcommand: &'static str,
    pub watch: &'a WatchOptions,
    /// Whether physical memory is watched instead of processes.
    pub physical: bool,
    /// The only addresses that are watched; all if empty.
    pub ranges: &'a [AddrRange],
    /// The scheme file.
    pub schemes: Option<&'a Path>,
    /// Whether the activities of schemes contain how much memory is in use.
    pub memory_use: bool,
    /// The recording to write.
    pub recording: Option<PathBuf>,
    /// The standard streams of the command that is watched.
    pub streams: Streams,
}

impl<'a> Call<'a> {
    /// A call that only watches processes.
    pub fn new(subcommand: &'static str, watch: &'a WatchOptions) -> Self {
        Self {
            subcommand,
            watch,
            physical: false,
            ranges: &[],
            schemes: None,
            memory_use: false,
            recording: None,
            streams: Streams::Inherited,
        }
    }

    /// The same call with the options for physical memory.
    pub fn with(self, options: &'a PhysicalOptions) -> Self {
        Self { physical: options.physical, ranges: &options.range, ..self }
    }

    /// Checks the options without opening or starting anything.
    ///
    /// # Errors
    /// A [`WrongCall`] if they contradict each other.
    pub fn validate(&self) -> Result<()> {
        self.clone().config().validate().map_err(|error| wrong_call(self.subcommand, &error))
    }

    /// The description of the run.
    fn config(self) -> RunConfig {
        let Self { watch, physical, schemes, memory_use, recording, streams, .. } = self;
        let ranges = self.ranges.to_vec();
        let command = (!watch.command.is_empty()).then(|| CommandLine { words: watch.command.clone(), streams });
        let targets = match command {
            during if physical => Targets::Physical { ranges, during },
            Some(command) if ranges.is_empty() => Targets::Command { command, children: watch.children },
            _ => Targets::Processes { pids: watch.pid.clone(), children: watch.children, ranges },
        };
        let options = &watch.attributes;
        // Without samples, the attributes only say how often there is a snapshot: as often as there is a survey.
        let (sampling, without_samples) = match options.sample {
            Some(Sampling::Every(interval)) => (Some(interval), None),
            Some(Sampling::Off) => (None, Some(options.aggr.unwrap_or(SNAPSHOTS))),
            None => (None, None),
        };
        let attributes = AttributeOptions {
            sampling: without_samples.or(sampling),
            aggregation: without_samples.or(options.aggr),
            update: options.update,
            regions: options.regions,
        };
        let schemes = schemes.map(|path| SchemeOptions { schemes: SchemeSource::File(path.into()), memory_use });
        RunConfig {
            attributes,
            sampling: without_samples.is_none(),
            survey: watch.survey,
            shared: watch.shared.shared.into(),
            seed: options.seed,
            duration: watch.duration,
            schemes,
            recording,
            ..RunConfig::new(Source::Live { targets, probe: probe(watch.probe) })
        }
    }
}

/// Prepares the run that a call describes.
///
/// # Errors
/// A [`WrongCall`] if its options contradict each other.
pub fn prepare(call: Call<'_>) -> Result<Prepared> {
    let subcommand = call.subcommand;
    call.config().prepare().map_err(|error| match error {
        RunError::Config(error) => wrong_call(subcommand, &error),
        error => Error::from(error),
    })
}

fn wrong_call(subcommand: &'static str, error: &ConfigError) -> Error {
    WrongCall::new(subcommand, with_hint(subcommand, error)).into()
}

/// What is wrong, and which options fix it.
fn with_hint(subcommand: &str, error: &ConfigError) -> String {
    let hint = match error {
        // `run` has no option for physical memory.
        ConfigError::NoTarget if subcommand == "run" => "name a process with --pid PID or a command after --",
        ConfigError::RangeNeedsDamon if subcommand == "run" => "give --probe damon, or leave out --range",
        ConfigError::NoTarget => "name a process with --pid PID, a command after --, or all memory with --physical",
        ConfigError::RangeNeedsDamon => "give --probe damon for a part of a process, or --physical for physical memory",
        ConfigError::RangeNeedsOneProcess => "give one --pid with --range",
        ConfigError::DamonWithChildren => "use another --probe, or leave out --children",
        ConfigError::ProbeSeesProcessesOnly => "use --probe idle or damon, or leave out --physical",
        ConfigError::SchemesOnPhysicalMemory => {
            "leave out --physical, and name processes with --pid or a command after --"
        }
        ConfigError::DurationTooShort { .. } => "lengthen --duration, or shorten --aggr",
        ConfigError::SurveyTooShort(_) => "lengthen --survey, or give --survey auto",
        ConfigError::NothingMeasured => "leave out --sample off or --survey off",
        ConfigError::NoSurvey(_) => "use --probe bpf, or leave --survey out",
        ConfigError::Attributes(_) => return error.to_string(),
    };
    format!("{error}; {hint}")
}

fn probe(choice: cli::ProbeChoice) -> ProbeChoice {
    match choice {
        cli::ProbeChoice::Auto => ProbeChoice::Auto,
        cli::ProbeChoice::Idle => ProbeChoice::Idle,
        cli::ProbeChoice::Bpf => ProbeChoice::Bpf,
        cli::ProbeChoice::Refs => ProbeChoice::Refs,
        cli::ProbeChoice::Damon => ProbeChoice::Damon,
    }
}
