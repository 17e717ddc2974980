//! Adds to the summary what surveys found.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{PageSums, TotalSums, WINDOWS};
use isotherm_core::{MemoryUse, TargetId};

use crate::ReportError;
use crate::extent::shown_name;
use crate::source::{Selection, Source};
use crate::summary::{CountedOnce, Summary, Temperature};
use crate::surveys::part;

/// The idle times that the summary tells, in seconds.
const IDLE: [u64; 3] = [10, 60, 600];

/// The sums over surveys.
#[derive(Default)]
struct Sums {
    resident: u128,
    touched: u128,
    /// The touched bytes of the current survey, its time, and the most touched bytes of one survey.
    current: (Duration, u64),
    most: u64,
    /// The sums of each target at its last survey.
    last: HashMap<TargetId, (Duration, PageSums)>,
}

impl Sums {
    fn add(&mut self, time: Duration, settled: bool, target: TargetId, sums: &PageSums) {
        if settled {
            self.resident += u128::from(sums.present);
            self.touched += u128::from(sums.touched);
            let before = if self.current.0 == time { self.current.1 } else { 0 };
            self.current = (time, before.saturating_add(sums.touched));
            self.most = self.most.max(self.current.1);
        }
        let last = self.last.entry(target).or_insert((time, PageSums::default()));
        if last.0 != time {
            *last = (time, PageSums::default());
        }
        last.1.add(sums);
    }

    /// Writes the means over `surveys`, and what was idle at the end; `covered` is the time that the surveys cover.
    fn write(&self, surveys: u64, covered: Duration, of: &mut Temperature) {
        let mean = |sum: u128| (sum / u128::from(surveys.max(1))) as u64;
        (of.working_set_bytes, of.working_set_max_bytes) = (mean(self.touched), self.most);
        let out = &mut of.surveyed;
        out.resident_bytes = Some(mean(self.resident));
        out.touched_bytes = Some(mean(self.touched));
        let idle = |seconds: u64| {
            let window = Duration::from_secs(seconds);
            let place = WINDOWS.iter().position(|&known| known == window).filter(|_| covered >= window)?;
            let of =
                |sums: &PageSums| sums.present.saturating_sub(sums.unobservable).saturating_sub(sums.within[place]);
            Some(self.last.values().map(|(_, sums)| of(sums)).fold(0, u64::saturating_add))
        };
        [out.idle_10s_bytes, out.idle_1m_bytes, out.idle_10m_bytes] = IDLE.map(idle);
    }
}

/// Adds what surveys found, and what is in swap, to a summary of the same selection.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn add(summary: &mut Summary, source: &dyn Source, selection: &Selection) -> Result<(), ReportError> {
    let mut names: HashMap<String, Sums> = HashMap::new();
    let mut targets: HashMap<TargetId, Sums> = HashMap::new();
    let mut total = Sums::default();
    let mut once = Some([0_u128; 3]);
    let (mut first, mut last, mut surveys) = (None, Duration::ZERO, 0);
    for record in source.surveys().map_err(ReportError::Source)? {
        let survey = record.map_err(ReportError::Source)?.survey;
        first.get_or_insert(survey.time);
        if !selection.holds_time(survey.time) {
            continue;
        }
        last = survey.time;
        // The first survey counts all memory that was ever accessed as touched.
        let settled = !survey.interval.is_zero();
        surveys += u64::from(settled);
        if settled {
            let found = survey.total.filter(|_| selection.holds_all(&survey));
            once = once.zip(found).map(|(sums, TotalSums { sums: found, shared })| {
                let found = [found.present, shared, found.touched];
                std::array::from_fn(|i| sums[i] + u128::from(found[i]))
            });
        }
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            for found in &target.by_mapping {
                let Some(mapping) = target.mappings.get(found.mapping as usize) else { continue };
                let sums = part(&found.sums, mapping.range, selection.address);
                let name = shown_name(&mapping.label()).to_owned();
                for of in [names.entry(name).or_default(), targets.entry(target.id).or_default(), &mut total] {
                    of.add(survey.time, settled, target.id, &sums);
                }
            }
        }
    }
    let swapped = swapped(source, selection)?;
    for target in &mut summary.targets {
        target.total.surveyed.swapped_bytes = swapped.get(&target.id).copied();
    }
    if !swapped.is_empty() {
        summary.total.surveyed.swapped_bytes = Some(swapped.values().copied().fold(0, u64::saturating_add));
    }
    let Some(first) = first.filter(|_| surveys > 0) else { return Ok(()) };
    summary.counted_once = once.map(|sums| {
        let [resident_bytes, shared_bytes, touched_bytes] = sums.map(|sum| (sum / u128::from(surveys)) as u64);
        CountedOnce { resident_bytes, shared_bytes, touched_bytes }
    });
    let write = |sums: Option<&Sums>, of: &mut Temperature| {
        sums.unwrap_or(&Sums::default()).write(surveys, last.saturating_sub(first), of);
    };
    write(Some(&total), &mut summary.total);
    summary.mappings.iter_mut().for_each(|of| write(names.get(&*of.name), of));
    summary.targets.iter_mut().for_each(|of| write(targets.get(&of.id), &mut of.total));
    Ok(())
}

/// The bytes in swap of each target at the end of the selected time, as far as they are known.
fn swapped(source: &dyn Source, selection: &Selection) -> Result<HashMap<TargetId, u64>, ReportError> {
    let mut swapped = HashMap::new();
    for activity in source.activities().map_err(ReportError::Source)? {
        let activity = activity.map_err(ReportError::Source)?;
        if selection.holds_time(activity.time) {
            let chosen = activity.memory.into_iter().filter(|(id, _)| selection.holds_target(*id));
            swapped.extend(chosen.map(|(id, MemoryUse { swapped, .. })| (id, swapped)));
        }
    }
    Ok(swapped)
}
