//! The extent of a report: its targets, its time, and the memory that was mapped at some time in it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use isotherm_core::shown_name;
use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{AddrRange, Mapping, TargetId};
use isotherm_record::{Needs, SurveyDetail, TargetInfo};
use rangemap::RangeMap;

use crate::ReportError;
use crate::intervals::IntervalRange;
use crate::source::{Accumulator, Seen, Selection, Takes};
use crate::surveys::{Piece, pieces};

/// A range of addresses, and the name of the last mapping there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The addresses.
    pub range: AddrRange,
    /// The name, as in [`Mapping::name`].
    pub name: Arc<str>,
}

/// The extent of one target.
#[derive(Clone, Debug)]
pub struct TargetExtent {
    /// The target.
    pub id: TargetId,
    /// Its last known command and start.
    pub info: Arc<TargetInfo>,
    /// The memory that was mapped at some time, sorted and disjoint.
    pub mapped: Vec<Named>,
    /// The time that its rows or surveys cover.
    pub life: (Duration, Duration),
    /// The most bytes that it had at a time: in memory if surveys tell, or else mapped.
    pub most_bytes: u64,
    /// Whether that is by surveys.
    surveyed: bool,
    /// The number of rows.
    pub rows: u64,
    /// The number of regions in all rows.
    pub regions: u64,
}

impl TargetExtent {
    /// Takes in the bytes that it had at a time: in memory by a survey, or mapped, which counts without surveys only.
    fn grow(&mut self, bytes: u64, surveyed: bool) {
        if surveyed == self.surveyed {
            self.most_bytes = self.most_bytes.max(bytes);
        } else if surveyed {
            (self.most_bytes, self.surveyed) = (bytes, true);
        }
    }
}

/// The targets, the time and the memory of a report. The first walk of each picture finds them.
#[derive(Default)]
pub struct Extent {
    /// The targets, in the order in which they appear.
    pub targets: Vec<TargetExtent>,
    /// The start and the end of the time that the rows cover.
    pub time: Option<(Duration, Duration)>,
    /// Snapshots with a selected row.
    pub snapshots: u64,
    /// The sampling intervals of snapshots with samples.
    pub sampling: IntervalRange,
    selection: Selection,
    unions: HashMap<TargetId, MappedUnion>,
    /// What was in swap at some time.
    swapped: HashMap<TargetId, MappedUnion>,
    /// The place of each target among `targets`.
    places: HashMap<TargetId, usize>,
    last: Option<Duration>,
}

impl Extent {
    /// That of a selection, memory that is in swap included, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self { selection: selection.clone(), ..Self::default() }
    }

    /// The extent after its walk.
    ///
    /// # Errors
    /// If the selected addresses had nothing.
    pub(crate) fn found(self) -> Result<Self, ReportError> {
        let (by_address, asked) = (self.selection.address.is_some(), self.selection.describe());
        let extent = self.finish();
        if extent.targets.is_empty() && by_address {
            let holds = "no memory there that was in memory or in swap".into();
            return Err(ReportError::NothingMatches { asked, holds });
        }
        Ok(extent)
    }

    /// Takes in what a survey found in swap, which may have no region.
    fn add_swapped(&mut self, survey: &SurveySnapshot) {
        for found in survey.targets.iter().filter(|_| self.selection.holds_time(survey.time)) {
            // Most targets have nothing in swap.
            if !found.has_swap() {
                continue;
            }
            let swapped = pieces(found, self.selection.address).filter(|piece| piece.shares.swapped.least() > 0.0);
            let union = self.swapped.entry(found.id).or_default();
            swapped.for_each(|piece| union.fill(piece.range, &piece.mapping.label()));
        }
    }

    /// Fills in the mapped memory of each target, and removes targets without any.
    pub fn finish(mut self) -> Self {
        for target in &mut self.targets {
            if let Some(mut union) = self.unions.remove(&target.id) {
                for Named { range, name } in self.swapped.remove(&target.id).unwrap_or_default().into_named() {
                    union.fill(range, &name);
                }
                target.mapped = union.into_named();
            }
        }
        self.targets.retain(|target| !target.mapped.is_empty());
        self.places.clear();
        self
    }
}

/// The extent of the blocks that surveys found in memory or in swap, but for the first one.
pub(crate) struct SurveyedExtent(Extent);

impl SurveyedExtent {
    /// That of a selection, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self(Extent::new(selection))
    }

    /// The extent. `None` if the selection has no survey after the first.
    pub(crate) fn found(self) -> Option<Extent> {
        (self.0.snapshots > 0).then(|| self.0.finish())
    }
}

impl Accumulator for SurveyedExtent {
    fn needs(&self) -> Needs {
        Needs::SURVEYS
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let (Seen::Survey(record), Self(extent)) = (event, self) else { return Ok(()) };
        let survey = &record.survey;
        let is_bare = record.detail == SurveyDetail::Bare;
        if is_bare || survey.interval.is_zero() || !extent.selection.holds_time(survey.time) {
            return Ok(());
        }
        let since = survey.time.saturating_sub(survey.interval);
        let selection = extent.selection.clone();
        for (found, info) in record.described().filter(|(found, _)| selection.holds_target(found.id)) {
            let (start, end) = extent.time.unwrap_or((since, survey.time));
            extent.time = Some((start.min(since), end.max(survey.time)));
            extent.snapshots += u64::from(extent.last.replace(survey.time) != Some(survey.time));
            let target = extent.target(found.id, || Arc::clone(info), since);
            target.life.1 = survey.time;
            let union = extent.unions.entry(found.id).or_default();
            let mut present = 0.0;
            union.map_all(pieces(found, selection.address).map(|Piece { range, mapping, shares, .. }| {
                present += shares.present * range.size() as f64;
                (range, mapping)
            }));
            extent.target(found.id, || Arc::clone(info), since).grow(present as u64, true);
        }
        Ok(())
    }
}

impl Extent {
    /// The extent of a target, which is new if it has none yet. Its life then begins at `since`.
    fn target(&mut self, id: TargetId, info: impl Fn() -> Arc<TargetInfo>, since: Duration) -> &mut TargetExtent {
        let place = *self.places.entry(id).or_insert(self.targets.len());
        if place == self.targets.len() {
            let life = (since, since);
            self.targets.push(TargetExtent {
                id,
                info: info(),
                mapped: vec![],
                life,
                most_bytes: 0,
                surveyed: false,
                rows: 0,
                regions: 0,
            });
        }
        &mut self.targets[place]
    }
}

impl Accumulator for Extent {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, regions: true, ..Needs::SURVEYS }
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Survey(record) = event
            && record.detail != SurveyDetail::Bare
        {
            self.add_swapped(&record.survey);
        }
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        let row = &visit.row;
        let (start, end) = self.time.unwrap_or((visit.since, row.time));
        self.time = Some((start.min(visit.since), end.max(row.time)));
        self.snapshots += u64::from(self.last.replace(row.time) != Some(row.time));
        self.sampling.add_row(row);
        let target = self.target(row.target.id, || row.info.clone(), visit.since);
        target.life.1 = row.time;
        target.rows += 1;
        target.regions += row.nr_regions as u64;
        // Some recorders did not know what a process was once it had ended.
        if !Arc::ptr_eq(&target.info, row.info) && !row.info.command.is_empty() {
            target.info = row.info.clone();
        }
        let union = self.unions.entry(row.target.id).or_default();
        let mut bytes = 0;
        let surveyed = row.target.regions.iter().any(|region| region.pages.is_some());
        if surveyed {
            // With a survey, only what is in memory counts.
            let present = visit.pieces().filter(|piece| piece.region.pages.is_some_and(|pages| pages.present > 0));
            union.map_all(present.map(|piece| (piece.range, piece.mapping)));
            bytes = row.target.regions.iter().filter_map(|region| region.pages).map(|pages| pages.present).sum();
        } else if union.changes(&row.target.mappings) {
            for (range, name) in visit.mapped() {
                union.map(range, &name);
                bytes += range.size();
            }
        }
        self.target(row.target.id, || row.info.clone(), visit.since).grow(bytes, surveyed);
        Ok(())
    }
}

/// The union of the mappings over time. At an address with several mappings, the last one counts.
#[derive(Default)]
struct MappedUnion {
    names: RangeMap<u64, Arc<str>>,
    mappings: Option<Arc<[Mapping]>>,
}

impl MappedUnion {
    /// Whether these mappings differ from the previous ones.
    fn changes(&mut self, mappings: &Arc<[Mapping]>) -> bool {
        let same = self.mappings.as_ref().is_some_and(|known| Arc::ptr_eq(known, mappings) || known == mappings);
        if !same {
            self.mappings = Some(mappings.clone());
        }
        !same
    }

    /// Maps ranges of mappings. Those of one mapping that touch are mapped at once.
    fn map_all<'m>(&mut self, ranges: impl Iterator<Item = (AddrRange, &'m Mapping)>) {
        let mut last: Option<(AddrRange, &Mapping)> = None;
        for (range, mapping) in ranges {
            let joined = last.filter(|(before, of)| std::ptr::eq(*of, mapping) && before.touches(range));
            match joined.and_then(|(before, _)| AddrRange::new(before.start(), range.end())) {
                Some(both) => last = Some((both, mapping)),
                None => {
                    last.replace((range, mapping)).iter().for_each(|(before, of)| self.map(*before, &of.label()));
                }
            }
        }
        last.iter().for_each(|(before, of)| self.map(*before, &of.label()));
    }

    fn map(&mut self, range: AddrRange, name: &Arc<str>) {
        // Most of what is mapped later is mapped already.
        let known = self.names.get_key_value(&range.start());
        if known.is_none_or(|(piece, known)| piece.end < range.end() || known != name) {
            self.names.insert(range.into(), Arc::clone(name));
        }
    }

    /// Maps what of a range is not mapped yet.
    fn fill(&mut self, range: AddrRange, name: &Arc<str>) {
        let gaps: Vec<Range<u64>> = self.names.gaps(&range.into()).collect();
        gaps.into_iter().for_each(|gap| self.names.insert(gap, Arc::clone(name)));
    }

    fn into_named(self) -> Vec<Named> {
        let pieces = self.names.into_iter();
        pieces
            .filter_map(|(piece, name)| Some(Named { range: AddrRange::new(piece.start, piece.end)?, name }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: u64, end: u64, name: &str) -> Named {
        Named { range: AddrRange::new(start, end).unwrap(), name: name.into() }
    }

    #[test]
    fn a_later_mapping_replaces_an_earlier_one() {
        let mut union = MappedUnion::default();
        for (start, end, name) in [(0, 10, "a"), (20, 30, "b"), (5, 25, "c"), (7, 9, "a"), (30, 40, "b")] {
            union.map(AddrRange::new(start, end).unwrap(), &name.into());
        }
        assert_eq!(
            union.into_named(),
            [named(0, 5, "a"), named(5, 7, "c"), named(7, 9, "a"), named(9, 25, "c"), named(25, 40, "b")]
        );
    }

    #[test]
    fn only_gaps_are_filled() {
        let mut union = MappedUnion::default();
        for (start, end) in [(5, 10), (15, 20)] {
            union.map(AddrRange::new(start, end).unwrap(), &"a".into());
        }
        for (start, end) in [(7, 9), (8, 16), (19, 30), (0, 3)] {
            union.fill(AddrRange::new(start, end).unwrap(), &"b".into());
        }
        let all = [(0, 3, "b"), (5, 10, "a"), (10, 15, "b"), (15, 20, "a"), (20, 30, "b")];
        assert_eq!(union.into_named(), all.map(|(start, end, name)| named(start, end, name)));
    }
}
