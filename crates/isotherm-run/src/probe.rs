//! Opening the probe of a live run.

use isotherm_core::{AccessProbe, Granularity};
use isotherm_probes::RefsProbe;
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory};
use isotherm_probes::damon::{self, DamonPaths, Scope};
use isotherm_probes::idle::IdleProbe;

use crate::error::chain;
use crate::pace::SurveyPace;
use crate::{ConfigError, Notice, ProbeChoice, RunError, Severity, SurveyChoice, Targets};

/// A probe that works here.
pub(crate) struct OpenProbe {
    pub(crate) name: &'static str,
    pub(crate) kind: ProbeKind,
    /// What the user should know of the choice.
    pub(crate) notice: Option<Notice>,
}

/// Who samples.
pub(crate) enum ProbeKind {
    /// Our own monitor, through a probe.
    Monitor(Box<dyn AccessProbe + Send>),
    /// The kernel's DAMON. It is claimed only when the run starts, so that a run that never starts leaves nothing.
    Kernel(DamonPaths),
}

impl OpenProbe {
    /// Opens the probe that was asked for, or the best that works here for the targets.
    pub(crate) fn open(choice: ProbeChoice, targets: &Targets, shared: SharedMemory) -> Result<Self, RunError> {
        match choice {
            ProbeChoice::Auto if targets.is_physical() => {
                Ok(Self::idle(IdleProbe::open().map_err(RunError::NoPhysicalProbe)?))
            }
            ProbeChoice::Auto => Ok(Self::best_for_processes(shared)),
            ProbeChoice::Idle => Ok(Self::idle(IdleProbe::open()?)),
            ProbeChoice::Bpf => Ok(Self::bpf(BpfProbe::open()?, shared)),
            ProbeChoice::Refs => Ok(Self::refs()),
            ProbeChoice::Damon => {
                let paths = DamonPaths::system();
                damon::check(&paths)?;
                let has_ranges = matches!(targets, Targets::Processes { ranges, .. } if !ranges.is_empty());
                damon::check_operations(&paths, Scope::operations_for(targets.is_physical(), has_ranges))?;
                Ok(Self { name: "damon", kind: ProbeKind::Kernel(paths), notice: None })
            }
        }
    }

    fn best_for_processes(shared: SharedMemory) -> Self {
        let idle = match IdleProbe::open() {
            Ok(probe) => return Self::idle(probe),
            Err(error) => chain(&error),
        };
        match BpfProbe::open() {
            Ok(probe) => Self::bpf(probe, shared),
            Err(error) => {
                let bpf = chain(&error);
                let text = format!("using the probe refs, which sees whole mappings only. idle: {idle}. bpf: {bpf}");
                let notice = Notice::new(Severity::Warning, &text);
                Self { notice: Some(notice), ..Self::refs() }
            }
        }
    }

    fn idle(probe: IdleProbe) -> Self {
        Self { name: "idle", kind: ProbeKind::Monitor(Box::new(probe)), notice: None }
    }

    fn bpf(mut probe: BpfProbe, shared: SharedMemory) -> Self {
        probe.set_shared_memory(shared, SharedLimits::default());
        Self { name: "bpf", kind: ProbeKind::Monitor(Box::new(probe)), notice: None }
    }

    fn refs() -> Self {
        Self { name: "refs", kind: ProbeKind::Monitor(Box::new(RefsProbe::new())), notice: None }
    }

    /// How often to survey. `None` if there is to be no survey.
    ///
    /// # Errors
    /// If surveys are asked for and the probe has none.
    pub(crate) fn survey(&mut self, choice: SurveyChoice) -> Result<Option<SurveyPace>, RunError> {
        let has_survey = match &mut self.kind {
            ProbeKind::Monitor(probe) => probe.survey().is_some(),
            ProbeKind::Kernel(_) => false,
        };
        match choice {
            SurveyChoice::Every(_) if !has_survey => Err(ConfigError::NoSurvey(self.name).into()),
            SurveyChoice::Every(interval) => Ok(Some(SurveyPace::fixed(interval))),
            SurveyChoice::Auto if has_survey => Ok(Some(SurveyPace::automatic())),
            SurveyChoice::Auto | SurveyChoice::Off => Ok(None),
        }
    }

    /// The smallest piece of memory that one answer speaks for.
    pub(crate) fn granularity(&self) -> Granularity {
        match &self.kind {
            ProbeKind::Monitor(probe) => probe.granularity(),
            ProbeKind::Kernel(_) => Granularity::Page,
        }
    }
}
