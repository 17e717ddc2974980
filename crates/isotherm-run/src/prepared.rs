//! From the description of a run to a run that can start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{Attributes, Granularity, PaceOptions, Shares, TargetId, units};
use isotherm_kernel::hold::LONGEST_HOLD;
use isotherm_kernel::page_cache::{CachedFiles, FilesError};
use isotherm_kernel::{
    Part, PhysicalMemory, Pidfd, ProcessTable, Processes, Selection, Selector, TargetError, bit_prices, mappings_of,
    now_since_boot, resident, unix_ns,
};
use isotherm_probes::bpf::SharedLimits;
use isotherm_probes::stacks::StackTracer;
use isotherm_probes::{MOST_PAUSE, expected_pause};
use isotherm_record::{Contents, Header, Recorder, Recording, recording_at};

use crate::command::Command;
use crate::delivery::{Delivery, EventSink, Events, Need, Overflow, Sinks};
use crate::outlet::Outlet;
use crate::pace::HelperCpu;
use crate::plan::{Plan, SchemeNeeds, Wishes};
use crate::probe::{OpenProbe, ProbeKind, ProbeUse};
use crate::properties::Properties;
use crate::recording::{RecordingSink, header};
use crate::schemes::{ActedOn, PreparedSchemes, SchemeThread, fixed_schemes};
use crate::session::{Helpers, Session};
use crate::source::{EndedSource, KernelSource, MonitorSource, ReplaySource, SimulationSource};
use crate::stacks::StackThread;
use crate::targets::LiveTargets;
use crate::usage::Usage;
use crate::{
    Allowance, CommandLine, ConfigError, Control, Event, Member, Notice, ProbeChoice, RunConfig, RunError, Scheduling,
    Severity, Source, SurveyChoice, Targets, WatchedFiles,
};

/// The kernel tells the time at which a process was started in units of this, rounded down.
const CLOCK_TICK: Duration = Duration::from_millis(10);

const WHOLE_MAPPINGS: &str =
    "the probe refs sees whole mappings: those that the ranges touch are watched from their start to their end";
const FIRST_MAPPINGS: &str =
    "the probe damon watches the memory that mappings have now, not memory that they gain or that is mapped later";
const SLOW_CALLS: &str = "this kernel runs no eBPF programs in single system calls: as long as call stacks are \
                          recorded, each system call of the machine takes longer (docs/stacks.md)";

/// A run that has everything it needs, and has not started.
///
/// Dropping it leaves nothing behind.
pub struct Prepared {
    origin: Origin,
    properties: Properties,
    seed: u64,
    duration: Option<Duration>,
    sinks: Sinks,
    control: Control,
    /// When the command was started, since the boot of the machine.
    began: Option<Duration>,
    notices: Vec<Notice>,
    recording: Option<(RecordingSink, Need)>,
    /// The files that the run reads.
    inputs: Vec<PathBuf>,
}

/// The source of a run, as far as it can be made before the run starts.
#[expect(clippy::large_enum_variant, reason = "a run has one of it")]
enum Origin {
    Live {
        probe: ProbeKind,
        attributes: Attributes,
        pace: PaceOptions,
        scheduling: Scheduling,
        /// The part of a budget that several runs share.
        member: Option<Member>,
        targets: Unbound,
        schemes: Option<Box<PreparedSchemes>>,
        stacks: Option<StackTracer>,
    },
    Simulation(SimulationSource),
    Replay(ReplaySource),
}

impl Origin {
    /// Opens the probe of a live run and finds its targets. Adds to the notices, and to the files that the run reads.
    fn live(
        config: &RunConfig,
        targets: &Targets,
        probe: ProbeChoice,
        views: Option<SchemeNeeds>,
        (notices, inputs): (&mut Vec<Notice>, &mut Vec<PathBuf>),
    ) -> Result<(Self, Properties), RunError> {
        let mut warn = |text: &str| notices.push(Notice::new(Severity::Warning, text));
        let mut budget = config.budget.unwrap_or_default();
        // A run with an own budget beside the allowance has the targets' time of that.
        let own_targets = config.budget.map(|budget| budget.targets);
        if let Some(Shares { cpu, targets }) = config.allowance.as_ref().map(Allowance::whole) {
            (budget.cpu, budget.targets) = (cpu, own_targets.unwrap_or(targets));
        }
        let mut limits = SharedLimits::default().with_longest_hold(config.shared_hold);
        limits.time_share = budget.targets;
        if let Some(prices) = bit_prices() {
            (budget.set_again, budget.clear) = (prices.set_again, prices.clear);
            limits.set_again = prices.set_again_of_few;
        }
        let wishes = Wishes {
            attributes: config.attributes,
            sampling: config.sampling,
            survey: config.survey,
            has_budget: config.budget.is_some() || config.allowance.is_some(),
            budget,
            start: config.start,
            intervals: config.intervals,
            intervals_goal: config.intervals_goal,
            duration: config.duration,
            is_of_processes: !targets.is_physical() && !matches!(targets, Targets::Files(_)),
        };
        let rate = budget.targets / budget.set_again.as_secs_f64().max(1e-9);
        let how = ProbeUse {
            shared: (config.shared, limits),
            by_mapping: wishes.surveys_mappings(config.schemes.is_some()),
            most_pause: if config.allow_pauses { Duration::MAX } else { MOST_PAUSE },
            sweeps: (config.survey == SurveyChoice::Off).then_some(rate),
        };
        if let Targets::Processes { selection, waits: true, .. } = targets
            && let Some(text) = selection.warning(Path::new("/"))
        {
            warn(&text);
        }
        // A process that does not exist is reported before a probe is loaded. Physical memory always exists, so what
        // its probe lacks is reported first.
        let (unbound, mut probe) = if let Targets::Files(of) = targets {
            let files = cached_files(of)?;
            files.remark().iter().for_each(|text| warn(text));
            let probe = OpenProbe::of_files(probe, files.table())?;
            (Unbound::Files(files), probe)
        } else if targets.is_physical() {
            let probe = OpenProbe::open(probe, targets, how)?;
            (Unbound::new(targets)?, probe)
        } else {
            (Unbound::new(targets)?, OpenProbe::open(probe, targets, how)?)
        };
        let can = probe.capabilities();
        let surveys = wishes.survey(can)?.is_some();
        let mut part = targets.part().cloned().unwrap_or_default();
        let by_mapping = can.granularity == Granularity::Mapping;
        if by_mapping && !part.ranges.is_empty() {
            part.whole_mappings = true;
            warn(WHOLE_MAPPINGS);
        }
        if matches!(probe.kind, ProbeKind::Kernel { .. }) && !part.mappings.is_empty() {
            warn(FIRST_MAPPINGS);
        }
        let unbound = unbound.narrowed_to(part)?;
        let look = can.look(surveys);
        let schemes = config
            .schemes
            .clone()
            .map(|schemes| PreparedSchemes::new(schemes, unbound.acted_on(targets), look, surveys));
        let schemes = schemes.transpose()?.map(Box::new);
        let needs = schemes.as_ref().map(|schemes| SchemeNeeds {
            compares_rates: schemes.longest_aggregation().is_none(),
            longest: schemes.longest_in_time(),
        });
        let needs = needs.or(views);
        let Plan { attributes, pace, properties } = Plan::resolve(&wishes, can, needs)?;
        let stacks = config.stacks.then(StackTracer::open).transpose()?;
        if stacks.as_ref().is_some_and(StackTracer::slows_all_calls) {
            warn(SLOW_CALLS);
        }
        if by_mapping {
            notices.extend(unbound.pause());
        }
        inputs.extend(schemes.iter().flat_map(|schemes| schemes.inputs()));
        notices.extend(probe.notice);
        let (probe, targets, scheduling) = (probe.kind, unbound, config.scheduling.clone());
        let member = config.allowance.as_ref().map(|allowance| allowance.join(own_targets));
        Ok((Self::Live { probe, attributes, pace, scheduling, member, targets, schemes, stacks }, properties))
    }
}

/// Targets that were checked. A command may not run yet.
#[expect(clippy::large_enum_variant, reason = "a run has one of it")]
enum Unbound {
    Processes { processes: Processes, part: Part, descendants: bool },
    Command { command: Start, selection: Selection, part: Part },
    Physical { memory: PhysicalMemory, during: Option<Start> },
    Files(CachedFiles),
}

/// A command that is to be started, or was.
enum Start {
    Pending(Box<CommandLine>),
    Started { pid: u32 },
}

impl RunConfig {
    /// Checks the description, opens the probe, reads the schemes and creates the recording. No command is started and
    /// no target is touched before [`Prepared::start`].
    ///
    /// # Errors
    /// If the description is wrong, or what it asks for does not work here.
    pub fn prepare(self) -> Result<Prepared, RunError> {
        Prepared::new(self)
    }
}

impl Prepared {
    pub(crate) fn new(config: RunConfig) -> Result<Self, RunError> {
        Self::with_views(config, None)
    }

    /// A run for views whose schemes have these needs.
    pub(crate) fn of_views(config: RunConfig, needs: SchemeNeeds) -> Result<Self, RunError> {
        Self::with_views(config, Some(needs))
    }

    fn with_views(config: RunConfig, views: Option<SchemeNeeds>) -> Result<Self, RunError> {
        config.validate()?;
        let (mut inputs, mut notices) = (config.inputs(), Vec::new());
        let (seed, duration) = (config.seed.unwrap_or_else(unix_ns), config.duration);
        let (has_schemes, has_command) = (config.schemes.is_some(), config.command_line().is_some());
        let (origin, properties) = match config.source.clone() {
            Source::Live { targets, probe } => {
                Origin::live(&config, &targets, probe, views, (&mut notices, &mut inputs))?
            }
            Source::Simulation(pattern) => {
                let survey = match config.survey {
                    SurveyChoice::Every(interval) => Some(interval),
                    SurveyChoice::Auto | SurveyChoice::Off => None,
                };
                let attributes = config.attributes.resolve(Granularity::Page).map_err(ConfigError::from)?;
                let properties = Properties::of_simulation(attributes, config.sampling, survey.is_some());
                let schemes = config.schemes.map(fixed_schemes).transpose()?;
                let pattern = *pattern;
                (Origin::Simulation(SimulationSource { pattern, attributes, survey, seed, schemes }), properties)
            }
            Source::Replay { path, max_memory } => {
                let recording = Recording::open_within(&path, max_memory)?;
                let properties = Properties::of(recording.header());
                if !recording.damage().is_empty() {
                    let text = "the recording is damaged; what cannot be read is passed over (isotherm check)";
                    notices.push(Notice::new(Severity::Warning, text));
                }
                let schemes = config.schemes.map(fixed_schemes).transpose()?;
                (Origin::Replay(ReplaySource { recording, schemes }), properties)
            }
        };
        let live = matches!(origin, Origin::Live { .. });
        let recording = config.recording.map(|path| {
            let usage = (live && !has_schemes).then(Usage::new);
            let contents = Contents {
                activities: has_schemes || usage.is_some(),
                surveys: properties.surveys,
                // Without a clock, the source waits for the recorder, and nothing is missed.
                live,
                // A mark can be made at any time.
                marks: true,
                allocations: config.stacks,
            };
            let output = recording_at(&path).apart_from(&inputs).create()?;
            // A command has an end and a status, however short it is, and its recording says so.
            let recorder = Recorder::begin(output, &header(&properties, seed), contents)?;
            let need = config.recording_need.unwrap_or(if has_schemes { Need::Optional } else { Need::Needed });
            Ok::<_, RunError>((RecordingSink::new(recorder, usage, has_command), need))
        });
        let recording = recording.transpose()?;
        let control = Control::new()?;
        let sinks = Sinks::default();
        Ok(Self { origin, properties, seed, duration, sinks, control, began: None, notices, recording, inputs })
    }

    /// What holds for the run.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The header of a recording of the run.
    pub fn header(&self) -> Header {
        header(&self.properties, self.seed)
    }

    /// Gives commands to the run, before and after it starts.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// A further receiver of all events, as an iterator. A receiver that takes no events for a long time misses some,
    /// and then gets [`Event::Missed`]. Simulations and replays wait for the receiver instead.
    pub fn subscribe(&mut self) -> Events {
        self.sinks.subscribe()
    }

    /// A further sink of all events, on a thread of its own. `name` names it in errors.
    pub fn add_sink(&mut self, name: &str, need: Need, sink: impl EventSink + 'static) {
        self.sinks.add(name, need, Box::new(sink));
    }

    /// Counts further threads of this program as threads of the run.
    pub fn helper_cpu(&self) -> HelperCpu {
        self.sinks.helpers().clone()
    }

    /// Starts the command of the run before the run itself, so that its caller can pass signals on to it from its
    /// beginning. `None` if the run has no command, or it was started already.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start_command(&mut self) -> Result<Option<Command>, RunError> {
        let Origin::Live { targets, stacks, .. } = &mut self.origin else { return Ok(None) };
        let descendants = targets.has_descendants();
        let (Unbound::Command { command, .. } | Unbound::Physical { during: Some(command), .. }) = targets else {
            return Ok(None);
        };
        let Start::Pending(line) = command else { return Ok(None) };
        self.began = Some(now_since_boot().saturating_sub(CLOCK_TICK));
        // The command is watched from its first call on. No other process is started meanwhile.
        stacks.as_ref().map(|tracer| tracer.watch_children(descendants)).transpose()?;
        let started = Command::start(line, &self.inputs);
        stacks.iter().for_each(StackTracer::leave_children);
        let started = started?;
        *command = Start::Started { pid: started.pid() };
        Ok(Some(started))
    }

    /// Starts the run: the command if there is one and it does not run yet, the sinks, and the source.
    ///
    /// # Errors
    /// If the command cannot be started, or a thread cannot be started.
    pub fn start(self) -> Result<Session, RunError> {
        self.launch().map(|(session, ..)| session)
    }

    /// Starts the run. Returns what its views need, too.
    pub(crate) fn launch(mut self) -> Result<(Session, Delivery, ProcessTable), RunError> {
        let command = self.start_command()?;
        let Self { origin, duration, mut sinks, control, began, notices, recording, .. } = self;
        let recorded = recording.map(|(recording, need)| recording.add_to(&mut sinks, need));
        let overflow = match &origin {
            Origin::Live { .. } => Overflow::Miss,
            Origin::Simulation(_) | Origin::Replay(_) => Overflow::Wait,
        };
        // What can fail comes before the sinks' threads.
        let first = match &origin {
            Origin::Live { attributes, pace, .. } => pace.goal.map(|_| *attributes),
            Origin::Simulation(_) | Origin::Replay(_) => None,
        };
        let (source, processes, schemes, stacks): (Box<dyn crate::source::Source>, _, _, _) = match origin {
            Origin::Live { probe, attributes, pace, scheduling, member, targets: unbound, schemes, stacks } => {
                let stacks = stacks.map(|tracer| (tracer, unbound.has_descendants()));
                match unbound.bind()? {
                    None => (Box::new(EndedSource), None, None, None),
                    Some((targets, part)) => {
                        let processes = targets.processes();
                        let source: Box<dyn crate::source::Source> = match probe {
                            ProbeKind::Monitor(probe) => Box::new(MonitorSource {
                                attributes,
                                pace,
                                scheduling,
                                member,
                                seed: self.seed,
                                began,
                                probe,
                                targets,
                            }),
                            ProbeKind::Kernel { paths, .. } => {
                                Box::new(KernelSource { attributes, paths, targets, part, goal: pace.goal })
                            }
                        };
                        (source, Some(processes), schemes, stacks)
                    }
                }
            }
            Origin::Simulation(source) => (Box::new(source), None, None, None),
            Origin::Replay(source) => (Box::new(source), None, None, None),
        };
        let (delivery, threads) = sinks.start(overflow, &control)?;
        notices.into_iter().for_each(|notice| delivery.send(Event::Notice(notice)));
        let processes = processes.unwrap_or_default();
        let schemes: Option<Result<SchemeThread, RunError>> =
            schemes.map(|schemes| schemes.start(processes.clone(), control.clone(), delivery.clone(), first, None));
        let schemes = schemes.transpose()?;
        let stacks = stacks.map(|(tracer, descendants)| {
            StackThread::start(tracer, processes.clone(), descendants, control.clone(), delivery.clone())
        });
        let helpers = Helpers { schemes, stacks: stacks.transpose()? };
        let outlet = Outlet::new(control.clone(), duration, delivery.clone());
        let session = Session::start(source, outlet, helpers, threads, control, command, recorded)?;
        Ok((session, delivery, processes))
    }
}

impl Unbound {
    /// Says how long the probe `refs` keeps a target from mapping memory at a time, if that is known and can be felt.
    fn pause(&self) -> Option<Notice> {
        let Self::Processes { processes, .. } = self else { return None };
        let ids: Vec<TargetId> = processes.process_table().members().keys().copied().collect();
        let pause = |id: TargetId| {
            let pid = id.pid()?;
            let mappings = mappings_of(pid, &Pidfd::open(pid).ok()?).ok()?;
            Some((id, expected_pause(resident(Path::new("/"), pid).ok()?, &mappings)))
        };
        let (id, longest) = ids.into_iter().filter_map(pause).max_by_key(|(_, pause)| *pause)?;
        let text = format!(
            "the probe refs keeps {id} from mapping memory for about {} at a time, by its size",
            units::duration(Duration::from_millis(longest.as_millis() as u64))
        );
        (longest > LONGEST_HOLD).then(|| Notice::new(Severity::Warning, &text))
    }

    /// Checks targets that are there already.
    fn new(targets: &Targets) -> Result<Self, RunError> {
        Ok(match targets {
            Targets::Processes { selection, waits, .. } => {
                let (selection, descendants) = (selection.clone(), selection.children);
                let processes = if *waits { Processes::wait_for(selection) } else { Processes::select(selection) };
                Self::Processes { processes: processes?, part: Part::default(), descendants }
            }
            Targets::Command { command, children, except, .. } => Self::Command {
                command: Start::Pending(Box::new(command.clone())),
                selection: Selection { children: *children, except: except.clone(), ..Selection::default() },
                part: Part::default(),
            },
            Targets::Physical { ranges, nodes, during } => Self::Physical {
                memory: PhysicalMemory::new(ranges.iter().copied())?.of_nodes(nodes)?,
                during: during.clone().map(|command| Start::Pending(Box::new(command))),
            },
            Targets::Files(of) => Self::Files(cached_files(of)?),
        })
    }

    /// The targets, if only a part of each process is watched.
    ///
    /// # Errors
    /// As [`Processes::narrowed_to`].
    fn narrowed_to(self, part: Part) -> Result<Self, TargetError> {
        Ok(match self {
            Self::Processes { processes, descendants, .. } => {
                Self::Processes { processes: processes.narrowed_to(part.clone())?, part, descendants }
            }
            Self::Command { command, selection, .. } => Self::Command { command, selection, part },
            memory @ (Self::Physical { .. } | Self::Files(_)) => memory,
        })
    }

    /// Whether descendants of the processes are targets, too.
    fn has_descendants(&self) -> bool {
        match self {
            Self::Processes { descendants, .. } => *descendants,
            Self::Command { selection, .. } => selection.children,
            Self::Physical { .. } | Self::Files(_) => false,
        }
    }

    /// What schemes act on.
    fn acted_on<'a>(&self, targets: &'a Targets) -> ActedOn<'a> {
        match self {
            Self::Files(files) => ActedOn::Files(files.table()),
            Self::Physical { .. } => ActedOn::Physical,
            Self::Processes { .. } | Self::Command { .. } => ActedOn::Processes(targets.selection()),
        }
    }

    /// The targets, with the command that runs by now, and the part of each process that is watched. `None` if the
    /// command has ended.
    fn bind(self) -> Result<Option<(LiveTargets, Part)>, RunError> {
        Ok(match self {
            Self::Processes { processes, part, .. } => Some((LiveTargets::Processes(processes), part)),
            Self::Command { command, selection, part } => match follow(&command, selection)? {
                Some(processes) => Some((LiveTargets::Processes(processes.narrowed_to(part.clone())?), part)),
                None => None,
            },
            Self::Files(files) => Some((LiveTargets::Files(files), Part::default())),
            Self::Physical { memory, during: None } => Some((LiveTargets::Physical(memory, None), Part::default())),
            Self::Physical { memory, during: Some(command) } => follow(&command, Selection::default())?
                .map(|processes| (LiveTargets::Physical(memory, Some(processes)), Part::default())),
        })
    }
}

/// The files with page cache.
fn cached_files(of: &WatchedFiles) -> Result<CachedFiles, FilesError> {
    match of {
        WatchedFiles::At(paths) => CachedFiles::new(paths),
        WatchedFiles::UsedBy(users) => CachedFiles::used_by(users.clone()),
    }
}

/// The command as a target, and all other processes that the selection names: the run ends with the command. `None` if
/// it has ended.
fn follow(command: &Start, selection: Selection) -> Result<Option<Processes>, RunError> {
    let Start::Started { pid } = command else { return Err(ConfigError::NoTarget.into()) };
    match Processes::select(Selection { any: vec![Selector::Pid(*pid)], ..selection }) {
        Ok(processes) => Ok(Some(processes.ending_with(*pid))),
        Err(TargetError::Ended { .. } | TargetError::NoSuchProcess(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
