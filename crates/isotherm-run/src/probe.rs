//! Opening the probe of a live run.

use std::time::Duration;

use isotherm_core::{AccessProbe, Granularity};
use isotherm_kernel::page_cache::FileTable;
use isotherm_probes::RefsProbe;
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory};
use isotherm_probes::damon::{self, DamonPaths, Scope};
use isotherm_probes::files::{FilesProbe, NoLook};
use isotherm_probes::idle::IdleProbe;
use isotherm_probes::mapped::MappedProbe;
use isotherm_record::Sight;

use crate::error::chain;
use crate::plan::Capabilities;
use crate::sight::{self, Scene};
use crate::{Notice, ProbeChoice, RunError, Severity, Targets};

/// A probe that works here.
pub(crate) struct OpenProbe {
    pub(crate) name: &'static str,
    sight: fn(Scene) -> Sight,
    pub(crate) kind: ProbeKind,
    look: Option<OpenLook>,
    /// A notice for the user about the choice.
    pub(crate) notice: Option<Notice>,
}

/// Opens what finds before an action which pages were accessed since the last survey.
pub(crate) type OpenLook = fn() -> Result<Box<dyn AccessProbe + Send>, RunError>;

/// Opens what finds before an action which pages of files were accessed since the last survey. Where nothing tells, all
/// were.
pub(crate) fn look_at_files(table: FileTable) -> Result<Box<dyn AccessProbe + Send>, RunError> {
    match IdleProbe::open() {
        Ok(probe) => Ok(Box::new(probe.with_files(table).look()?)),
        Err(_) => Ok(Box::new(NoLook)),
    }
}

/// How a probe is to be used.
#[derive(Clone, Copy)]
pub(crate) struct ProbeUse {
    /// How memory is observed that several processes map, and what that may cost them.
    pub(crate) shared: (SharedMemory, SharedLimits),
    /// Whether a probe that sees whole mappings only is to survey them. It samples them otherwise.
    pub(crate) by_mapping: bool,
    /// For how long the probe `refs` may keep a target from mapping memory at a time.
    pub(crate) most_pause: Duration,
    /// How many pages a second sweeps may clear before pages are sampled. `None` if surveys clear them.
    pub(crate) sweeps: Option<f64>,
}

/// The component that samples.
pub(crate) enum ProbeKind {
    /// Our own monitor, through a probe.
    Monitor(Box<dyn AccessProbe + Send>),
    /// The kernel's DAMON. It is claimed only when the run starts, so that a run that never starts leaves nothing.
    Kernel {
        paths: DamonPaths,
        /// Whether it can tune the intervals.
        tunes: bool,
    },
}

impl OpenProbe {
    /// Opens the probe that was asked for, or the best that works here for the targets.
    pub(crate) fn open(choice: ProbeChoice, targets: &Targets, how: ProbeUse) -> Result<Self, RunError> {
        match choice {
            ProbeChoice::Auto if targets.is_physical() => Self::best_for_physical_memory(how),
            ProbeChoice::Auto => Self::best_for_processes(how),
            ProbeChoice::Idle => Ok(Self::idle(IdleProbe::open()?)),
            ProbeChoice::Bpf if targets.is_physical() => Self::mapped(MappedProbe::open(how.shared.0, how.shared.1)?),
            ProbeChoice::Bpf => Ok(Self::bpf(BpfProbe::open()?, how)),
            ProbeChoice::Refs => Ok(Self::refs(how)),
            ProbeChoice::Damon => {
                let paths = DamonPaths::system();
                damon::check(&paths)?;
                let operations = match targets.part() {
                    None => Scope::operations_for(true, false),
                    Some(part) => Scope::operations_for(false, !part.is_whole()),
                };
                let tunes = damon::check_operations(&paths, operations)?.intervals_goal;
                Ok(Self {
                    name: "damon",
                    sight: sight::damon,
                    kind: ProbeKind::Kernel { paths, tunes },
                    look: None,
                    notice: None,
                })
            }
        }
    }

    /// Opens the probe of the page cache of files. With `Auto`, it does without ages where they are not known.
    pub(crate) fn of_files(choice: ProbeChoice, table: FileTable) -> Result<Self, RunError> {
        let (name, probe, sight, notice): (_, _, fn(Scene) -> Sight, _) = match FilesProbe::open(table.clone()) {
            Ok(probe) => ("idle", probe, sight::files, None),
            Err(error) if choice != ProbeChoice::Auto => return Err(error.into()),
            Err(error) => {
                let text = format!(
                    "it is not known here how long page cache has been idle: schemes take it only with `unobserved: \
                     allow`, by the time since it was seen first ({})",
                    chain(&error)
                );
                let notice = Notice::new(Severity::Warning, &text);
                ("mincore", FilesProbe::without_ages(table), sight::files_without_ages, Some(notice))
            }
        };
        Ok(Self { name, sight, kind: ProbeKind::Monitor(Box::new(probe)), look: None, notice })
    }

    fn best_for_physical_memory(how: ProbeUse) -> Result<Self, RunError> {
        let idle = match IdleProbe::open() {
            Ok(probe) => return Ok(Self::idle(probe)),
            Err(error) => Box::new(error),
        };
        match MappedProbe::open(how.shared.0, how.shared.1) {
            Ok(probe) => Self::mapped(probe),
            Err(error) => Err(RunError::NoPhysicalProbe { idle, bpf: Box::new(error) }),
        }
    }

    fn best_for_processes(how: ProbeUse) -> Result<Self, RunError> {
        let idle = match IdleProbe::open() {
            Ok(probe) => return Ok(Self::idle(probe)),
            Err(error) => chain(&error),
        };
        match BpfProbe::open() {
            Ok(probe) => Ok(Self::bpf(probe, how)),
            Err(error) => {
                let bpf = chain(&error);
                let text = format!("using the probe refs, which sees whole mappings only. idle: {idle}. bpf: {bpf}");
                let notice = Notice::new(Severity::Warning, &text);
                Ok(Self { notice: Some(notice), ..Self::refs(how) })
            }
        }
    }

    fn idle(probe: IdleProbe) -> Self {
        let look: OpenLook = || Ok(Box::new(IdleProbe::open()?.look()?));
        let kind = ProbeKind::Monitor(Box::new(probe));
        Self { name: "idle", sight: sight::idle, kind, look: Some(look), notice: None }
    }

    fn bpf(mut probe: BpfProbe, how: ProbeUse) -> Self {
        probe.set_shared_memory(how.shared.0, how.shared.1);
        probe.set_sweeps(how.sweeps.is_some());
        probe.set_sweep_rate(how.sweeps.unwrap_or(0.0));
        Self { name: "bpf", sight: sight::bpf, kind: ProbeKind::Monitor(Box::new(probe)), look: None, notice: None }
    }

    /// Physical memory by page tables.
    fn mapped(mut probe: MappedProbe) -> Result<Self, RunError> {
        let text = probe.remark().map_err(|error| RunError::Space(error.into()))?;
        let notice = Some(Notice::new(Severity::Warning, &text));
        Ok(Self { name: "bpf", sight: sight::bpf, kind: ProbeKind::Monitor(Box::new(probe)), look: None, notice })
    }

    fn refs(how: ProbeUse) -> Self {
        let probe = RefsProbe::new().with_survey(how.by_mapping).with_most_pause(how.most_pause);
        Self { name: "refs", sight: sight::refs, kind: ProbeKind::Monitor(Box::new(probe)), look: None, notice: None }
    }

    /// What the probe can do.
    pub(crate) fn capabilities(&mut self) -> Capabilities {
        let (name, sight, look) = (self.name, self.sight, self.look);
        match &mut self.kind {
            ProbeKind::Monitor(probe) => Capabilities {
                name,
                sight,
                granularity: probe.granularity(),
                samples: probe.has_samples(),
                surveys: probe.survey().is_some() || probe.mapping_survey().is_some(),
                is_paced: true,
                tunes: true,
                look,
            },
            ProbeKind::Kernel { tunes, .. } => {
                let granularity = Granularity::Page;
                let tunes = *tunes;
                Capabilities { name, sight, granularity, samples: true, surveys: false, is_paced: false, tunes, look }
            }
        }
    }
}
