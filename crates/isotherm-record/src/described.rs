//! What rows say that targets are, and their mappings, as rows of surveys refer to them.

use std::collections::HashMap;
use std::sync::Arc;

use isotherm_core::Mapping;

use crate::TargetInfo;
use crate::id::StoredId;

/// The snapshot or survey that a row is part of, by its time in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Snapshot(u64),
    Survey(u64),
}

/// What rows have said of the targets.
///
/// A row of a survey leaves out what the last row says that has it, be it a row of a snapshot or of a survey. Rows of
/// snapshots do not refer to rows of surveys, because older readers pass over those. A target that neither the last
/// snapshot nor the last survey has is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Described {
    known: HashMap<StoredId, LastDescription>,
    /// The time of the last snapshot and of the last survey, in nanoseconds.
    snapshot: Option<u64>,
    survey: Option<u64>,
}

/// What a target is, and its mappings.
pub(crate) type Description = (Arc<TargetInfo>, Arc<[Mapping]>);

#[derive(Debug)]
struct LastDescription {
    description: Description,
    /// The last snapshot and the last survey that had the target.
    snapshot: Option<u64>,
    survey: Option<u64>,
}

impl Described {
    /// Takes in a row: what it says of a target, and what it leaves out. Returns what holds for the target then.
    ///
    /// # Errors
    /// When the row leaves out what no row before has said.
    pub(crate) fn add(
        &mut self,
        part: Part,
        id: StoredId,
        info: Option<Arc<TargetInfo>>,
        mappings: Option<Arc<[Mapping]>>,
    ) -> Result<Description, &'static str> {
        self.begin(part);
        let before = self.known.remove(&id);
        let (mut snapshot, mut survey) = before.as_ref().map_or((None, None), |known| (known.snapshot, known.survey));
        match part {
            Part::Snapshot(time) => snapshot = Some(time),
            Part::Survey(time) => survey = Some(time),
        }
        let description = match before {
            Some(LastDescription { description: (known_info, known), .. }) => {
                (info.unwrap_or(known_info), mappings.unwrap_or(known))
            }
            None => (
                info.ok_or("the first row of a target does not say what it is")?,
                mappings.ok_or("the first row of a target has no mappings")?,
            ),
        };
        self.known.insert(id, LastDescription { description: description.clone(), snapshot, survey });
        Ok(description)
    }

    /// What is known of a target for a row of this part.
    pub(crate) fn get(&mut self, part: Part, id: StoredId) -> Option<&Description> {
        self.begin(part);
        self.known.get(&id).map(|known| &known.description)
    }

    /// Forgets all targets.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Begins a snapshot or a survey, unless it has begun.
    fn begin(&mut self, part: Part) {
        let (last, time) = match part {
            Part::Snapshot(time) => (&mut self.snapshot, time),
            Part::Survey(time) => (&mut self.survey, time),
        };
        if *last == Some(time) {
            return;
        }
        let before = last.replace(time);
        let (snapshot, survey) = match part {
            Part::Snapshot(_) => (before, self.survey),
            Part::Survey(_) => (self.snapshot, before),
        };
        let was_there = |of: Option<u64>, last: Option<u64>| of.is_some() && of == last;
        self.known.retain(|_, known| was_there(known.snapshot, snapshot) || was_there(known.survey, survey));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: StoredId = StoredId::PhysicalMemory;

    fn info() -> Option<Arc<TargetInfo>> {
        Some(Arc::new(TargetInfo { command: "a".into(), ..TargetInfo::default() }))
    }

    fn none() -> Option<Arc<[Mapping]>> {
        Some(Arc::default())
    }

    #[test]
    fn a_target_is_known_until_a_snapshot_and_a_survey_lack_it() {
        let mut described = Described::default();
        described.add(Part::Snapshot(1), ID, info(), none()).unwrap();
        described.add(Part::Survey(2), ID, None, None).unwrap();
        // The last survey had it, the last snapshot has not.
        assert!(described.get(Part::Snapshot(3), ID).is_some());
        assert!(described.get(Part::Survey(4), ID).is_some());
        assert!(described.get(Part::Survey(5), ID).is_none());
    }

    #[test]
    fn a_first_row_must_say_all() {
        let mut described = Described::default();
        assert!(described.add(Part::Survey(1), ID, None, none()).is_err());
        assert!(described.add(Part::Survey(1), ID, info(), None).is_err());
        assert!(described.add(Part::Survey(1), ID, info(), none()).is_ok());
    }
}
