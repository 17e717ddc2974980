//! From the description of a run to a run that can start.

use std::time::Duration;

use isotherm_core::{AddrRange, Attributes, Granularity};
use isotherm_kernel::{PhysicalMemory, Processes, TargetError, unix_ns};
use isotherm_record::{Contents, Recorder, Recording};

use crate::command::Command;
use crate::config::check_duration;
use crate::delivery::{EventSink, Events, Overflow, Sinks};
use crate::outlet::Outlet;
use crate::pace::SurveyPace;
use crate::probe::{OpenProbe, ProbeKind};
use crate::properties::Properties;
use crate::recording::{RecordingSink, header};
use crate::schemes::{PreparedSchemes, SchemeThread, fixed_schemes};
use crate::session::Session;
use crate::source::{KernelSource, MonitorSource, ReplaySource, SimulationSource};
use crate::targets::LiveTargets;
use crate::{CommandLine, ConfigError, Control, Event, Notice, RunConfig, RunError, Source, SurveyChoice, Targets};

/// A run that has everything it needs, and has not started.
///
/// Dropping it leaves nothing behind but an empty recording, if one was asked for.
pub struct Prepared {
    origin: Origin,
    properties: Properties,
    seed: u64,
    duration: Option<Duration>,
    sinks: Sinks,
    control: Control,
    notices: Vec<Notice>,
    recording: Option<RecordingSink>,
}

/// The source of a run, as far as it can be made before the run starts.
enum Origin {
    Live {
        probe: ProbeKind,
        attributes: Attributes,
        sampling: bool,
        sparing: bool,
        survey: Option<SurveyPace>,
        targets: Unbound,
        schemes: Option<Box<PreparedSchemes>>,
    },
    Simulation(SimulationSource),
    Replay(ReplaySource),
}

/// Targets that were checked. A command may not run yet.
enum Unbound {
    Processes { processes: Processes, ranges: Vec<AddrRange> },
    Command { command: Start, children: bool },
    Physical { memory: PhysicalMemory, during: Option<Start> },
}

/// A command that is to be started, or was.
enum Start {
    Pending(CommandLine),
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
        let RunConfig { source, attributes, sampling, survey, shared, seed, duration, schemes, recording } = config;
        let seed = seed.unwrap_or_else(unix_ns);
        let has_schemes = schemes.is_some();
        let mut notices = Vec::new();
        let (origin, properties) = match source {
            Source::Live { targets, probe } => {
                // A process that does not exist is reported before a probe is loaded. Physical memory always exists, so
                // what its probe lacks is reported first.
                let (unbound, mut probe) = if targets.is_physical() {
                    let probe = OpenProbe::open(probe, &targets, shared)?;
                    (Unbound::new(&targets)?, probe)
                } else {
                    (Unbound::new(&targets)?, OpenProbe::open(probe, &targets, shared)?)
                };
                let survey = probe.survey(survey)?;
                if !sampling && survey.is_none() {
                    return Err(ConfigError::NoSurvey(probe.name).into());
                }
                // Who asks for a sampling interval gets it.
                let sparing = survey.is_some() && attributes.sampling.is_none();
                let granularity = probe.granularity();
                let attributes = attributes.resolve(granularity).map_err(ConfigError::from)?;
                check_duration(duration, attributes)?;
                let schemes = schemes.map(PreparedSchemes::new).transpose()?.map(Box::new);
                notices.extend(probe.notice);
                let properties = Properties {
                    probe: probe.name.into(),
                    granularity,
                    attributes: Some(attributes),
                    surveys: survey.is_some(),
                };
                (
                    Origin::Live {
                        probe: probe.kind,
                        attributes,
                        sampling,
                        sparing,
                        survey,
                        targets: unbound,
                        schemes,
                    },
                    properties,
                )
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
                    surveys: survey.is_some(),
                };
                (Origin::Simulation(source), properties)
            }
            Source::Replay(path) => {
                let recording = Recording::open(&path)?;
                let properties = Properties::of(recording.header());
                let schemes = schemes.map(fixed_schemes).transpose()?;
                (Origin::Replay(ReplaySource { recording, schemes }), properties)
            }
        };
        let recording = recording.map(|path| {
            let header = header(&properties, seed);
            let contents = Contents { activities: has_schemes, surveys: properties.surveys };
            Ok::<_, RunError>(RecordingSink::new(Recorder::create_with(&path, &header, contents)?))
        });
        let recording = recording.transpose()?;
        let control = Control::new()?;
        Ok(Self { origin, properties, seed, duration, sinks: Sinks::default(), control, notices, recording })
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
    pub fn add_sink(&mut self, name: &str, sink: impl EventSink + 'static) {
        self.sinks.add(name, Box::new(sink));
    }

    /// Starts the command of the run before the run itself, so that its caller can pass signals on to it from its
    /// beginning. `None` if the run has no command, or it was started already.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start_command(&mut self) -> Result<Option<Command>, RunError> {
        let Origin::Live { targets, .. } = &mut self.origin else { return Ok(None) };
        let (Unbound::Command { command, .. } | Unbound::Physical { during: Some(command), .. }) = targets else {
            return Ok(None);
        };
        let Start::Pending(line) = command else { return Ok(None) };
        let started = Command::start(line)?;
        *command = Start::Started { pid: started.pid() };
        Ok(Some(started))
    }

    /// Starts the run: the command if there is one and it does not run yet, the sinks, and the source.
    ///
    /// # Errors
    /// If the command cannot be started or ended at once, or a thread cannot be started.
    pub fn start(mut self) -> Result<Session, RunError> {
        let command = self.start_command()?;
        let Self { origin, duration, mut sinks, control, notices, recording, .. } = self;
        let recorded = recording.map(|recording| recording.add_to(&mut sinks));
        let overflow = match &origin {
            Origin::Live { .. } => Overflow::Miss,
            Origin::Simulation(_) | Origin::Replay(_) => Overflow::Wait,
        };
        // What can fail comes before the sinks' threads.
        let (source, processes, schemes): (Box<dyn crate::source::Source>, _, _) = match origin {
            Origin::Live { probe, attributes, sampling, sparing, survey, targets, schemes } => {
                let (targets, ranges) = targets.bind()?;
                let processes = targets.processes();
                let source: Box<dyn crate::source::Source> = match probe {
                    ProbeKind::Monitor(probe) => Box::new(MonitorSource {
                        attributes,
                        sampling,
                        sparing,
                        survey,
                        seed: self.seed,
                        probe,
                        targets,
                    }),
                    ProbeKind::Kernel(paths) => Box::new(KernelSource { attributes, paths, targets, ranges }),
                };
                (source, Some(processes), schemes)
            }
            Origin::Simulation(source) => (Box::new(source), None, None),
            Origin::Replay(source) => (Box::new(source), None, None),
        };
        let (delivery, threads) = sinks.start(overflow, &control)?;
        notices.into_iter().for_each(|notice| delivery.send(Event::Notice(notice)));
        let schemes: Option<Result<SchemeThread, RunError>> =
            schemes.map(|schemes| schemes.start(processes.unwrap_or_default(), control.clone(), delivery.clone()));
        let schemes = schemes.transpose().inspect_err(|_| delivery.end())?;
        let outlet = Outlet::new(control.clone(), duration, delivery);
        Session::start(source, outlet, schemes, threads, control, command, recorded)
    }
}

impl Unbound {
    /// Checks targets that are there already.
    fn new(targets: &Targets) -> Result<Self, RunError> {
        Ok(match targets {
            Targets::Processes { pids, children, ranges } => {
                let processes = Processes::new(pids.iter().copied(), *children)?;
                Self::Processes { processes, ranges: ranges.clone() }
            }
            Targets::Command { command, children } => {
                Self::Command { command: Start::Pending(command.clone()), children: *children }
            }
            Targets::Physical { ranges, during } => Self::Physical {
                memory: PhysicalMemory::new(ranges.iter().copied())?,
                during: during.clone().map(Start::Pending),
            },
        })
    }

    /// The targets, with the command that runs by now.
    fn bind(self) -> Result<(LiveTargets, Vec<AddrRange>), RunError> {
        Ok(match self {
            Self::Processes { processes, ranges } => (LiveTargets::Processes(processes), ranges),
            Self::Command { command, children } => (LiveTargets::Processes(follow(&command, children)?), Vec::new()),
            Self::Physical { memory, during } => {
                let during = during.map(|command| follow(&command, false)).transpose()?;
                // The ranges are part of the memory that was asked for.
                (LiveTargets::Physical(memory, during), Vec::new())
            }
        })
    }
}

/// The command as a target: the run ends with it.
fn follow(command: &Start, children: bool) -> Result<Processes, RunError> {
    let Start::Started { pid } = command else { return Err(ConfigError::NoTarget.into()) };
    match Processes::new([*pid], children) {
        Ok(processes) => Ok(processes.ending_with(*pid)),
        Err(TargetError::Ended { .. } | TargetError::NoSuchProcess(_)) => Err(RunError::CommandEnded),
        Err(error) => Err(error.into()),
    }
}
