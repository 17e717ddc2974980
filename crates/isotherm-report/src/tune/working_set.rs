//! The working set over several windows, and what is idle for as long.

use std::time::Duration;

use isotherm_core::survey::{BlockSums, PageSums, SurveySnapshot, TotalSums, WINDOWS};
use isotherm_core::{AddrRange, Estimate, Mapping, PAGE_SIZE, PanelSnapshot, TargetId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::source::{self, Selection, Source};
use crate::surveys::{Reach, part};
use crate::wss::{Basis, KNOWN, Wss, is_better, knows};

/// A window that is shorter than this part of the survey interval says the same as the interval.
const DISTINCT: f64 = 0.9;

/// The working set of all targets together, and their resident memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkingSet {
    /// What it rests on.
    pub source: Basis,
    /// Whether each page counts once.
    pub counted_once: bool,
    /// The time from the first survey to the last, or for how long the panel was watched where surveys do not know all
    /// memory, if that is longer. `None` without surveys.
    pub covered_ns: Option<u64>,
    /// The survey interval; without surveys the aggregation interval.
    pub interval_ns: u64,
    /// Bytes in memory at the end.
    pub resident_bytes: Option<u64>,
    /// The most bytes in memory.
    pub resident_max_bytes: Option<u64>,
    /// Bytes that could not be observed at the end.
    pub unobservable_bytes: Option<u64>,
    /// Bytes whose use is not known at the end.
    pub unknown_bytes: Option<u64>,
    /// Bytes that were freed lazily at the end. They are not resident here, and need no swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazily_freed_bytes: Option<u64>,
    /// The part of the resident bytes that needs swap to be reclaimed: anonymous and shared memory, and private
    /// mappings of files that may be written. `None` for physical memory.
    pub anonymous_bytes: Option<u64>,
    /// The part of the resident bytes in other mappings of files. `None` for physical memory.
    pub file_bytes: Option<u64>,
    /// Bytes that were idle from the first survey to the last, in blocks of 2 MiB without an accessed page: at
    /// least so many. `None` without surveys.
    pub idle_throughout_bytes: Option<u64>,
    /// The windows, the shortest first: those of which at least one survey has all behind it.
    pub windows: Vec<Window>,
}

/// The working set within one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Window {
    /// The window.
    pub window_ns: u64,
    /// The median over time of the bytes accessed within it.
    pub median_bytes: u64,
    /// The lower bound of the median, which holds in 19 of 20 cases, where surveys do not know all memory and the panel
    /// estimates it. `None` if the median is exact.
    pub median_low_bytes: Option<u64>,
    /// The upper bound.
    pub median_high_bytes: Option<u64>,
    /// The largest value.
    pub peak_bytes: u64,
    /// The largest value of the bytes that may be in use: of an estimate, the upper bound; otherwise also those that
    /// could not be observed, and those whose accesses are not known.
    pub peak_needed_bytes: u64,
    /// What was not accessed within it, at the end. `None` without surveys.
    pub idle: Option<Idle>,
}

/// Bytes that are known to be idle: without any that could not be observed or whose accesses are not known. Of an
/// estimate, at least so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Idle {
    /// All of them.
    pub bytes: u64,
    /// The part in anonymous memory. `None` for physical memory.
    pub anonymous_bytes: Option<u64>,
    /// The part in mappings of files. `None` for physical memory.
    pub file_bytes: Option<u64>,
}

impl WorkingSet {
    /// The longest window.
    pub(super) fn longest(&self) -> Option<&Window> {
        self.windows.last()
    }
}

impl Window {
    pub(super) fn length(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    /// Whether the panel estimates it, because surveys do not know all memory.
    pub(super) fn is_estimated(&self) -> bool {
        self.median_high_bytes.is_some()
    }
}

/// The working set of a selection.
pub(super) fn find(source: &dyn Source, selection: &Selection) -> Result<WorkingSet, ReportError> {
    let by_interval = Wss::new(source, selection, None)?;
    let resident = by_interval.percentiles_of(|amount| amount.present_bytes);
    let mut found = WorkingSet {
        source: by_interval.basis,
        counted_once: by_interval.counts_once(),
        interval_ns: by_interval.window.as_nanos() as u64,
        resident_max_bytes: resident.map(|bytes| bytes.0[6]),
        ..WorkingSet::default()
    };
    let Some(last) = Last::of(source, selection)?.filter(|_| by_interval.basis == Basis::Survey) else {
        found.resident_bytes = resident.map(|bytes| bytes.0[6]);
        found.windows = window(&by_interval).into_iter().collect();
        return Ok(found);
    };
    found.covered_ns = Some(last.covered.as_nanos() as u64);
    found.resident_bytes = Some(last.sums.figures.present);
    // The last survey may be in no settled time.
    found.resident_max_bytes = found.resident_max_bytes.max(found.resident_bytes);
    found.unobservable_bytes = Some(last.sums.figures.unobservable);
    found.unknown_bytes = Some(last.sums.figures.unknown);
    found.lazily_freed_bytes = Some(last.sums.kinds.lazily_freed).filter(|&bytes| bytes > 0);
    if let Some([anonymous, file]) = last.split(|sums| sums.figures.present, last.sums.figures.present) {
        (found.anonymous_bytes, found.file_bytes) = (Some(anonymous), Some(file));
    }
    let least = by_interval.window.mul_f64(DISTINCT);
    let panel = last_panel(source, selection)?;
    if let Some(panel) = panel.as_ref().filter(|_| !last.is_known()) {
        let observed = panel.observed.as_nanos() as u64;
        found.covered_ns = found.covered_ns.max(Some(observed));
    }
    let idle = |place: usize| match &panel {
        Some(panel) if !last.is_known() || last.is_known_better(panel, place) => last.idle_by(panel, place),
        Some(_) | None => last.idle(|sums| sums.within[place]),
    };
    for (place, &length) in WINDOWS.iter().enumerate().filter(|(_, length)| **length >= least) {
        let Some(window) = window(&Wss::new(source, selection, Some(length))?) else { break };
        found.windows.push(Window { idle: Some(idle(place)), ..window });
    }
    if found.windows.is_empty()
        && let Some(window) = window(&by_interval)
    {
        found.windows.push(Window { idle: Some(last.idle(|sums| sums.figures.touched)), ..window });
    }
    let idle = found.longest().and_then(|window| window.idle).map_or(u64::MAX, |idle| idle.bytes);
    found.idle_throughout_bytes = Some(last.idle_throughout.min(idle));
    Ok(found)
}

/// The last reading of the panel in a selection. A part of the memory has none.
fn last_panel(source: &dyn Source, selection: &Selection) -> Result<Option<PanelSnapshot>, ReportError> {
    let mut last = None;
    for panel in source::panels(source)? {
        let panel = panel?;
        let is_whole = selection.address.is_none() && panel.targets.iter().all(|of| selection.holds_target(of.id));
        // Nothing is left of targets that have ended.
        if is_whole && selection.holds_time(panel.time) && panel.total.iter().any(|within| within.high > 0) {
            last = Some(panel);
        }
    }
    Ok(last)
}

/// `None` if nothing is known.
fn window(wss: &Wss) -> Option<Window> {
    let percentiles = wss.percentiles()?;
    let needed = wss.percentiles_of(|amount| Some(amount.needed()));
    let Estimate { low, value: median, high } = wss.median()?;
    let bound = |bound: u64| Some(bound).filter(|_| low < high && wss.basis == Basis::Survey);
    Some(Window {
        window_ns: wss.window.as_nanos() as u64,
        median_bytes: median,
        median_low_bytes: bound(low),
        median_high_bytes: bound(high),
        peak_bytes: percentiles.0[6],
        peak_needed_bytes: needed.unwrap_or_default().0[6],
        idle: None,
    })
}

/// What the last survey with a present page found.
struct Last {
    /// The time from the first survey to this one.
    covered: Duration,
    /// The time from the survey before.
    interval: Duration,
    /// All targets together.
    sums: PageSums,
    /// What was idle since the first survey, at least.
    idle_throughout: u64,
    /// The sums of each mapping, and whether it needs swap to be reclaimed. `None` for physical memory.
    mappings: Option<Vec<(PageSums, bool)>>,
    /// The target and the range of each of these mappings.
    ranges: Vec<(TargetId, AddrRange)>,
}

impl Last {
    fn of(source: &dyn Source, selection: &Selection) -> Result<Option<Self>, ReportError> {
        let (mut reach, mut last) = (Reach::default(), None);
        for record in source::surveys(source, true)? {
            let survey = record?.survey;
            let covered = reach.of(&survey);
            if selection.holds_time(survey.time) {
                // A target that has ended leaves a survey without pages.
                last = Some(Self::new(&survey, covered, selection))
                    .filter(|found| found.sums.figures.present > 0)
                    .or(last);
            }
        }
        Ok(last)
    }

    fn new(survey: &SurveySnapshot, covered: Duration, selection: &Selection) -> Self {
        let (mut mappings, mut ranges) = (vec![], vec![]);
        let mut physical = false;
        let mut idle_throughout = 0_u64;
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            physical |= target.id.pid().is_none();
            let selected = |block: &BlockSums| selection.address.is_none_or(|wanted| wanted.contains(block.start));
            let idle = target.by_block.iter().filter(selected).filter(|block| block.idle >= covered);
            idle_throughout += idle.map(|block| u64::from(block.pages.present) * PAGE_SIZE).sum::<u64>();
            for (mapping, sums) in target.surveyed() {
                ranges.push((target.id, mapping.range));
                mappings.push((part(sums, mapping.range, selection.address), needs_swap(mapping)));
            }
        }
        let once = survey.total.filter(|_| selection.holds_all(survey));
        let sums = once.map_or_else(|| mappings.iter().map(|(of, _)| *of).sum(), |TotalSums { sums, .. }| sums);
        // Unknown pages may be in these blocks.
        let idle_throughout =
            idle_throughout.saturating_sub(sums.figures.unobservable).saturating_sub(sums.figures.unknown);
        let interval = survey.interval;
        Self { covered, interval, sums, idle_throughout, mappings: (!physical).then_some(mappings), ranges }
    }

    /// The bytes that are known not to be among those that `accessed` tells.
    fn idle(&self, accessed: impl Fn(&PageSums) -> u64) -> Idle {
        let idle = |sums: &PageSums| {
            let observable = sums.figures.present.saturating_sub(sums.figures.unobservable);
            observable.saturating_sub(sums.figures.unknown).saturating_sub(accessed(sums))
        };
        let bytes = idle(&self.sums);
        let split = self.split(idle, bytes);
        Idle { bytes, anonymous_bytes: split.map(|[bytes, _]| bytes), file_bytes: split.map(|[_, bytes]| bytes) }
    }

    /// Whether a reading of the panel tells a window better.
    fn is_known_better(&self, panel: &PanelSnapshot, place: usize) -> bool {
        panel.observed >= WINDOWS[place] && is_better(panel.total[place], self.interval, WINDOWS[place])
    }

    /// Whether it knows all memory.
    const fn is_known(&self) -> bool {
        knows(&self.sums, KNOWN)
    }

    /// The bytes that the panel has found to be idle, at least. Mappings with few pages in it count as accessed.
    fn idle_by(&self, panel: &PanelSnapshot, place: usize) -> Idle {
        let bytes = self.sums.figures.present.saturating_sub(panel.total[place].high);
        let Some(mappings) = &self.mappings else { return Idle { bytes, ..Idle::default() } };
        let high = |target: TargetId, range: AddrRange| {
            let of = panel.targets.iter().find(|of| of.id == target)?;
            let found = of.by_mapping.iter().find(|found| found.range.intersection(range).is_some())?;
            Some(found.within[place].high)
        };
        let mut idle = [0_u64; 2];
        for ((sums, needs_swap), &(target, range)) in mappings.iter().zip(&self.ranges) {
            let high = high(target, range).unwrap_or(sums.figures.present);
            idle[usize::from(*needs_swap)] += sums.figures.present.saturating_sub(high);
        }
        // Bounds of parts are wider than those of the whole, and pages that several targets map count for each here.
        let [file, anonymous] = idle.map(|idle| Some(idle.min(bytes)));
        Idle { bytes, anonymous_bytes: anonymous, file_bytes: file }
    }

    /// Divides `total` bytes into those that need swap to be reclaimed and others, by the shares that the mappings have
    /// of a figure. Pages that several targets map count for each in the shares.
    fn split(&self, figure: impl Fn(&PageSums) -> u64, total: u64) -> Option<[u64; 2]> {
        let mappings = self.mappings.as_ref()?;
        let sum = |swap: bool| -> u64 {
            mappings.iter().filter(|(_, needs)| *needs == swap).map(|(sums, _)| figure(sums)).sum()
        };
        let (anonymous, file) = (sum(true), sum(false));
        let all = anonymous.saturating_add(file).max(1);
        let anonymous = (u128::from(total) * u128::from(anonymous) / u128::from(all)) as u64;
        Some([anonymous, total.saturating_sub(anonymous)])
    }
}

/// Whether the pages of a mapping need swap to be reclaimed: anonymous memory, memory that processes share without a
/// file on a disk, and private mappings that may be written, whose pages are copies once they were written.
fn needs_swap(mapping: &Mapping) -> bool {
    let name = &*mapping.name;
    let is_shared_memory = ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"].iter().any(|start| name.starts_with(start));
    let is_private_copy = mapping.permissions.write && !mapping.permissions.shared;
    !name.starts_with('/') || is_shared_memory || is_private_copy
}

#[cfg(test)]
mod tests {
    use isotherm_core::Permissions;

    use super::*;

    #[test]
    fn memory_without_a_file_on_a_disk_needs_swap() {
        let range = AddrRange::new(0x1000, 0x2000).unwrap();
        let of = |name: &str, write, shared| {
            let permissions = Permissions { write, shared, read: true, execute: false };
            needs_swap(&Mapping { name: name.into(), permissions, ..Mapping::anonymous(range) })
        };
        assert!(of("", true, false) && of("[heap]", true, false) && of("/dev/shm/a", true, true));
        assert!(of("/memfd:x (deleted)", true, true) && of("/usr/lib/libc.so.6", true, false));
        assert!(!of("/usr/lib/libc.so.6", false, false) && !of("/var/db", true, true));
    }
}
