//! Adds to the summary what surveys found.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{PageSums, TotalSums, WINDOWS};
use isotherm_core::{AddrRange, Mapping, MemoryUse, TargetId, is_memory};

use crate::ReportError;
use crate::extent::shown_name;
use crate::source::{Selection, Source};
use crate::summary::{CountedOnce, Summary, Temperature};
use crate::surveys::part;

/// The idle times that the summary tells, in seconds.
const IDLE: [u64; 3] = [10, 60, 600];

/// The sums over surveys, in bytes × nanoseconds of their intervals.
#[derive(Default)]
struct Sums {
    resident: u128,
    touched: u128,
    swapped: u128,
    /// Bytes that are mapped with access permission. `None` for physical memory.
    mapped: Option<u128>,
    /// The touched bytes of the current survey, its time, and the most touched bytes of one survey.
    current: (Duration, u64),
    most: u64,
    /// The sums of each target at its last survey.
    last: HashMap<TargetId, (Duration, PageSums)>,
}

impl Sums {
    /// Adds mapped memory, whether a survey found some of it or not.
    fn map(&mut self, time: Duration, interval: Duration, target: TargetId, bytes: u64) {
        if target != TargetId::PhysicalMemory {
            *self.mapped.get_or_insert(0) += u128::from(bytes) * interval.as_nanos();
        }
        self.last_of(target, time);
    }

    fn add(&mut self, time: Duration, interval: Duration, target: TargetId, sums: &PageSums) {
        if !interval.is_zero() {
            self.resident += u128::from(sums.present) * interval.as_nanos();
            self.touched += u128::from(sums.touched) * interval.as_nanos();
            self.swapped += u128::from(sums.swapped.unwrap_or(0)) * interval.as_nanos();
            let before = if self.current.0 == time { self.current.1 } else { 0 };
            self.current = (time, before.saturating_add(sums.touched));
            self.most = self.most.max(self.current.1);
        }
        self.last_of(target, time).add(sums);
    }

    fn last_of(&mut self, target: TargetId, time: Duration) -> &mut PageSums {
        let last = self.last.entry(target).or_insert((time, PageSums::default()));
        if last.0 != time {
            *last = (time, PageSums::default());
        }
        &mut last.1
    }

    /// Writes the means over the intervals of the surveys, and what was idle and in swap at the end.
    fn write(&self, surveys: &Covered, of: &mut Temperature) {
        let mean = |sum: u128| (sum / surveys.intervals.as_nanos().max(1)) as u64;
        (of.working_set_bytes, of.working_set_max_bytes) = (mean(self.touched), self.most);
        let out = &mut of.surveyed;
        out.resident_bytes = Some(mean(self.resident));
        out.touched_bytes = Some(mean(self.touched));
        out.absent_bytes = self.mapped.map(|mapped| mean(mapped.saturating_sub(self.resident + self.swapped)));
        let last =
            || self.last.iter().filter(|(id, (time, _))| surveys.last.get(*id) == Some(time)).map(|(_, of)| of.1);
        if surveys.know_swap {
            out.swapped_bytes = Some(last().filter_map(|sums| sums.swapped).fold(0, u64::saturating_add));
        }
        let idle = |seconds: u64| {
            let window = Duration::from_secs(seconds);
            let place = WINDOWS.iter().position(|&known| known == window).filter(|_| surveys.time >= window)?;
            let of = |sums: PageSums| sums.present.saturating_sub(sums.unobservable).saturating_sub(sums.within[place]);
            Some(last().map(of).fold(0, u64::saturating_add))
        };
        [out.idle_10s_bytes, out.idle_1m_bytes, out.idle_10m_bytes] = IDLE.map(idle);
    }
}

/// What the surveys of a selection cover.
#[derive(Default)]
struct Covered {
    /// Their intervals together.
    intervals: Duration,
    /// The time from the first survey of the recording to the last of the selection.
    time: Duration,
    /// The last survey of each target.
    last: HashMap<TargetId, Duration>,
    /// Whether they tell what is in swap.
    know_swap: bool,
}

/// Adds what surveys found, and what is in swap, to a summary of the same selection.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn add(summary: &mut Summary, source: &dyn Source, selection: &Selection) -> Result<(), ReportError> {
    let mut names: HashMap<String, Sums> = HashMap::new();
    let mut targets: HashMap<TargetId, Sums> = HashMap::new();
    let mut total = Sums::default();
    let (mut once, mut once_swapped) = (Some([0_u128; 3]), None);
    let (mut first, mut surveys) = (None, Covered::default());
    for record in source.surveys().map_err(ReportError::Source)? {
        let survey = record.map_err(ReportError::Source)?.survey;
        let first = *first.get_or_insert(survey.time);
        if !selection.holds_time(survey.time) {
            continue;
        }
        surveys.time = survey.time.saturating_sub(first);
        // The first survey counts all memory that was ever accessed as touched.
        surveys.intervals += survey.interval;
        let found = survey.total.filter(|_| selection.holds_all(&survey));
        once_swapped = found.and_then(|total| total.sums.swapped);
        if !survey.interval.is_zero() {
            once = once.zip(found).map(|(sums, TotalSums { sums: found, shared })| {
                let found = [found.present, shared, found.touched];
                std::array::from_fn(|i| sums[i] + u128::from(found[i]) * survey.interval.as_nanos())
            });
        }
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            surveys.last.insert(target.id, survey.time);
            let mut all = |mapping: &Mapping, add: &dyn Fn(&mut Sums)| {
                add(names.entry(shown_name(&mapping.label()).to_owned()).or_default());
                add(targets.entry(target.id).or_default());
                add(&mut total);
            };
            for mapping in target.mappings.iter().filter(|mapping| is_memory(&target.mappings, mapping)) {
                let range = selection.address.map_or(Some(mapping.range), |wanted| wanted.intersection(mapping.range));
                if let Some(bytes) = range.map(AddrRange::size) {
                    all(mapping, &|of| of.map(survey.time, survey.interval, target.id, bytes));
                }
            }
            for found in &target.by_mapping {
                let Some(mapping) = target.mappings.get(found.mapping as usize) else { continue };
                let sums = part(&found.sums, mapping.range, selection.address);
                surveys.know_swap |= sums.swapped.is_some();
                all(mapping, &|of| of.add(survey.time, survey.interval, target.id, &sums));
            }
        }
    }
    let used = used(source, selection)?;
    for target in &mut summary.targets {
        let used = used.get(&target.id);
        target.total.surveyed.swapped_bytes = used.map(|used| used.swapped);
        target.proportional_bytes = used.map(|used| used.proportional);
    }
    if !used.is_empty() {
        let swapped = used.values().map(|used| used.swapped);
        summary.total.surveyed.swapped_bytes = Some(swapped.fold(0, u64::saturating_add));
    }
    if surveys.intervals.is_zero() {
        return Ok(());
    }
    summary.counted_once = once.map(|sums| {
        let [resident_bytes, shared_bytes, touched_bytes] = sums.map(|sum| (sum / surveys.intervals.as_nanos()) as u64);
        CountedOnce { resident_bytes, shared_bytes, touched_bytes, swapped_bytes: once_swapped }
    });
    let write = |sums: Option<&Sums>, of: &mut Temperature| {
        sums.unwrap_or(&Sums::default()).write(&surveys, of);
    };
    write(Some(&total), &mut summary.total);
    // Memory that is wholly in swap has no region.
    let known: HashSet<Arc<str>> = summary.mappings.iter().map(|of| Arc::clone(&of.name)).collect();
    let mut swapped: Vec<_> =
        names.iter().filter(|(name, sums)| sums.swapped > 0 && !known.contains(&***name)).collect();
    swapped.sort_by_key(|(name, sums)| (Reverse(sums.swapped), *name));
    let without_region = |name: &str| Temperature { name: name.into(), ..Temperature::default() };
    summary.mappings.extend(swapped.into_iter().map(|(name, _)| without_region(name)));
    summary.mappings.iter_mut().for_each(|of| write(names.get(&*of.name), of));
    summary.targets.iter_mut().for_each(|of| write(targets.get(&of.id), &mut of.total));
    Ok(())
}

/// The memory that a target uses, by the activities of a selection.
#[derive(Default)]
struct Used {
    /// The mean of its proportional bytes over the time of the activities.
    proportional: u64,
    /// Its bytes in swap at the end.
    swapped: u64,
}

fn used(source: &dyn Source, selection: &Selection) -> Result<HashMap<TargetId, Used>, ReportError> {
    // The sum of bytes × nanoseconds since the activity before, and the last activity.
    let mut all: HashMap<TargetId, (u128, MemoryUse)> = HashMap::new();
    let (mut before, mut time) = (Duration::ZERO, 0);
    for activity in source.activities().map_err(ReportError::Source)? {
        let activity = activity.map_err(ReportError::Source)?;
        let elapsed = activity.time.saturating_sub(std::mem::replace(&mut before, activity.time)).as_nanos().max(1);
        if !selection.holds_time(activity.time) {
            continue;
        }
        time += elapsed;
        for (id, used) in activity.memory.into_iter().filter(|(id, _)| selection.holds_target(*id)) {
            let (sum, last) = all.entry(id).or_default();
            *sum += u128::from(used.proportional) * elapsed;
            *last = used;
        }
    }
    let used = |(id, (sum, last)): (TargetId, (u128, MemoryUse))| {
        (id, Used { proportional: (sum / time.max(1)) as u64, swapped: last.swapped })
    };
    Ok(all.into_iter().map(used).collect())
}
