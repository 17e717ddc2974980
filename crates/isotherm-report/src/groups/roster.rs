//! What is grouped: the targets of a selection, and the names of their mappings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use isotherm_core::{Mapping, TargetId};
use isotherm_record::TargetInfo;

use crate::ReportError;
use crate::extent::shown_name;
use crate::source::{Selection, Source};

/// The targets of a selection, and the names of their mappings.
#[derive(Default)]
pub(super) struct Roster {
    /// The targets, in the order in which they appear, and what each was at last.
    pub(super) targets: Vec<(TargetId, Arc<TargetInfo>)>,
    /// The shown names of mappings, each with the number of targets that have it. Empty if they are not wanted.
    pub(super) mappings: BTreeMap<String, usize>,
}

#[derive(Default)]
struct Reader {
    roster: Roster,
    places: HashMap<TargetId, usize>,
    /// The mappings of each target that were read last, and the names that it has had.
    names: HashMap<TargetId, (Arc<[Mapping]>, HashSet<String>)>,
}

impl Roster {
    /// Reads it. `mappings` says whether the names of mappings are wanted.
    pub(super) fn of(source: &dyn Source, selection: &Selection, mappings: bool) -> Result<Self, ReportError> {
        let mut reader = Reader::default();
        for row in source.rows().map_err(ReportError::Source)? {
            let row = row.map_err(ReportError::Source)?;
            if selection.holds_time(row.time) && selection.holds_target(row.target.id) {
                reader.add(row.target.id, &row.info);
                if mappings {
                    reader.add_mappings(row.target.id, &row.target.mappings, selection);
                }
            }
        }
        // A target that ended soon may be in a survey alone.
        for record in source.surveys().map_err(ReportError::Source)? {
            let record = record.map_err(ReportError::Source)?;
            for (found, info) in record.described().filter(|_| selection.holds_time(record.survey.time)) {
                if selection.holds_target(found.id) {
                    reader.add(found.id, &info);
                    if mappings {
                        reader.add_mappings(found.id, &found.mappings, selection);
                    }
                }
            }
        }
        Ok(reader.roster)
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

    fn add_mappings(&mut self, id: TargetId, mappings: &Arc<[Mapping]>, selection: &Selection) {
        let (last, names) = self.names.entry(id).or_default();
        if Arc::ptr_eq(last, mappings) {
            return;
        }
        *last = Arc::clone(mappings);
        for mapping in &**mappings {
            let label = mapping.label();
            let name = shown_name(&label);
            if selection.clip(mapping.range).is_some() && !names.contains(name) {
                names.insert(name.to_owned());
                *self.roster.mappings.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}
