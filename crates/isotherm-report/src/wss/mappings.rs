//! The working set of each mapping over time: from surveys, and from the panel where surveys do not know all memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use isotherm_core::survey::{SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_core::{Mapping, TargetId, TargetPanel};

use super::Wss;
use super::surveyed::amount;
use crate::ReportError;
use crate::source::{self, Selection, Source};
use crate::surveys::part;

/// The memory of one mapping of a target at a time.
pub(crate) struct MappingWss<'a> {
    pub(crate) mapping: &'a Mapping,
    /// Bytes that were accessed within the window.
    pub(crate) bytes: u64,
    /// Bytes in memory.
    pub(crate) present: u64,
}

/// Calls `found` for each target at each time that `wss`, of the same source and selection, is based on: with the time,
/// for how long before it the figures hold, and the mappings. Times of the warm-up are left out, unless there are no
/// others.
///
/// The panel has too few pages of small mappings for figures of their own. What it found in these together is divided
/// among them by their memory.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn each(
    wss: &Wss,
    source: &dyn Source,
    selection: &Selection,
    mut found: impl FnMut(TargetId, (Duration, Duration), &[MappingWss<'_>]),
) -> Result<(), ReportError> {
    let place = WINDOWS.iter().position(|&known| known == wss.window).filter(|_| !wss.by_interval);
    let points = wss.points.iter().filter(|point| !point.warm_up);
    let times: BTreeMap<Duration, (Duration, bool)> =
        points.map(|point| (point.time, (point.span, point.amount.low_bytes.is_some()))).collect();
    let mut panels = source::panels(source)?.peekable();
    let mut last = LastSums::default();
    let mut surveys = source::surveys(source, false)?;
    loop {
        let survey = surveys.next().transpose()?.map(|record| record.survey);
        // Readings before the first survey know the mappings by this one.
        if last.0.is_empty()
            && let Some(survey) = &survey
        {
            last.take(survey);
        }
        let is_before = |time: Duration| survey.as_ref().is_none_or(|survey| time <= survey.time);
        while let Some(panel) = panels.next_if(|panel| panel.as_ref().map_or(true, |panel| is_before(panel.time))) {
            let panel = panel?;
            let (Some(place), Some(&(span, true))) = (place, times.get(&panel.time)) else { continue };
            for target in panel.targets.iter().filter(|target| selection.holds_target(target.id)) {
                found(target.id, (panel.time, span), &last.by_panel(target, place));
            }
        }
        let Some(survey) = survey else { return Ok(()) };
        last.take(&survey);
        let Some(&(span, false)) = times.get(&survey.time) else { continue };
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            let mappings = target.surveyed().map(|(mapping, sums)| {
                let amount = amount(&part(sums, mapping.range, selection.address), place, 0);
                MappingWss { mapping, bytes: amount.bytes, present: amount.present_bytes.unwrap_or(0) }
            });
            let mappings: Vec<_> = mappings.collect();
            found(target.id, (survey.time, span), &mappings);
        }
    }
}

/// The mappings of each target by the last survey.
#[derive(Default)]
struct LastSums(HashMap<TargetId, TargetSurvey>);

impl LastSums {
    fn take(&mut self, survey: &SurveySnapshot) {
        self.0.extend(survey.targets.iter().map(|target| (target.id, target.without_blocks())));
    }

    fn by_panel(&self, target: &TargetPanel, place: usize) -> Vec<MappingWss<'_>> {
        let Some(last) = self.0.get(&target.id) else { return vec![] };
        let (mut found, mut small) = (vec![], vec![]);
        let mut rest = target.within[place].value;
        for (mapping, sums) in last.surveyed() {
            let of = target.by_mapping.iter().find(|of| of.range.intersection(mapping.range).is_some());
            let bytes = of.map_or(0, |of| of.within[place].value);
            let row = MappingWss { mapping, bytes, present: sums.figures.present };
            rest = rest.saturating_sub(bytes);
            if of.is_some() { &mut found } else { &mut small }.push(row);
        }
        let all: u64 = small.iter().map(|row| row.present).sum();
        for row in &mut small {
            row.bytes = (u128::from(rest.min(all)) * u128::from(row.present) / u128::from(all.max(1))) as u64;
        }
        found.append(&mut small);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use isotherm_core::survey::{BlockList, MappingSums, PageSums};
    use isotherm_core::{AddrRange, Estimate, Figures, MappingPanel};

    use super::*;

    #[test]
    fn what_the_panel_finds_in_mappings_adds_up_to_the_target() {
        const MIB: u64 = 1 << 20;
        let range = |start: u64, end: u64| AddrRange::new(start * MIB, end * MIB).unwrap();
        let mappings: Arc<[Mapping]> = [range(0, 100), range(200, 203), range(300, 301)].map(Mapping::anonymous).into();
        let present = |(nth, mib): (usize, u64)| {
            let sums = PageSums::of(Figures { present: mib * MIB, ..Figures::default() });
            MappingSums::new(nth, &mappings, sums).unwrap()
        };
        let id = TargetId::PhysicalMemory;
        let by_mapping = [100, 3, 1].into_iter().enumerate().map(present).collect();
        let (by_block, by_node) = (BlockList::default(), Vec::new());
        let survey = TargetSurvey { id, mappings: Arc::clone(&mappings), by_mapping, by_block, by_node };
        let last = LastSums([(id, survey)].into());
        let within = |mib: u64| [Estimate::exact(mib * MIB); WINDOWS.len()];
        let large = MappingPanel { range: range(0, 100), within: within(40) };
        let of = |all| {
            let target = TargetPanel { id, within: within(all), by_mapping: vec![large.clone()] };
            last.by_panel(&target, 2).iter().map(|row| row.bytes).collect::<Vec<_>>()
        };
        assert_eq!(of(42), [40 * MIB, 3 * MIB / 2, MIB / 2]);
        assert_eq!(of(39), [40 * MIB, 0, 0]);
    }
}
