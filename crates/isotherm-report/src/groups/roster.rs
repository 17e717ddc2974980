//! What is grouped: the targets of a selection, and the names of their mappings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use isotherm_core::{Mapping, TargetId};
use isotherm_record::{Needs, TargetInfo};

use crate::ReportError;
use crate::extent::shown_name;
use crate::source::{Accumulator, Seen, Selection, Visit};

/// The targets of a selection, and the names of their mappings.
#[derive(Clone, Default)]
pub(super) struct Roster {
    /// The targets, in the order in which they appear, and what each was at last.
    pub(super) targets: Vec<(TargetId, Arc<TargetInfo>)>,
    /// The shown names of mappings, each with the number of targets that have it. Empty if they are not wanted.
    pub(super) mappings: BTreeMap<String, usize>,
    /// The targets that snapshots have.
    pub(super) sampled: HashSet<TargetId>,
}

/// What a survey says of a target: what it is, and its mappings if they are wanted.
type Surveyed = (Arc<TargetInfo>, Option<Arc<[Mapping]>>);

/// Reads what is grouped.
#[derive(Clone, Default)]
pub(crate) struct Reader {
    selection: Selection,
    mappings: bool,
    /// What surveys say, and what the last one of each target said.
    surveyed: Vec<(TargetId, Surveyed)>,
    last: HashMap<TargetId, Surveyed>,
    roster: Roster,
    places: HashMap<TargetId, usize>,
    /// The mappings of each target that were read last, and the names that it has had.
    names: HashMap<TargetId, (Arc<[Mapping]>, HashSet<String>)>,
}

impl Reader {
    /// The reader of a selection, before its walk. `mappings` says whether the names of mappings are wanted.
    pub(crate) fn new(selection: &Selection, mappings: bool) -> Self {
        Self { selection: selection.clone(), mappings, ..Self::default() }
    }

    /// What it has read. A target that ended soon may be in a survey alone: those come after the others.
    pub(super) fn finish(mut self) -> Roster {
        for (id, (info, mappings)) in std::mem::take(&mut self.surveyed) {
            self.add(id, &info);
            mappings.iter().for_each(|mappings| self.add_mappings(id, mappings));
        }
        self.roster
    }
}

impl Accumulator for Reader {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, surveys: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Row(Visit { row, chosen: true, .. }) = event {
            self.add(row.target.id, row.info);
            self.roster.sampled.insert(row.target.id);
            if self.mappings {
                self.add_mappings(row.target.id, &row.target.mappings);
            }
        }
        if let Seen::Survey(record) = event
            && self.selection.holds_time(record.survey.time)
        {
            for (found, info) in record.described().filter(|(found, _)| self.selection.holds_target(found.id)) {
                let mappings = self.mappings.then(|| Arc::clone(&found.mappings));
                // What is the same as in the last survey says nothing new.
                let same = |(known, told): &Surveyed| {
                    Arc::ptr_eq(known, info)
                        && told.as_ref().zip(mappings.as_ref()).is_none_or(|(a, b)| Arc::ptr_eq(a, b))
                };
                if !self.last.get(&found.id).is_some_and(same) {
                    let surveyed = (Arc::clone(info), mappings);
                    self.last.insert(found.id, surveyed.clone());
                    self.surveyed.push((found.id, surveyed));
                }
            }
        }
        Ok(())
    }
}

impl Reader {
    fn add(&mut self, id: TargetId, info: &Arc<TargetInfo>) {
        let targets = &mut self.roster.targets;
        let place = *self.places.entry(id).or_insert(targets.len());
        match targets.get_mut(place) {
            None => targets.push((id, Arc::clone(info))),
            // Some recorders did not know what a process was once it had ended.
            Some((_, known)) if info.command.is_empty() && !known.command.is_empty() => {}
            Some((_, known)) => *known = Arc::clone(info),
        }
    }

    fn add_mappings(&mut self, id: TargetId, mappings: &Arc<[Mapping]>) {
        let (last, names) = self.names.entry(id).or_default();
        if Arc::ptr_eq(last, mappings) {
            return;
        }
        *last = Arc::clone(mappings);
        for mapping in &**mappings {
            let label = mapping.label();
            let name = shown_name(&label);
            if self.selection.clip(mapping.range).is_some() && !names.contains(name) {
                names.insert(name.to_owned());
                *self.roster.mappings.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}
