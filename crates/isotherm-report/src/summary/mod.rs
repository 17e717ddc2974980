//! The summary: hot, warm and cold memory by mapping name, and for how long cold memory has been cold.
//!
//! Sizes are means weighted by time: of mapping names and of all memory over the selected time, so that the sum over
//! the names is the mean size of all memory; of targets and groups over their lives, so that a process that ran for a
//! moment has its size. Hot + warm + cold + unobservable + unknown is the size. The time for which memory has been cold
//! is that of the last snapshot that has the name: a mean over time would be half of it.

mod temperature;

use crate::bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{TargetId, units};
use isotherm_record::{Header, Needs, Row, TargetInfo, pid_column};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::ReportError;
use crate::course::{Course, Life};
use crate::extent::shown_name;
use crate::groups::{Frame, Group, GroupBy, Grouping, StackShares};
use crate::intervals::IntervalRange;
use crate::node_memory::NodeMemory;
use crate::of_mappings::{ByName, OfMappings};
use crate::overhead::Overhead;
use crate::pace::RecordedPace;
use crate::source::{Accumulator, KnownPiece, Seen, Takes, Visit};
use temperature::{Added, Sums};

pub use temperature::{Temperature, folded};

/// A report warns if a larger share of the rounds was late.
pub const MANY_LATE: f64 = 0.01;

/// Hot, warm and cold memory of one target. Means are over its life.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TargetTemperature {
    /// The target.
    #[serde(skip)]
    pub id: TargetId,
    /// The process ID, or 0 for physical memory.
    pub pid: u32,
    /// The process ID in the PID namespace of the process, if that is another one.
    pub inner_pid: Option<u32>,
    /// The command line.
    pub command: String,
    /// When it lived, and when it was largest.
    #[serde(flatten)]
    pub life: Life,
    /// Resident bytes, with those that several processes share divided among them (PSS): the mean over its
    /// life. `None` if no activity tells.
    pub proportional_bytes: Option<u64>,
    /// Its memory on each NUMA node. Empty if all memory is on one node, or if surveys do not tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeMemory>,
    /// All memory of the target.
    #[serde(flatten)]
    pub total: Temperature,
}

/// Hot, warm and cold memory of one group. Means are over the time in which it had any memory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GroupTemperature {
    /// Its place in the grouping.
    #[serde(skip)]
    pub(crate) place: usize,
    /// The targets that belong to it. All that have such memory, if it is a mapping. Its name is that of `total`.
    #[serde(flatten, serialize_with = "Members::of")]
    #[schemars(with = "Members<'_>")]
    pub group: Group,
    /// When it lived, and when it was largest.
    #[serde(flatten)]
    pub life: Life,
    /// Whether each page counts once: the group never had more than one target at a time.
    pub counted_once: bool,
    /// The sum of the proportional bytes (PSS) of its targets: the mean over its life. `None` if no activity tells, and
    /// for a mapping.
    pub proportional_bytes: Option<u64>,
    /// The memory of its targets on each NUMA node, as of a target. What several of them share counts for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeMemory>,
    /// Its memory. What several of its targets share counts for each.
    #[serde(flatten)]
    pub total: Temperature,
}

/// A group without its name.
#[derive(Serialize, JsonSchema)]
struct Members<'a> {
    /// The number of targets that belong to it.
    processes: usize,
    /// Their process IDs, 0 for physical memory. `None` if the group is a mapping or a stack.
    pids: &'a Option<Vec<u32>>,
    /// The functions of the stack, the innermost first. Only of stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: &'a Option<Vec<Frame>>,
}

impl Members<'_> {
    fn of<S: Serializer>(group: &Group, serializer: S) -> Result<S::Ok, S::Error> {
        let Group { processes, pids, frames, .. } = group;
        Members { processes: *processes, pids, frames }.serialize(serializer)
    }
}

/// Memory of several targets, where each page counts once: the means over the surveys, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CountedOnce {
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Of these, bytes that more than one target maps.
    pub shared_bytes: u64,
    /// Bytes that were accessed within a survey interval.
    pub touched_bytes: u64,
    /// Bytes in swap at the last survey. `None` if the surveys do not tell.
    pub swapped_bytes: Bytes,
}

/// How much memory of all targets was in use: by surveys if they know all memory, and else by the panel, with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsedMemory {
    /// Bytes count that were accessed within this time.
    pub window_ns: u64,
    /// The median over time.
    pub bytes: u64,
    /// The lower bound of the median, which holds in 19 of 20 cases. The same as `bytes` if it is exact.
    pub low_bytes: u64,
    /// The upper bound.
    pub high_bytes: u64,
    /// The most.
    pub most_bytes: u64,
    /// Whether these are lower bounds: so much memory could not be observed that may be in use, too.
    pub lower_bound: bool,
}

/// The summary of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// The start of the selected time.
    pub from_ns: u64,
    /// The end of the selected time.
    pub to_ns: u64,
    /// The number of snapshots.
    pub snapshots: u64,
    /// The header of the recording.
    pub recording: Header,
    /// Why the recording ends before its run, if it does.
    pub cut_short: Option<String>,
    /// Sampling rounds.
    pub rounds: u64,
    /// Sampling rounds that began late.
    pub late_rounds: u64,
    /// Missing aggregations: events of the kernel's DAMON that isotherm did not read in time.
    pub lost_aggregations: u64,
    /// How often the recording surveyed and sampled, and what that cost beside the budget.
    #[serde(flatten)]
    pub pace: RecordedPace,
    /// The longest call that held the memory map of a target, so that the target could wait for it. `None` if the
    /// recording does not tell.
    pub longest_hold_ns: Option<u64>,
    /// All such calls together.
    pub holds_ns: Option<u64>,
    /// The sampling intervals: the times from a sample to the next.
    #[serde(flatten)]
    pub intervals: IntervalRange,
    /// Memory that is accessed at least so often is hot, in hertz.
    pub hot_hz: f64,
    /// The targets.
    pub targets: Vec<TargetTemperature>,
    /// All memory. What several targets share counts for each.
    pub total: Temperature,
    /// How much memory was in use. `None` without surveys and without a panel.
    pub in_use: Option<UsedMemory>,
    /// What surveys found, where each page counts once. `None` without surveys of all targets, or if it is not known
    /// which memory they share.
    pub counted_once: Option<CountedOnce>,
    /// The memory on each NUMA node. Each page counts once if `counted_once` is known, and otherwise for each target.
    /// Empty if all memory is on one node, or if surveys do not tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeMemory>,
    /// The names, the largest first. Their sizes are means over the selected time, so that they add up to the total.
    pub mappings: Vec<Temperature>,
    /// What the groups are by.
    pub group_by: GroupBy,
    /// The groups, the largest first. Empty if none were asked for.
    pub groups: Vec<GroupTemperature>,
    /// Which memory belongs to which group.
    #[serde(skip)]
    pub(crate) grouping: Grouping,
}

/// What is known of one target or group.
#[derive(Clone, Default)]
struct Tally {
    sums: Sums,
    course: Course,
    /// Whether a survey has found what is in memory. Mapped bytes do not count then.
    surveyed: bool,
}

impl Tally {
    /// Takes in what a row tells. Returns whether its bytes count.
    fn begin(&mut self, basis: Basis) -> bool {
        if basis == Basis::Present && !self.surveyed {
            self.surveyed = true;
            self.sums = Sums::default();
            self.course.forget_bytes();
        }
        basis == if self.surveyed { Basis::Present } else { Basis::Mapped }
    }

    /// Adds what it has in a row, if its bytes count there.
    fn add(&mut self, visit: &Visit<'_>, counts: bool, added: Option<Added>) {
        if let Some(added) = added.as_ref().filter(|_| counts) {
            self.sums.add(visit, added);
        }
        let bytes = counts.then_some(added.map_or(0, |added| added.bytes));
        self.course.add(visit.row.time, visit.span(), bytes);
    }

    fn over_life(&self, name: Arc<str>) -> Temperature {
        self.sums.over(self.course.known().as_secs_f64().max(1e-9), name)
    }
}

/// What a row says about the memory of its target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// What is mapped: there was no survey yet.
    Mapped,
    /// What is in memory.
    Present,
    /// Nothing: no survey has found the target yet, or it has ended.
    Nothing,
}

impl Basis {
    fn by(row: &Row<'_>) -> Self {
        let mut pages = row.target.regions.iter().filter_map(|region| region.pages).peekable();
        if pages.peek().is_none() {
            return Self::Mapped;
        }
        let has_memory = pages.any(|pages| pages.kept() > 0);
        if has_memory { Self::Present } else { Self::Nothing }
    }
}

struct TargetSums {
    id: TargetId,
    info: Arc<TargetInfo>,
    tally: Tally,
}

/// Computes the summary.
#[derive(Default)]
pub struct SummaryBuilder {
    grouping: Grouping,
    names: ByName<Sums>,
    /// The place of the name of each mapping, and that of its group.
    of_mappings: OfMappings<(usize, Option<usize>)>,
    targets: Vec<TargetSums>,
    places: HashMap<TargetId, usize>,
    groups: Vec<Tally>,
    /// Divides memory among groups that are stacks.
    stacks: Option<StackShares>,
    total: Sums,
    span: Option<(Duration, Duration)>,
    covered: Duration,
    last: Option<Duration>,
    intervals: IntervalRange,
    hot_hz: f64,
}

impl SummaryBuilder {
    /// With groups.
    pub fn grouped(grouping: Grouping) -> Self {
        let stacks = grouping.of_stack().map(StackShares::new);
        Self { groups: vec![Tally::default(); grouping.groups().len()], grouping, stacks, ..Self::default() }
    }

    /// The summary. `overhead` is of the same walk.
    pub fn finish(self, header: &Header, cut_short: Option<String>, overhead: &Overhead) -> Summary {
        let seconds = self.covered.as_secs_f64().max(1e-9);
        let mappings = self.names.into_all().into_iter().map(|(name, sums)| sums.over(seconds, name)).collect();
        let targets = self
            .targets
            .into_iter()
            .map(|target| TargetTemperature {
                id: target.id,
                pid: pid_column(target.id),
                inner_pid: target.info.inner_pid,
                command: target.info.command.clone(),
                life: target.tally.course.life(),
                proportional_bytes: None,
                nodes: Vec::new(),
                total: target.tally.over_life("total".into()),
            })
            .collect();
        let groups = self
            .grouping
            .groups()
            .iter()
            .zip(self.groups)
            .enumerate()
            .map(|(place, (group, tally))| GroupTemperature {
                place,
                group: group.clone(),
                life: tally.course.life(),
                counted_once: !tally.course.overlaps(),
                proportional_bytes: None,
                nodes: Vec::new(),
                total: tally.over_life(group.name.as_str().into()),
            })
            .collect();
        let (from, to) = self.span.unwrap_or_default();
        let mut summary = Summary {
            from_ns: from.as_nanos() as u64,
            to_ns: to.as_nanos() as u64,
            snapshots: overhead.snapshots,
            recording: header.clone(),
            cut_short,
            rounds: overhead.rounds,
            late_rounds: overhead.late_rounds,
            lost_aggregations: overhead.lost_aggregations,
            pace: overhead.pace,
            longest_hold_ns: overhead.pace.holds.map(|holds| holds.longest_ns),
            holds_ns: overhead.pace.holds.map(|holds| holds.sum_ns),
            intervals: self.intervals,
            hot_hz: self.hot_hz,
            targets,
            total: self.total.over(seconds, "total".into()),
            in_use: None,
            counted_once: None,
            nodes: Vec::new(),
            mappings,
            group_by: self.grouping.by(),
            groups,
            grouping: self.grouping,
        };
        summary.sort(SummarySort::Size);
        summary
    }
}

impl Accumulator for SummaryBuilder {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, regions: true, ..Needs::NOTHING }
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        let row = &visit.row;
        let (start, end) = self.span.unwrap_or((visit.since, row.time));
        self.span = Some((start.min(visit.since), end.max(row.time)));
        if self.last.replace(row.time) != Some(row.time) {
            self.covered += visit.span();
        }
        self.intervals.add_row(row);
        self.hot_hz = visit.hot();
        let id = row.target.id;
        let place = *self.places.entry(id).or_insert(self.targets.len());
        if place == self.targets.len() {
            self.targets.push(TargetSums { id, info: row.info.clone(), tally: Tally::default() });
        }
        let Some(target) = self.targets.get_mut(place) else { return Ok(()) };
        // Some recorders did not know what a process was once it had ended.
        if !row.info.command.is_empty() {
            target.info = row.info.clone();
        }
        let basis = Basis::by(row);
        let counts = target.tally.begin(basis);
        // What groups get of this row, by the place of the group.
        let mut of_groups: BTreeMap<usize, Option<Added>> = BTreeMap::new();
        // A target whose memory is not known is there all the same.
        if let Some(nth) = self.grouping.of_target(id) {
            of_groups.insert(nth, None);
        }
        let aggregation = row.aggregation.as_secs_f64();
        let of_mappings = self.of_mappings.of(row.target);
        let mut all: Option<Added> = None;
        for of_mapping in visit.known().chunk_by(|a, b| a.piece.nth_mapping == b.piece.nth_mapping) {
            let mut added = Added::default();
            for known in of_mapping {
                let piece = &known.piece;
                let age = f64::from(piece.region.age) * aggregation;
                added.add(&Added::piece(known, known.bytes, age));
                if let Some(stacks) = &mut self.stacks {
                    for (nth, size) in stacks.sizes(id, row.time, piece.mapping, piece.range) {
                        let bytes = share(known.bytes, size, piece.range.size());
                        let of_stack = of_groups.entry(nth).or_default().get_or_insert_default();
                        of_stack.add(&Added::piece(known, bytes, age));
                    }
                }
            }
            let Some(KnownPiece { piece, .. }) = of_mapping.first() else { continue };
            let (name, group) = *of_mappings[piece.nth_mapping].get_or_insert_with(|| {
                let label = piece.mapping.label();
                let name = shown_name(&label);
                (self.names.place(name), self.grouping.of_memory(id, name))
            });
            self.names.at(name).into_iter().for_each(|sums| sums.add(visit, &added));
            if let Some(nth) = group.filter(|_| self.stacks.is_none()) {
                of_groups.entry(nth).or_default().get_or_insert_default().add(&added);
            }
            all.get_or_insert_default().add(&added);
        }
        if let Some(all) = &all {
            self.total.add(visit, all);
        }
        target.tally.add(visit, counts, all);
        for (nth, added) in of_groups {
            if let Some(group) = self.groups.get_mut(nth) {
                let counts = group.begin(basis);
                group.add(visit, counts, added);
            }
        }
        Ok(())
    }
}

/// The part of `bytes` that `size` of `whole` has.
fn share(bytes: u64, size: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(size) / u128::from(whole.max(1))) as u64
}

/// What a summary is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummarySort {
    /// The largest first.
    #[default]
    Size,
    /// The largest working set first.
    Wss,
    /// The most hot memory first.
    Hot,
    /// The most cold memory first.
    Cold,
    /// In the order of the names.
    Name,
}

impl SummarySort {
    /// Each order with its name on the command line and what it is.
    pub const NAMES: [(Self, &'static str, &'static str); 5] = [
        (Self::Size, "size", "Largest first"),
        (Self::Wss, "wss", "Largest working set first"),
        (Self::Hot, "hot", "Most hot memory first"),
        (Self::Cold, "cold", "Most cold memory first"),
        (Self::Name, "name", "By name"),
    ];
}

impl Summary {
    /// What hot, warm and cold memory is: `hot: 10 accesses of a page in a second or more; warm: fewer; cold: none`.
    pub(crate) fn temperatures(&self) -> String {
        format!("hot: a page is accessed at {} or more; warm: less often; cold: not at all", units::hertz(self.hot_hz))
    }

    /// Leaves out stacks whose memory was never there at a snapshot.
    pub(crate) fn drop_empty_stacks(&mut self) {
        if self.group_by == GroupBy::Stack {
            let has_some = |t: &Temperature| t.size_bytes > 0 || !t.surveyed.resident_bytes.is_zero();
            self.groups.retain(|group| has_some(&group.total) || !group.total.surveyed.swapped_bytes.is_zero());
        }
    }

    /// Sorts the mappings and the groups. Of equal ones, the largest come first, then the first by name.
    pub fn sort(&mut self, by: SummarySort) {
        let key = |t: &Temperature| match by {
            SummarySort::Size => t.size_bytes,
            SummarySort::Wss => t.working_set_bytes,
            SummarySort::Hot => t.hot_bytes,
            SummarySort::Cold => t.cold_bytes,
            SummarySort::Name => 0,
        };
        let size = |t: &Temperature| if by == SummarySort::Name { 0 } else { t.size_bytes };
        let order = |a: &Temperature, b: &Temperature| {
            (key(b), size(b)).cmp(&(key(a), size(a))).then_with(|| a.name.cmp(&b.name))
        };
        self.mappings.sort_by(order);
        self.groups.sort_by(|a, b| order(&a.total, &b.total));
    }
}
