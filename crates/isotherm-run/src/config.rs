//! The description of a run: one object, which the command line, a program that embeds isotherm, or a configuration
//! file creates.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_act::LeastLimits;
use isotherm_core::scheme::Scheme;
use isotherm_core::{AddrRange, AttributeOptions, Attributes, Budget, Granularity, IntervalsGoal, NodeId, Start};
use isotherm_kernel::{Part, Selection, Selector, User};
use isotherm_probes::bpf::{SharedLimits, SharedMemory};
use isotherm_sim::Pattern;

use crate::{Allowance, ConfigError, FedMetrics, Need, Scheduling, SchemeLimits, SurveyChoice};

/// What to watch, how, for how long, what to do to it, and where to record it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use isotherm_run::{Event, RunConfig};
///
/// let mut run = RunConfig::processes([1234]).prepare()?;
/// let events = run.subscribe();
/// let session = run.start()?;
/// for event in events {
///     if let Event::Snapshot(record) = event {
///         println!("{:?}: {} regions", record.snapshot.time, record.snapshot.regions().count());
///     }
/// }
/// session.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Where snapshots come from.
    pub source: Source,
    /// The monitoring attributes. What is not set follows from the probe.
    pub attributes: AttributeOptions,
    /// Whether pages are sampled. Without samples there are surveys only, which tell whether and when each page was
    /// accessed, but not how often; the attributes then say how often there is a snapshot.
    pub sampling: bool,
    /// Whether and how often all pages are surveyed.
    pub survey: SurveyChoice,
    /// Whether surveys observe memory that several processes map.
    pub shared: SharedMemory,
    /// The longest time for which page faults of a target may wait while such memory is observed, if `shared` is
    /// [`SharedMemory::Auto`].
    pub shared_hold: Duration,
    /// Whether the probe `refs` may keep a target from mapping memory for longer than 100 ms
    /// ([`MOST_PAUSE`](isotherm_probes::MOST_PAUSE)). If not, larger targets are not watched with it.
    pub allow_pauses: bool,
    /// Whether the sampling and the aggregation interval adapt to the observed accesses, if the attributes set neither.
    pub intervals: IntervalsChoice,
    /// The share of accesses that samples should find, if the intervals adapt. `None` is the default. With fixed
    /// intervals, any other value is an error.
    pub intervals_goal: Option<IntervalsGoal>,
    /// The bounds on the cost of the run. `None` is the default budget, which does not bound samples if surveys are off
    /// or the sampling interval is fixed.
    pub budget: Option<Budget>,
    /// What the run shares with others, in the place of the budget. With both, the CPU time is that of the allowance,
    /// and the targets' time that of the budget.
    pub allowance: Option<Allowance>,
    /// How much of the targets' time the run may take at its start.
    pub start: Start,
    /// Whether the call stacks of the calls that map memory are recorded.
    pub stacks: bool,
    /// How the thread of the monitor is scheduled.
    pub scheduling: Scheduling,
    /// The seed of the random choices; `None` takes one from the clock.
    pub seed: Option<u64>,
    /// How long the run lasts at most; `None` for as long as there is something to watch.
    pub duration: Option<Duration>,
    /// What to do to memory; `None` only watches.
    pub schemes: Option<SchemeOptions>,
    /// The file that the run is recorded to.
    pub recording: Option<PathBuf>,
    /// Whether the run goes on if the recording can no longer be written, as on a full disk. `None`: it does if it
    /// acts.
    pub recording_need: Option<Need>,
}

/// Where the snapshots of a run come from.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has one of it")]
pub enum Source {
    /// Memory of this machine, as it is now.
    Live {
        /// Whose memory.
        targets: Targets,
        /// How to learn whether a page was accessed.
        probe: ProbeChoice,
    },
    /// Simulated memory that follows a pattern. Its clock goes as fast as the machine can.
    Simulation(Box<Pattern>),
    /// A recording that was made before. It is replayed as fast as the sinks take it. Schemes act on nothing: they only
    /// report what they would have done.
    Replay {
        /// The recording.
        path: PathBuf,
        /// The memory that a part of it may take ([`Recording::open_within`](isotherm_record::Recording::open_within)).
        max_memory: Option<u64>,
    },
}

impl Source {
    /// Whether it is processes of this machine.
    const fn is_of_processes(&self) -> bool {
        matches!(self, Self::Live { targets: Targets::Processes { .. } | Targets::Command { .. }, .. })
    }
}

/// The targets of a live run.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Processes, those that run already and those that appear later.
    Processes {
        /// Which processes. The run ends with the last of them.
        selection: Selection,
        /// Whether the run waits for a process instead, at the start and after the last one has ended. For a selection
        /// that is open ([`Selection::is_open`]).
        waits: bool,
        /// The part of each process that is watched. Ranges of addresses need a single process.
        part: Part,
    },
    /// A command that the run starts. The run ends with it.
    Command {
        /// The command.
        command: CommandLine,
        /// Whether its descendants are watched, too, as they appear.
        children: bool,
        /// The descendants that are not watched.
        except: Vec<Selector>,
        /// The part of each process that is watched.
        part: Part,
    },
    /// Physical memory of the machine.
    Physical {
        /// Only these ranges of physical addresses; all memory if empty.
        ranges: Vec<AddrRange>,
        /// Only the memory of these nodes; all memory if empty.
        nodes: Vec<NodeId>,
        /// A command that the run starts, and with which it ends.
        during: Option<CommandLine>,
    },
    /// The page cache of files, whether a process maps them or not. It is surveyed, and not sampled.
    Files(WatchedFiles),
}

/// Files whose page cache is watched.
#[derive(Clone, Debug)]
pub enum WatchedFiles {
    /// These files, and the files below these directories.
    At(Vec<PathBuf>),
    /// The files that these processes have open or mapped. The run ends with the last of the processes.
    UsedBy(Selection),
}

/// A command that a run starts.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where its standard streams go.
    pub streams: Streams,
    /// As whom it runs. Only root can start a command as another user. `None` stands for the user of this process.
    pub user: Option<User>,
}

/// Where the standard streams of a command go.
#[derive(Clone, Debug, Default)]
pub enum Streams {
    /// They are those of this process.
    #[default]
    Inherited,
    /// Output and errors are those of this process, and there is no input.
    WithoutInput,
    /// The command is kept from the terminal.
    Detached {
        /// Whether standard input is that of this process; otherwise there is none.
        input: bool,
        /// The file that output and errors are added to; `None` discards them. A new file has mode 0600.
        log: Option<PathBuf>,
    },
}

/// How the sampling and the aggregation interval are chosen. The default intervals are those of
/// [`AttributeOptions::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalsChoice {
    /// They begin with the defaults and follow from what is observed ([`IntervalsGoal`]),
    /// for a probe that answers for single pages. Schemes that compare access rates keep the defaults
    /// ([`Scheme::longest_aggregation`](isotherm_core::scheme::Scheme::longest_aggregation)).
    #[default]
    Auto,
    /// As `Auto`, with aggregation intervals of this length at most.
    Within(Duration),
    /// They are the defaults.
    Fixed,
}

/// A way to learn whether a page was accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeChoice {
    /// The best that works here: `idle`, then `bpf`, then `refs`; for physical memory `idle`, then `bpf`.
    #[default]
    Auto,
    /// Idle page tracking.
    Idle,
    /// Page tables, read by eBPF. Of physical memory it sees what processes map, by surveys without samples.
    Bpf,
    /// `/proc/PID/clear_refs` and `smaps`.
    Refs,
    /// The kernel's own DAMON. Never chosen by `Auto`.
    Damon,
}

impl ProbeChoice {
    /// The choice of this name, as `isotherm record --probe` takes it: `auto`, `idle`, `bpf`, `refs` or `damon`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "idle" => Some(Self::Idle),
            "bpf" => Some(Self::Bpf),
            "refs" => Some(Self::Refs),
            "damon" => Some(Self::Damon),
            _ => None,
        }
    }

    /// Whether the probe sees physical memory, and not only that of processes.
    pub const fn sees_physical_memory(self) -> bool {
        match self {
            Self::Auto | Self::Idle | Self::Bpf | Self::Damon => true,
            Self::Refs => false,
        }
    }
}

/// The schemes of a run.
#[derive(Clone, Debug)]
pub struct SchemeOptions {
    /// The schemes, or the file that holds them.
    pub schemes: SchemeSource,
    /// Whether activities say how much memory the targets use. Looks at them take at most a thousandth of the time of
    /// one CPU.
    pub memory_use: bool,
    /// The metrics that goals of the schemes may have by name. `None` if nobody feeds them.
    pub fed: Option<FedMetrics>,
    /// What all schemes together may do.
    pub limits: SchemeLimits,
    /// The limits below which the action `limit` lets no cgroup down; it leaves other cgroups alone. `None` if there
    /// are no such bounds.
    pub least_limits: Option<LeastLimits>,
    /// Whether nothing is done to any process or cgroup: reports say what would have been done.
    pub dry_run: bool,
}

impl SchemeOptions {
    /// Schemes that act, without limits and metrics that are fed, and without the memory that the targets use.
    pub fn new(schemes: SchemeSource) -> Self {
        let limits = SchemeLimits::default();
        Self { schemes, memory_use: false, fed: None, limits, least_limits: None, dry_run: false }
    }
}

/// Where the schemes of a run come from.
#[derive(Clone, Debug)]
pub enum SchemeSource {
    /// These, until [`Control::set_schemes`](crate::Control::set_schemes) changes them.
    Fixed(Vec<Scheme>),
    /// A file. It is read again when it changes and when [`Control::reload_schemes`](crate::Control::reload_schemes)
    /// asks for it; if it is wrong then, the schemes in force stay.
    File(PathBuf),
}

impl RunConfig {
    /// A run on a source, with the default attributes.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            attributes: AttributeOptions::default(),
            sampling: true,
            survey: SurveyChoice::Auto,
            shared: SharedMemory::Auto,
            shared_hold: SharedLimits::default().longest_hold,
            allow_pauses: false,
            intervals: IntervalsChoice::Auto,
            intervals_goal: None,
            budget: None,
            allowance: None,
            start: Start::default(),
            stacks: false,
            scheduling: Scheduling::default(),
            seed: None,
            duration: None,
            schemes: None,
            recording: None,
            recording_need: None,
        }
    }

    /// A run that watches processes by the best probe that works here.
    pub fn processes(pids: impl IntoIterator<Item = u32>) -> Self {
        Self::selected(Selection::pids(pids))
    }

    /// A run that watches the processes of a selection by the best probe that works here.
    pub fn selected(selection: Selection) -> Self {
        let targets = Targets::Processes { selection, waits: false, part: Part::default() };
        Self::new(Source::Live { targets, probe: ProbeChoice::Auto })
    }

    /// A run that starts a command and watches it by the best probe that works here.
    pub fn command(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        let targets = Targets::command_line(CommandLine { words, ..CommandLine::default() });
        Self::new(Source::Live { targets, probe: ProbeChoice::Auto })
    }

    /// The same run with another probe. Without effect unless the source is live.
    #[must_use]
    pub fn probe(mut self, choice: ProbeChoice) -> Self {
        if let Source::Live { probe, .. } = &mut self.source {
            *probe = choice;
        }
        self
    }

    /// The same run with these attributes.
    #[must_use]
    pub fn attributes(self, attributes: AttributeOptions) -> Self {
        Self { attributes, ..self }
    }

    /// The same run with surveys only.
    #[must_use]
    pub fn without_samples(self) -> Self {
        Self { sampling: false, ..self }
    }

    /// The same run with this choice of surveys.
    #[must_use]
    pub fn survey(self, survey: SurveyChoice) -> Self {
        Self { survey, ..self }
    }

    /// The same run within this budget.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The same run with this goal of the intervals.
    #[must_use]
    pub fn intervals_goal(self, goal: IntervalsGoal) -> Self {
        Self { intervals_goal: Some(goal), ..self }
    }

    /// The same run with the call stacks of the calls that map memory.
    #[must_use]
    pub fn stacks(self) -> Self {
        Self { stacks: true, ..self }
    }

    /// The same run with this seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// The same run, of this length at most.
    #[must_use]
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration: Some(duration), ..self }
    }

    /// The same run with these schemes.
    #[must_use]
    pub fn schemes(self, schemes: Vec<Scheme>) -> Self {
        Self { schemes: Some(SchemeOptions::new(SchemeSource::Fixed(schemes))), ..self }
    }

    /// The same run, recorded to this file.
    #[must_use]
    pub fn record(self, path: impl AsRef<Path>) -> Self {
        Self { recording: Some(path.as_ref().into()), ..self }
    }

    /// The command that the run starts, if there is one.
    pub(crate) fn command_line(&self) -> Option<&CommandLine> {
        match &self.source {
            Source::Live { targets, .. } => targets.command(),
            Source::Simulation(_) | Source::Replay { .. } => None,
        }
    }

    /// The files that the run reads: no output may be one of them. The files that schemes name are not among them.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let recording = match &self.source {
            Source::Replay { path, .. } => Some(path.clone()),
            Source::Live { .. } | Source::Simulation(_) => None,
        };
        let schemes = self.schemes.as_ref().and_then(|schemes| match &schemes.schemes {
            SchemeSource::File(path) => Some(path.clone()),
            SchemeSource::Fixed(_) => None,
        });
        // A name without a directory is looked up in $PATH.
        let program = self.command_line().and_then(|command| command.words.first()).map(PathBuf::from);
        let program = program.filter(|program| program.components().count() > 1);
        recording.into_iter().chain(schemes).chain(program).collect()
    }

    /// Checks what can be checked without opening or starting anything.
    ///
    /// # Errors
    /// If the parts of the description contradict each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Source::Live { targets, probe } = &self.source {
            targets.validate(*probe)?;
            let samples = self.attributes.sampling.is_some() || self.survey == SurveyChoice::Off;
            if samples && matches!(targets, Targets::Files(_)) {
                return Err(ConfigError::FilesWithSamples);
            }
            let surveys = self.survey != SurveyChoice::Off && *probe != ProbeChoice::Damon;
            if self.schemes.is_some() && targets.is_physical() && !surveys {
                return Err(ConfigError::SchemesOnPhysicalMemory);
            }
        }
        if self.stacks && !self.source.is_of_processes() {
            return Err(ConfigError::StacksOfProcesses);
        }
        if let Some(budget) = self.budget
            && !(budget.cpu > 0.0 && budget.targets > 0.0)
        {
            return Err(ConfigError::NoBudget);
        }
        if let Some(goal) = self.intervals_goal {
            if !(goal.accesses > 0.0 && goal.accesses <= 1.0) {
                return Err(ConfigError::WrongGoal);
            }
            let is_fixed = self.attributes.sampling.is_some() || self.attributes.aggregation.is_some();
            if is_fixed || self.intervals == IntervalsChoice::Fixed || self.schemes.is_some() || !self.sampling {
                return Err(ConfigError::GoalOfFixedIntervals);
            }
        }
        match self.survey {
            SurveyChoice::Off if !self.sampling => return Err(ConfigError::NothingMeasured),
            SurveyChoice::Every(interval) if interval < SurveyChoice::MIN_SURVEY => {
                return Err(ConfigError::SurveyTooShort(interval));
            }
            _ => {}
        }
        // Which probe `Auto` takes is not known yet: a duration is too short if it is for each that it may take.
        let granularities: &[Granularity] = match &self.source {
            Source::Live { probe: ProbeChoice::Refs, .. } => &[Granularity::Mapping],
            Source::Live { probe: ProbeChoice::Auto, .. } => &[Granularity::Page, Granularity::Mapping],
            _ => &[Granularity::Page],
        };
        let mut checked = Ok(());
        for granularity in granularities {
            checked = check_duration(self.duration, self.attributes.resolve(*granularity)?);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }
}

/// A run that is shorter than an aggregation interval has no snapshot.
pub(crate) fn check_duration(duration: Option<Duration>, attributes: Attributes) -> Result<(), ConfigError> {
    match duration {
        Some(duration) if duration < attributes.aggregation() => {
            Err(ConfigError::DurationTooShort { duration, aggregation: attributes.aggregation() })
        }
        _ => Ok(()),
    }
}

impl Targets {
    fn validate(&self, probe: ProbeChoice) -> Result<(), ConfigError> {
        let damon = probe == ProbeChoice::Damon;
        match self {
            Self::Processes { selection, .. } if selection.is_empty() => Err(ConfigError::NoTarget),
            Self::Processes { selection, waits: true, .. } if !selection.is_open() => {
                Err(ConfigError::NothingToWaitFor)
            }
            Self::Processes { selection, part, .. }
                if !part.ranges.is_empty()
                    && (selection.is_open() || selection.children || selection.any.len() != 1) =>
            {
                Err(ConfigError::RangeNeedsOneProcess)
            }
            Self::Command { part, .. } if !part.ranges.is_empty() => Err(ConfigError::RangeNeedsOneProcess),
            Self::Processes { selection, .. } if damon && (selection.is_open() || selection.children) => {
                Err(ConfigError::DamonWithNewcomers)
            }
            Self::Command { children: true, .. } if damon => Err(ConfigError::DamonWithNewcomers),
            Self::Processes { selection, part, .. }
                if damon && !part.mappings.is_empty() && selection.any.len() != 1 =>
            {
                Err(ConfigError::DamonWithMappings)
            }
            Self::Command { part, .. } if damon && !part.mappings.is_empty() => Err(ConfigError::DamonWithMappings),
            Self::Command { command, .. } | Self::Physical { during: Some(command), .. }
                if command.words.is_empty() =>
            {
                Err(ConfigError::NoTarget)
            }
            Self::Files(WatchedFiles::At(paths)) if paths.is_empty() => Err(ConfigError::NoTarget),
            Self::Files(WatchedFiles::UsedBy(users)) if users.is_empty() => Err(ConfigError::NoTarget),
            Self::Files(_) if !matches!(probe, ProbeChoice::Auto | ProbeChoice::Idle) => {
                Err(ConfigError::ProbeSeesNoFiles)
            }
            Self::Physical { .. } if !probe.sees_physical_memory() => Err(ConfigError::ProbeSeesProcessesOnly),
            _ => Ok(()),
        }
    }

    /// A command, without its descendants.
    pub fn command_line(command: CommandLine) -> Self {
        Self::Command { command, children: false, except: Vec::new(), part: Part::default() }
    }

    /// The selection that names the processes. `None` if it is a command, physical memory or files.
    pub(crate) const fn selection(&self) -> Option<&Selection> {
        match self {
            Self::Processes { selection, .. } => Some(selection),
            Self::Command { .. } | Self::Physical { .. } | Self::Files(_) => None,
        }
    }

    /// The command that the run starts, if there is one.
    pub fn command(&self) -> Option<&CommandLine> {
        match self {
            Self::Command { command, .. } => Some(command),
            Self::Physical { during, .. } => during.as_ref(),
            Self::Processes { .. } | Self::Files(_) => None,
        }
    }

    /// The part of each process that is watched. `None` for physical memory and files.
    pub(crate) const fn part(&self) -> Option<&Part> {
        match self {
            Self::Processes { part, .. } | Self::Command { part, .. } => Some(part),
            Self::Physical { .. } | Self::Files(_) => None,
        }
    }

    /// Whether the targets are physical memory.
    pub const fn is_physical(&self) -> bool {
        matches!(self, Self::Physical { .. })
    }
}
