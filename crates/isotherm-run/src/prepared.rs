//! From the description of a run to a run that can start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{AttributeOptions, Attributes, Granularity, IntervalsGoal, PaceOptions, TargetId, units};
use isotherm_kernel::hold::LONGEST_HOLD;
use isotherm_kernel::{
    Part, PhysicalMemory, Pidfd, Processes, Selection, Selector, TargetError, bit_prices, mappings_of, now_since_boot,
    resident, unix_ns,
};
use isotherm_probes::bpf::SharedLimits;
use isotherm_probes::stacks::StackTracer;
use isotherm_probes::{MOST_PAUSE, expected_pause};
use isotherm_record::{Contents, Recorder, Recording, recording_at};

use crate::command::Command;
use crate::config::check_duration;
use crate::delivery::{EventSink, Events, Need, Overflow, Sinks};
use crate::outlet::Outlet;
use crate::pace::HelperCpu;
use crate::probe::{OpenProbe, ProbeKind, ProbeUse};
use crate::properties::Properties;
use crate::recording::{RecordingSink, header};
use crate::schemes::{PreparedSchemes, SchemeThread, fixed_schemes};
use crate::session::{Helpers, Session};
use crate::source::{EndedSource, KernelSource, MonitorSource, ReplaySource, SimulationSource};
use crate::stacks::StackThread;
use crate::targets::LiveTargets;
use crate::usage::Usage;
use crate::{
    CommandLine, ConfigError, Control, Event, IntervalsChoice, Notice, RunConfig, RunError, Scheduling, Severity,
    Source, SurveyChoice, Targets,
};

/// The update interval of a run with surveys, if none is asked for: processes and memory that are new are seen soon.
/// The budget may make it longer.
const SHORT_UPDATE: Duration = Duration::from_millis(200);

/// The kernel tells the time at which a process was started in units of this, rounded down.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// A run of a given length has at least this many snapshots, however long its intervals become.
const LEAST_SNAPSHOTS: u32 = 10;

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
        targets: Unbound,
        schemes: Option<Box<PreparedSchemes>>,
        stacks: Option<StackTracer>,
    },
    Simulation(SimulationSource),
    Replay(ReplaySource),
}

/// Targets that were checked. A command may not run yet.
#[expect(clippy::large_enum_variant, reason = "a run has one of it")]
enum Unbound {
    Processes { processes: Processes, part: Part, descendants: bool },
    Command { command: Start, selection: Selection, part: Part },
    Physical { memory: PhysicalMemory, during: Option<Start> },
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
        config.validate()?;
        let mut inputs = config.inputs();
        let has_command = config.command_line().is_some();
        let RunConfig {
            source,
            attributes,
            sampling,
            survey,
            shared,
            shared_hold,
            allow_pauses,
            budget,
            start,
            stacks,
            intervals,
            intervals_goal,
            scheduling,
            seed,
            duration,
            schemes,
            recording,
            recording_need,
        } = config;
        let seed = seed.unwrap_or_else(unix_ns);
        let has_schemes = schemes.is_some();
        let mut notices = Vec::new();
        let (origin, properties) = match source {
            Source::Live { targets, probe } => {
                // A process that does not exist is reported before a probe is loaded. Physical memory always exists, so
                // what its probe lacks is reported first.
                let wants_samples = attributes.sampling.is_some() || attributes.aggregation.is_some() || has_schemes;
                let by_mapping = survey != SurveyChoice::Off && !wants_samples;
                // Without a budget of their own, users who ask for an interval get it, and users who turn surveys off
                // get DAMON's method.
                let bounds_samples = budget.is_some() || (attributes.sampling.is_none() && survey != SurveyChoice::Off);
                let mut budget = budget.unwrap_or_default();
                let mut limits = SharedLimits::default().with_longest_hold(shared_hold);
                limits.time_share = budget.targets;
                if let Some(prices) = bit_prices() {
                    (budget.set_again, budget.clear) = (prices.set_again, prices.clear);
                    limits.set_again = prices.set_again_of_few;
                }
                let shared = (shared, limits);
                let rate = budget.targets / budget.set_again.as_secs_f64().max(1e-9);
                let sweeps = (survey == SurveyChoice::Off).then_some(rate);
                let most_pause = if allow_pauses { Duration::MAX } else { MOST_PAUSE };
                let how = ProbeUse { shared, by_mapping, most_pause, sweeps };
                if let Targets::Processes { selection, waits: true, .. } = &targets {
                    let warning = selection.warning(Path::new("/"));
                    notices.extend(warning.map(|warning| Notice::new(Severity::Warning, &warning)));
                }
                let (unbound, mut probe) = if targets.is_physical() {
                    let probe = OpenProbe::open(probe, &targets, how)?;
                    (Unbound::new(&targets)?, probe)
                } else {
                    (Unbound::new(&targets)?, OpenProbe::open(probe, &targets, how)?)
                };
                let survey = probe.survey(survey)?;
                // Without sampling, the sampling interval only says how often there is a snapshot.
                if sampling && !probe.has_samples() && attributes.sampling.is_some() {
                    return Err(ConfigError::NoSamples.into());
                }
                let (sampling, attributes) = match sampling && !probe.has_samples() {
                    true => (false, attributes.without_samples()),
                    false => (sampling, attributes),
                };
                if !sampling && survey.is_none() {
                    return Err(ConfigError::NoSurvey(probe.name).into());
                }
                let granularity = probe.granularity();
                let mut part = targets.part().cloned().unwrap_or_default();
                if granularity == Granularity::Mapping && !part.ranges.is_empty() {
                    part.whole_mappings = true;
                    notices.push(Notice::new(Severity::Warning, WHOLE_MAPPINGS));
                }
                if matches!(probe.kind, ProbeKind::Kernel { .. }) && !part.mappings.is_empty() {
                    notices.push(Notice::new(Severity::Warning, FIRST_MAPPINGS));
                }
                let unbound = unbound.narrowed_to(part)?;
                if granularity == Granularity::Mapping {
                    notices.extend(unbound.pause());
                }
                // Without surveys most pages were never marked as idle, so that the bitmap says nothing of them.
                let look = if survey.is_some() { probe.look.take() } else { None };
                let schemes = schemes.map(|schemes| PreparedSchemes::new(schemes, look, survey.is_some()));
                let schemes = schemes.transpose()?.map(Box::new);
                let compares_rates = schemes.as_ref().is_some_and(|schemes| schemes.longest_aggregation().is_none());
                let in_time = schemes.as_ref().map_or(Duration::MAX, |schemes| schemes.longest_in_time());
                let adapts = bounds_samples
                    && attributes.sampling.is_none()
                    && attributes.aggregation.is_none()
                    && granularity == Granularity::Page
                    && probe.can_tune()
                    && intervals != IntervalsChoice::Fixed;
                // A scheme that compares access rates needs the sampling interval that it was written for.
                let tunes = adapts && !compares_rates;
                let most = match intervals {
                    IntervalsChoice::Within(most) => most,
                    IntervalsChoice::Auto | IntervalsChoice::Fixed => Duration::MAX,
                };
                let most = most.min(in_time);
                let most_aggregation = duration.map_or(most, |duration| most.min(duration / LEAST_SNAPSHOTS));
                if intervals_goal.is_some() && !tunes {
                    return Err(ConfigError::GoalOfFixedIntervals.into());
                }
                let goal = tunes.then(|| {
                    let goal = intervals_goal.unwrap_or_default();
                    IntervalsGoal { most_aggregation: most_aggregation.min(goal.most_aggregation), ..goal }
                });
                let has_budget = probe.is_paced() && (bounds_samples || !sampling);
                let longest_aggregation = (adapts && !tunes).then_some(most_aggregation);
                let samples = sampling;
                let pace = PaceOptions {
                    budget,
                    start,
                    has_budget,
                    bounds_samples,
                    samples,
                    survey,
                    goal,
                    longest_aggregation,
                };
                let follows = survey.is_some() && !targets.is_physical();
                let update = attributes.update.or(follows.then_some(SHORT_UPDATE));
                let attributes = AttributeOptions { update, ..attributes };
                let attributes = attributes.resolve(granularity).map_err(ConfigError::from)?;
                check_duration(duration, attributes)?;
                let stacks = stacks.then(StackTracer::open).transpose()?;
                if stacks.as_ref().is_some_and(StackTracer::slows_all_calls) {
                    notices.push(Notice::new(Severity::Warning, SLOW_CALLS));
                }
                inputs.extend(schemes.iter().flat_map(|schemes| schemes.inputs()));
                notices.extend(probe.notice);
                let properties = Properties {
                    probe: probe.name.into(),
                    granularity,
                    attributes: Some(attributes),
                    samples: sampling,
                    surveys: survey.is_some(),
                    budget: has_budget.then_some(budget),
                    tunes_intervals: Some(goal.is_some() && sampling),
                };
                let (probe, targets) = (probe.kind, unbound);
                (Origin::Live { probe, attributes, pace, scheduling, targets, schemes, stacks }, properties)
            }
            Source::Simulation(pattern) => {
                let granularity = Granularity::Page;
                let attributes = attributes.resolve(granularity).map_err(ConfigError::from)?;
                let schemes = schemes.map(fixed_schemes).transpose()?;
                let survey = match survey {
                    SurveyChoice::Every(interval) => Some(interval),
                    SurveyChoice::Auto | SurveyChoice::Off => None,
                };
                let source = SimulationSource { pattern: *pattern, attributes, survey, seed, schemes };
                let properties = Properties {
                    probe: "simulation".into(),
                    granularity,
                    attributes: Some(attributes),
                    samples: sampling,
                    surveys: survey.is_some(),
                    budget: None,
                    tunes_intervals: Some(false),
                };
                (Origin::Simulation(source), properties)
            }
            Source::Replay { path, max_memory } => {
                let recording = Recording::open_within(&path, max_memory)?;
                let properties = Properties::of(recording.header());
                if !recording.damage().is_empty() {
                    let text = "the recording is damaged; what cannot be read is passed over (isotherm check)";
                    notices.push(Notice::new(Severity::Warning, text));
                }
                let schemes = schemes.map(fixed_schemes).transpose()?;
                (Origin::Replay(ReplaySource { recording, schemes }), properties)
            }
        };
        let recording = recording.map(|path| {
            let header = header(&properties, seed);
            let usage = (matches!(origin, Origin::Live { .. }) && !has_schemes).then(Usage::new);
            let activities = has_schemes || usage.is_some();
            let live = matches!(origin, Origin::Live { .. });
            let surveys = properties.surveys;
            let contents = Contents {
                activities,
                surveys,
                // Without a clock, the source waits for the recorder, and nothing is missed.
                live,
                // A mark can be made at any time.
                marks: true,
                allocations: stacks,
            };
            let output = recording_at(&path).apart_from(&inputs).create()?;
            // A command has an end and a status, however short it is, and its recording says so.
            let recorder = Recorder::begin(output, &header, contents)?;
            let need = recording_need.unwrap_or(if has_schemes { Need::Optional } else { Need::Needed });
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
    pub fn start(mut self) -> Result<Session, RunError> {
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
            Origin::Live { probe, attributes, pace, scheduling, targets: unbound, schemes, stacks } => {
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
            schemes.map(|schemes| schemes.start(processes.clone(), control.clone(), delivery.clone(), first));
        let schemes = schemes.transpose()?;
        let stacks = stacks.map(|(tracer, descendants)| {
            StackThread::start(tracer, processes, descendants, control.clone(), delivery.clone())
        });
        let helpers = Helpers { schemes, stacks: stacks.transpose()? };
        let outlet = Outlet::new(control.clone(), duration, delivery);
        Session::start(source, outlet, helpers, threads, control, command, recorded)
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
            physical @ Self::Physical { .. } => physical,
        })
    }

    /// Whether descendants of the processes are targets, too.
    fn has_descendants(&self) -> bool {
        match self {
            Self::Processes { descendants, .. } => *descendants,
            Self::Command { selection, .. } => selection.children,
            Self::Physical { .. } => false,
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
            Self::Physical { memory, during: None } => Some((LiveTargets::Physical(memory, None), Part::default())),
            Self::Physical { memory, during: Some(command) } => follow(&command, Selection::default())?
                .map(|processes| (LiveTargets::Physical(memory, Some(processes)), Part::default())),
        })
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
