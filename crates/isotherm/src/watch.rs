//! Prepares a run from the options that `record`, `run` and `top` have in common.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use isotherm_core::{AddrRange, AttributeOptions, Budget, IntervalsGoal, NodeId, Start, units};
use isotherm_kernel::{Part, Selection, housekeeping_cpus};
use isotherm_run::{
    CommandLine, ConfigError, IntervalsChoice, LeastLimits, Need, Prepared, ProbeChoice, RunConfig, RunError,
    Scheduling, SchemeOptions, SchemeSource, Source, Streams, Summary, Targets, User, WatchedFiles,
};
use rustix::process::geteuid;

use crate::cli::{self, BudgetOptions, Cpus, FilesOption, PhysicalOptions, Sampling, WatchOptions};
use crate::{WrongCall, command, tell};

/// The options of a command, as far as they describe the run.
#[derive(Clone)]
pub struct Call<'a> {
    /// The name of the command, such as `record` or `tier run`.
    pub subcommand: &'static str,
    pub watch: &'a WatchOptions,
    /// Whether physical memory is watched instead of processes.
    pub physical: bool,
    /// The files whose page cache is watched instead of processes, if any.
    pub files: Option<&'a FilesOption>,
    /// The only addresses that are watched; all if empty.
    pub ranges: &'a [AddrRange],
    /// The only nodes whose physical memory is watched; all if empty.
    pub nodes: &'a [u32],
    /// Where the schemes come from.
    pub schemes: Option<SchemeSource>,
    /// Whether the activities of schemes contain how much memory is in use.
    pub memory_use: bool,
    /// The limits below which schemes let no cgroup down.
    pub least_limits: Option<LeastLimits>,
    /// Whether schemes do nothing, and say what they would do.
    pub dry_run: bool,
    /// How long the run lasts at most.
    pub duration: Option<Duration>,
    /// The recording to write.
    pub recording: Option<PathBuf>,
    /// Whether the run goes on without it. `None` is the default.
    pub recording_need: Option<Need>,
    /// The longest aggregation interval that is chosen, if there is a limit.
    pub most_aggregation: Option<Duration>,
    /// The share of one CPU that watching takes at most, if it is not that of the options.
    pub cpu_budget: Option<f64>,
    /// The standard streams of the command that is watched.
    pub streams: Streams,
    /// The user as whom the command runs, if that is another.
    pub user: Option<User>,
    /// Whether call stacks are recorded.
    pub stacks: bool,
    /// The run of a group, in whose place only the duration, the recording and call stacks are those of the call.
    pub group: Option<RunConfig>,
    /// Whether only warnings are printed.
    pub quiet: bool,
}

impl<'a> Call<'a> {
    /// A call that only watches processes.
    pub fn new(subcommand: &'static str, watch: &'a WatchOptions) -> Self {
        Self {
            subcommand,
            watch,
            physical: false,
            files: None,
            ranges: &[],
            nodes: &[],
            schemes: None,
            memory_use: false,
            least_limits: None,
            dry_run: false,
            duration: watch.duration,
            recording: None,
            recording_need: None,
            most_aggregation: None,
            cpu_budget: watch.budget.cpu_budget,
            streams: Streams::Inherited,
            user: None,
            stacks: false,
            group: None,
            quiet: false,
        }
    }

    /// The same call with the options for physical memory.
    pub fn with(self, options: &'a PhysicalOptions) -> Self {
        Self { physical: options.physical, ranges: &options.range.range, nodes: &options.node, ..self }
    }

    /// Checks the options without opening or starting anything.
    ///
    /// # Errors
    /// A [`WrongCall`] if they contradict each other.
    pub fn validate(&self) -> Result<()> {
        self.clone().config()?.validate().map_err(|error| wrong_call(self.subcommand, &error))
    }

    /// The processes that the options name. The user of a command is the one as whom it runs.
    ///
    /// # Errors
    /// A [`WrongCall`] that says which value is wrong.
    pub fn selection(&self) -> Result<Selection> {
        let watch = self.watch;
        let users: &[String] = match (&watch.user[..], watch.command.is_empty()) {
            (users, true) => users,
            ([] | [_], false) => &[],
            _ => return Err(WrongCall::new(self.subcommand, "a command runs as one user; give --user once").into()),
        };
        let selection = watch.selectors.selection(users, &watch.exclude, watch.children);
        Ok(selection.map_err(|what| WrongCall::new(self.subcommand, what))?)
    }

    /// The description of the run.
    fn config(self) -> Result<RunConfig> {
        if let Some(group) = self.group {
            let Self { duration, recording, recording_need, stacks, .. } = self;
            let start = Start::Quick;
            return Ok(RunConfig { duration, recording, recording_need, stacks, start, ..group });
        }
        if self.files.is_some_and(FilesOption::is_given) && (self.physical || !self.ranges.is_empty()) {
            let what = "--files and --open-files cannot be used with --physical or --range";
            return Err(WrongCall::new(self.subcommand, what).into());
        }
        let selection = self.selection()?;
        let Self { watch, physical, schemes, memory_use, least_limits, dry_run, duration, .. } = self;
        let Self { recording, most_aggregation, stacks, .. } = self;
        let cpu_budget = self.cpu_budget;
        let part = Part { ranges: self.ranges.to_vec(), mappings: watch.mapping.clone(), ..Part::default() };
        let command = CommandLine { words: watch.command.clone(), streams: self.streams, user: self.user };
        let command = (!watch.command.is_empty()).then_some(command);
        let targets = match command {
            None if self.files.is_some_and(|of| !of.files.is_empty()) => {
                Targets::Files(WatchedFiles::At(self.files.map_or_else(Vec::new, |of| of.files.clone())))
            }
            None if self.files.is_some_and(|of| of.open_files) => Targets::Files(WatchedFiles::UsedBy(selection)),
            during if physical => {
                let nodes = self.nodes.iter().copied().map(NodeId).collect();
                Targets::Physical { ranges: part.ranges, nodes, during }
            }
            Some(command) => Targets::Command { command, children: watch.children, except: selection.except, part },
            None => Targets::Processes { selection, waits: watch.wait, part },
        };
        let options = &watch.attributes;
        let (sampling, samples) = match options.sample {
            Some(Sampling::Every(interval)) => (Some(interval), true),
            Some(Sampling::Off) => (None, false),
            None => (None, true),
        };
        let attributes =
            AttributeOptions { sampling, aggregation: options.aggr, update: options.update, regions: options.regions };
        let attributes = if samples { attributes } else { attributes.without_samples() };
        let cpus = match &watch.scheduling.cpu_affinity {
            Some(Cpus::Numbers(cpus)) => cpus.clone(),
            Some(Cpus::Housekeeping) => housekeeping_cpus(Path::new("/")).context("--cpu-affinity housekeeping")?,
            None => vec![],
        };
        let schemes = schemes.map(|of| SchemeOptions { memory_use, least_limits, dry_run, ..SchemeOptions::new(of) });
        Ok(RunConfig {
            attributes,
            sampling: samples,
            survey: watch.survey,
            stacks,
            shared: watch.shared.shared.into(),
            shared_hold: watch.shared.shared_hold,
            allow_pauses: watch.pauses.allow_pauses,
            intervals: match options.intervals {
                cli::IntervalsChoice::Auto => most_aggregation.map_or(IntervalsChoice::Auto, IntervalsChoice::Within),
                cli::IntervalsChoice::Fixed => IntervalsChoice::Fixed,
            },
            intervals_goal: options.intervals_goal.map(IntervalsGoal::of_share),
            budget: budget(cpu_budget, &watch.budget),
            start: match watch.budget.start {
                Some(cli::StartChoice::Quick) => Start::Quick,
                Some(cli::StartChoice::Gentle) => Start::Gentle,
                None if matches!(self.subcommand, "run" | "tier run") => Start::Gentle,
                None => Start::Quick,
            },
            scheduling: Scheduling { nice: watch.scheduling.nice, cpus, locks_memory: true },
            seed: options.seed,
            duration,
            schemes,
            recording,
            recording_need: self.recording_need,
            ..RunConfig::new(Source::Live { targets, probe: probe(watch.probe) })
        })
    }
}

/// Prepares the run that a call describes.
///
/// # Errors
/// A [`WrongCall`] if its options contradict each other.
pub fn prepare(call: Call<'_>) -> Result<Prepared> {
    let subcommand = call.subcommand;
    // The header of a recording is written here, and can be beyond the limit already.
    command::survive_file_size_limit()?;
    let user = if call.watch.command.is_empty() { None } else { user(call.watch, call.quiet)? };
    let call = Call { user, ..call };
    call.config()?.prepare().map_err(|error| match error {
        RunError::Config(error) => wrong_call(subcommand, &error),
        error => Error::from(error),
    })
}

/// The user as whom the command runs, if that is not the user of this process: the one that `--user` names, or the one
/// who called sudo.
///
/// # Errors
/// If there is no such user, or this process may not start a command as another user.
fn user(watch: &WatchOptions, quiet: bool) -> Result<Option<User>> {
    let caller = geteuid();
    let of_sudo = std::env::var("SUDO_UID").ok().filter(|_| caller.is_root() && watch.user.is_empty());
    let Some(name) = watch.user.first().or(of_sudo.as_ref()) else { return Ok(None) };
    let found = User::find(name).with_context(|| format!("the user {name} cannot be looked up"))?;
    let Some(user) = found else {
        let option = if of_sudo.is_some() { "name one with --user, such as --user root" } else { "check the name" };
        bail!("there is no user {name} ({option})");
    };
    if user.uid() == caller.as_raw() {
        return Ok(None);
    }
    if !caller.is_root() {
        bail!("only root can start a command as {} (leave out --user, or run isotherm as root)", user.name());
    }
    if of_sudo.is_some() && !quiet {
        let name = user.name();
        tell(format_args!("isotherm: the command runs as {name}, who called sudo; --user root runs it as root"));
    }
    Ok(Some(user))
}

/// Fails if a run that recorded has ended without a snapshot: before its first sampling interval was over, or because
/// nothing that `watch` names was there for as long.
///
/// # Errors
/// With how long the run lasted, and what would have been recorded.
pub fn check_recorded(summary: &Summary, watch: &WatchOptions) -> Result<()> {
    if summary.snapshots > 0 {
        return Ok(());
    }
    let lasted = units::duration(summary.lasted);
    if watch.wait {
        bail!("no snapshot was recorded: in {lasted}, nothing that matches ran for a whole sampling interval");
    }
    if !watch.mapping.is_empty() {
        bail!(
            "no snapshot was recorded: in {lasted}, nothing that matches --mapping was mapped for a whole sampling \
             interval"
        );
    }
    bail!(
        "no snapshot was recorded: the run ended after {lasted}, before its first sampling interval was over; shorten \
         it with --sample"
    );
}

fn wrong_call(subcommand: &'static str, error: &ConfigError) -> Error {
    WrongCall::new(subcommand, with_hint(subcommand, error)).into()
}

/// What is wrong, and which options fix it.
fn with_hint(subcommand: &str, error: &ConfigError) -> String {
    let hint = match error {
        // This has no option for physical memory.
        ConfigError::NoTarget if subcommand == "tier run" => {
            "name processes with --pid, --name, --cgroup or the like, or a command after --"
        }
        ConfigError::NoTarget => {
            "name processes with --pid, --name, --cgroup or the like, a command after --, or all memory with --physical"
        }
        ConfigError::NothingToWaitFor => "name processes with --name, --cgroup or the like, or leave out --wait",
        ConfigError::RangeNeedsOneProcess => "give one --pid with --range, or --mapping instead",
        ConfigError::DamonWithNewcomers => "use another --probe, or --pid without --children",
        ConfigError::DamonWithMappings => "use another --probe, or give one --pid",
        ConfigError::ProbeSeesProcessesOnly => "use --probe idle, bpf or damon, or leave out --physical",
        ConfigError::ProbeSeesNoFiles => "use --probe idle or auto, or leave out --files",
        ConfigError::FilesWithSamples => "leave out --sample and --survey off",
        ConfigError::SchemesOnPhysicalMemory => "use --probe idle, bpf or auto, and leave out --survey off",
        ConfigError::StacksOfProcesses => "leave out --stacks",
        ConfigError::WrongGoal => "give a share such as --intervals-goal 4%",
        ConfigError::GoalOfFixedIntervals => {
            "leave out --intervals-goal, or what fixes the intervals: --intervals fixed, --sample off, --survey off \
             without --cpu-budget, schemes that compare access rates, or the probe refs"
        }
        ConfigError::DurationTooShort { .. } => "lengthen --duration, or shorten --aggr",
        ConfigError::SurveyTooShort(_) => "lengthen --survey, or give --survey auto",
        ConfigError::NoBudget => "give a share such as 1%",
        ConfigError::NothingMeasured => "leave out --sample off or --survey off",
        ConfigError::NoSamples => "leave out --sample, or give --sample off",
        ConfigError::SurveyNeeded => "leave out --survey off",
        ConfigError::NoSurvey(_) => "use --probe idle or bpf, or leave --survey out",
        ConfigError::Attributes(_) => return error.to_string(),
    };
    format!("{error}; {hint}")
}

/// The budget, if any of it was asked for.
fn budget(cpu: Option<f64>, options: &BudgetOptions) -> Option<Budget> {
    let default = Budget::default();
    let budget = Budget { cpu: cpu.unwrap_or(default.cpu), targets: options.target_budget, ..default };
    (budget != default || cpu.is_some()).then_some(budget)
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
