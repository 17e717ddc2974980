//! What a recording holds, as plain data.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use isotherm_core::scheme::{Action, Report};
use isotherm_core::survey::{SurveySnapshot, TargetSurvey};
use isotherm_core::{MemoryUse, Snapshot, SystemMemory, TargetId, TargetSnapshot};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cost, Surroundings};

/// What is true for a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// The version of isotherm that recorded it.
    pub isotherm_version: String,
    /// The probe's name, such as `bpf`.
    pub probe: String,
    /// What one answer of the probe is about: `page` or `mapping`.
    pub granularity: String,
    /// What the probe sees.
    #[serde(default)]
    pub sight: Sight,
    /// The sampling interval.
    pub sampling_ns: u64,
    /// The aggregation interval.
    pub aggregation_ns: u64,
    /// The update interval.
    pub update_ns: u64,
    /// The number of regions that the monitor aimed to keep at least.
    pub min_regions: u64,
    /// The number of regions that was never exceeded.
    pub max_regions: u64,
    /// The seed of the monitor's random numbers.
    pub seed: u64,
    /// What the run was allowed to cost. `None` if it had no budget, or that is not known.
    #[serde(default)]
    pub budget: Option<RecordedBudget>,
    /// How the intervals were chosen: `auto` if they followed from what was observed, or `fixed`. `None` if that is not
    /// known.
    #[serde(default)]
    pub intervals: Option<String>,
    /// When the run started, since the Unix epoch.
    pub started_unix_ns: u64,
    /// Where it ran.
    pub host: Host,
    /// The part of the run that the recording was cut to. `None` if it was not cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The runs whose recordings were merged, in the order of their starts. Empty if it is the recording of one run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

impl Header {
    /// How much of the time after `from`, up to `to`, the recording is of. In a recording that was merged, the time in
    /// which no recorder ran does not count.
    pub fn recorded(&self, from: Duration, to: Duration) -> Duration {
        if self.runs.is_empty() {
            return to.saturating_sub(from);
        }
        let mut sum = Duration::ZERO;
        let mut covered = from;
        for run in &self.runs {
            let (start, end) =
                (Duration::from_nanos(run.from_ns).max(covered), Duration::from_nanos(run.to_ns).min(to));
            sum += end.saturating_sub(start);
            covered = covered.max(end);
        }
        sum
    }
}

/// The time of one run in a recording of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its start, since the start of the first run.
    pub from_ns: u64,
    /// Its last snapshot or survey, since the start of the first run.
    pub to_ns: u64,
}

/// The part of a run that a recording was cut to. The recording also has the last snapshot, survey and activity before
/// it and the first ones after it, which are no part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The start, since the start of the run.
    pub from_ns: u64,
    /// The end, since the start of the run. `None` if it is the end of the run.
    pub to_ns: Option<u64>,
}

impl Part {
    /// Whether a part that begins at `start` has `time`, unless that is after its end. A part does not have its own
    /// start, which belongs to the part before. One that begins with the run has it.
    pub fn holds_from(start: Duration, time: Duration) -> bool {
        time > start || start.is_zero()
    }
}

/// What a run was allowed to cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedBudget {
    /// The share of one CPU for all that isotherm does while it watches.
    pub cpu: f64,
    /// The share of one CPU that the targets may lose.
    pub targets: f64,
}

/// What a probe sees, as far as it changes what the figures of a recording mean. Nothing of it follows from the name of
/// the probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sight {
    /// Whether it sees of physical memory only what processes map.
    pub mapped_only: bool,
    /// Whether the kernel samples, in rounds of its own.
    pub kernel_samples: bool,
    /// Whether it is used only if it is asked for, or if nothing else works.
    pub only_by_name: bool,
    /// The kinds of memory that it cannot observe, for a sentence. Empty if that is not known.
    pub blind_to: String,
}

/// The machine that a recording was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// An identifier of the machine that stays the same from boot to boot: 32 hexadecimal digits, which are made from
    /// `/etc/machine-id` and do not reveal it. Empty if it is not known.
    #[serde(default)]
    pub id: String,
    /// The identifier of the boot, as in `/proc/sys/kernel/random/boot_id`. Empty if it is not known. The starts of
    /// processes are then not counted from the boot of the machine.
    #[serde(default)]
    pub boot_id: String,
    /// The name of the machine.
    pub name: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// The processor's architecture, such as `x86_64`.
    pub architecture: String,
    /// Processors online.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Host {
    /// Whether the starts of processes are counted from the boot of the machine, and not from the Unix epoch.
    pub(crate) fn counts_from_boot(&self) -> bool {
        !self.boot_id.is_empty()
    }
}

/// What a target was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its command line, arguments joined by spaces.
    pub command: String,
    /// When it started, since the Unix epoch.
    pub started_unix_ns: u64,
    /// The path of its cgroup, within the hierarchy that accounts memory, such as `/system.slice/cron.service`. `None`
    /// if the target is no process, or if that is not known, as in older recordings.
    pub cgroup: Option<String>,
    /// Its process ID in its own PID namespace, if that is another one than the recorder's. `None` also if that is not
    /// known, as in older recordings.
    pub inner_pid: Option<u32>,
}

/// What each target is.
pub type TargetInfos = Arc<[(TargetId, Arc<TargetInfo>)]>;

/// One snapshot with all that belongs to it: the unit that is recorded and read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotRecord {
    /// The regions of all targets at the end of one aggregation interval.
    pub snapshot: Snapshot,
    /// The cost of the snapshot, of all targets together. `None` if it is not known, as in an imported recording.
    pub cost: Option<Cost>,
    /// What the targets are. It may list more targets than the snapshot has.
    pub infos: TargetInfos,
    /// The number of regions of each target, if they were counted and not read. Otherwise empty.
    pub nr_regions: Vec<usize>,
    /// Whether it is merged of snapshots that are events, too.
    pub is_merged: bool,
}

impl SnapshotRecord {
    /// What a target is. If that is not known, the command is empty and the start is 0.
    pub fn info(&self, id: TargetId) -> Arc<TargetInfo> {
        Arc::clone(info_of(&self.infos, id))
    }

    /// What the target at this index of the snapshot is.
    pub(crate) fn nth_info(&self, nth: usize) -> &Arc<TargetInfo> {
        nth_info_of(&self.infos, nth, self.snapshot.targets[nth].id)
    }

    /// The snapshot, target by target.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let Snapshot { time, aggregation, samples, ref targets, .. } = self.snapshot;
        targets.iter().enumerate().map(move |(nth, target)| Row {
            time,
            aggregation,
            samples,
            target,
            info: self.nth_info(nth),
            nr_regions: self.nr_regions.get(nth).copied().unwrap_or(target.regions.len()),
            cost: self.cost.filter(|_| nth == 0),
        })
    }
}

/// One survey with all that belongs to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveyRecord {
    /// What the survey found in all targets.
    pub survey: SurveySnapshot,
    /// The CPU time that the survey took. `None` if it was not measured.
    pub cpu: Option<Duration>,
    /// What the targets are. It may list more targets than the survey has.
    pub infos: TargetInfos,
    /// What of the survey it has.
    pub detail: SurveyDetail,
}

/// What a [`SurveyRecord`] has of a survey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurveyDetail {
    /// All that was asked for.
    #[default]
    Whole,
    /// All but the blocks: those of merged surveys take their place.
    Bare,
    /// The blocks of several surveys, merged: means over the time since the first of them, and when the pages were
    /// accessed last. Of mappings it tells only that something was in memory or in swap.
    Merged,
}

impl SurveyRecord {
    /// What a target is. If that is not known, the command is empty and the start is 0.
    pub fn info(&self, id: TargetId) -> Arc<TargetInfo> {
        Arc::clone(info_of(&self.infos, id))
    }

    /// What the target at this index of the survey is.
    pub(crate) fn nth_info(&self, nth: usize) -> &Arc<TargetInfo> {
        nth_info_of(&self.infos, nth, self.survey.targets[nth].id)
    }

    /// The targets, each with what it is.
    pub fn described(&self) -> impl Iterator<Item = (&TargetSurvey, &Arc<TargetInfo>)> {
        self.survey.targets.iter().enumerate().map(|(nth, found)| (found, self.nth_info(nth)))
    }
}

fn info_of(infos: &[(TargetId, Arc<TargetInfo>)], id: TargetId) -> &Arc<TargetInfo> {
    static NOT_KNOWN: LazyLock<Arc<TargetInfo>> = LazyLock::new(Arc::default);
    // Readers list the targets in their order.
    let sorted = infos.binary_search_by_key(&id, |(known, _)| *known).ok().map(|index| &infos[index]);
    let found = sorted.or_else(|| infos.iter().find(|(known, _)| *known == id));
    found.map_or(&NOT_KNOWN, |(_, info)| info)
}

/// What the target `id` is, which is probably at this index.
fn nth_info_of(infos: &[(TargetId, Arc<TargetInfo>)], nth: usize, id: TargetId) -> &Arc<TargetInfo> {
    match infos.get(nth) {
        Some((known, info)) if *known == id => info,
        _ => info_of(infos, id),
    }
}

/// One target in one snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Since the start of the run.
    pub time: Duration,
    /// The aggregation interval in force.
    pub aggregation: Duration,
    /// The number of sampling rounds in an aggregation: the highest possible `nr_accesses`.
    pub samples: u32,
    /// The target's regions and its mappings as they were read last.
    pub target: &'a TargetSnapshot,
    /// The number of its regions, also if they were counted and not read.
    pub nr_regions: usize,
    /// What the target is.
    pub info: &'a Arc<TargetInfo>,
    /// The cost of the whole snapshot. Only the first row of a snapshot has it, so that its sums are right.
    pub cost: Option<Cost>,
}

/// What schemes have done until one time of the run, and how much memory is in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Since the start of the run.
    pub time: Duration,
    /// What each scheme has done since the start of the run, and in its last application. The sums of a scheme may
    /// begin at zero again when schemes are changed during the run.
    pub schemes: Vec<Report>,
    /// The memory of those targets for which it could be read.
    pub memory: Vec<(TargetId, MemoryUse)>,
    /// The memory of the whole system.
    pub system: SystemMemory,
    /// How many major page faults the targets have had since the start of the run: page faults for which a page was
    /// read from a disk or from swap. `None` if that is not known.
    pub major_faults: Option<u64>,
    /// The bytes by which compressed swap (zram and zswap) has grown since the schemes began; 0 if it has shrunk.
    /// `None` without compressed swap.
    pub compressed_growth: Option<u64>,
    /// The surroundings of the targets, as they were read last. `None` if that is not known.
    pub surroundings: Option<Surroundings>,
}

impl Activity {
    /// The bytes that the schemes have freed, less those by which compressed swap has grown. That growth may be due to
    /// others, too, and what came back was freed more than once. `None` without compressed swap.
    pub fn net_freed(&self) -> Option<i64> {
        let frees = |report: &&Report| Action::named(&report.action.name).is_some_and(|action| action.frees());
        let freed: u64 = self.schemes.iter().filter(frees).map(|report| report.total.applied_bytes).sum();
        Some(freed.cast_signed().wrapping_sub(self.compressed_growth?.cast_signed()))
    }

    /// This activity with what an earlier one says beyond it, so that the two are one. `None` if the sums of a scheme
    /// began anew in between: then both are needed.
    #[must_use]
    pub fn joined(&self, earlier: &Self) -> Option<Self> {
        let mut joined = self.clone();
        for before in &earlier.schemes {
            let after = joined.schemes.iter_mut().find(|scheme| scheme.name == before.name)?;
            if after.total.applications < before.total.applications {
                return None;
            }
            // The last application that acted on something since the activity before.
            if after.last.regions.is_empty() && !before.last.regions.is_empty() {
                after.last = before.last.clone();
            }
        }
        Some(joined)
    }
}
