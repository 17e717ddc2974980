//! What is watched, and by what means: the part of a monitor that its surveyor works on.

use std::collections::HashSet;
use std::time::Duration;

use rand::Rng;

use super::cpu_clock::CpuClock;
use super::{MonitorError, StepWork};
use crate::region_set::RegionSet;
use crate::{AccessProbe, AddressSpace, Attributes, TargetId, TargetSpace};

/// The parts of a monitor that belong to its targets and to the run.
pub(super) struct Watched<'a> {
    pub(super) space: &'a mut dyn AddressSpace,
    pub(super) probe: &'a mut dyn AccessProbe,
    pub(super) regions: &'a mut RegionSet,
    pub(super) rng: &'a mut dyn Rng,
    pub(super) attributes: &'a Attributes,
    pub(super) readings: &'a mut Readings,
    pub(super) work: &'a mut StepWork,
    pub(super) cpu_clock: &'a mut CpuClock,
    /// Since when processes that are started belong to the run, and when the run started.
    pub(super) started: Option<(Duration, Duration)>,
}

/// When the mappings were read.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// The last time.
    pub(super) last: Duration,
    /// Whether the next is due at once.
    pub(super) asked: bool,
}

impl Watched<'_> {
    /// The targets and their mappings as they are at `now`. The probe takes them in.
    pub(super) fn read_targets(&mut self, now: Duration) -> Result<Vec<TargetSpace>, MonitorError> {
        *self.readings = Readings { last: now, asked: false };
        let mut spaces = self.space.read_targets().map_err(MonitorError::Space)?;
        spaces.retain(|space| !space.mappings.is_empty());
        self.work.joined = self.unknown(&spaces).count();
        self.probe.update(&spaces).map_err(MonitorError::Probe)?;
        self.work.updated = true;
        Ok(spaces)
    }

    /// Reads the mappings again. Targets join and leave, and regions follow the mappings.
    pub(super) fn update(&mut self, now: Duration) -> Result<(), MonitorError> {
        let spaces = self.read_targets(now)?;
        self.regions.update(spaces, self.attributes, self.probe.granularity());
        Ok(())
    }

    /// Gives regions to targets that a look has found. The other targets stay as they are.
    pub(super) fn join(&mut self, joined: Vec<TargetSpace>) {
        if joined.is_empty() {
            return;
        }
        let known = self.regions.targets().iter().map(|target| target.space.clone());
        let mut spaces: Vec<TargetSpace> = known.chain(joined).collect();
        spaces.sort_by_key(|space| space.id);
        self.regions.update(spaces, self.attributes, self.probe.granularity());
    }

    /// Those of `spaces` whose target has no regions yet.
    pub(super) fn unknown<'b>(&self, spaces: &'b [TargetSpace]) -> impl Iterator<Item = &'b TargetSpace> + use<'b> {
        let known: HashSet<TargetId> = self.regions.targets().iter().map(|target| target.space.id).collect();
        spaces.iter().filter(move |space| !known.contains(&space.id))
    }

    /// When a process that belongs to the run has started, since the start of the run: zero if that was before. `None`
    /// for others.
    pub(super) fn began(&self, target: TargetId) -> Option<Duration> {
        let (TargetId::Process(process), (since, start)) = (target, self.started?) else { return None };
        (process.start >= since).then(|| process.start.saturating_sub(start))
    }
}
