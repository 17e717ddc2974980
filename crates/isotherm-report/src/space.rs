//! What a report is about: which targets, which time, and all memory that was mapped at some time in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, TargetId};
use isotherm_record::TargetInfo;

use crate::ReportError;
use crate::source::{Seen, View};

/// What memory without a name is called.
pub const ANONYMOUS: &str = "anonymous";

/// The name of a mapping as it is shown: memory without a name is called anonymous.
pub fn shown_name(name: &str) -> &str {
    if name.is_empty() { ANONYMOUS } else { name }
}

/// A piece of address space and the name of what was mapped there last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where it lies.
    pub range: AddrRange,
    /// Its name as in [`Mapping::name`].
    pub name: Arc<str>,
}

/// One target in the selected time: what it was, when it was there, and all that it had mapped.
#[derive(Clone, Debug)]
pub struct Place {
    /// Which target.
    pub id: TargetId,
    /// What it was at last.
    pub info: Arc<TargetInfo>,
    /// All that was mapped at some time: sorted and disjoint.
    pub mapped: Vec<Named>,
    /// Its rows.
    pub rows: u64,
    /// Its regions in all its rows.
    pub regions: u64,
}

impl Place {
    /// The mapped bytes, all together.
    pub fn bytes(&self) -> u64 {
        self.mapped.iter().map(|named| named.range.size()).sum()
    }
}

/// Finds what time and which memory a report is about: the first walk of every picture.
#[derive(Default)]
pub struct Survey {
    /// The targets in the order in which they appeared.
    pub places: Vec<Place>,
    /// The start and the end of the time that rows speak for.
    pub time: Option<(Duration, Duration)>,
    /// Snapshots with a row that was asked for.
    pub snapshots: u64,
    spaces: HashMap<TargetId, Space>,
    last: Option<Duration>,
}

impl Survey {
    /// The places, with all that was mapped in them; targets without mapped memory are left out.
    pub fn finish(mut self) -> Self {
        for place in &mut self.places {
            if let Some(space) = self.spaces.remove(&place.id) {
                place.mapped = space.into_named();
            }
        }
        self.places.retain(|place| !place.mapped.is_empty());
        self
    }
}

impl View for Survey {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if !seen.chosen {
            return Ok(());
        }
        let row = seen.row;
        let (start, end) = self.time.unwrap_or((seen.since, row.time));
        self.time = Some((start.min(seen.since), end.max(row.time)));
        self.snapshots += u64::from(self.last.replace(row.time) != Some(row.time));
        let place = match self.places.iter_mut().find(|place| place.id == row.target.id) {
            Some(place) => place,
            None => {
                let (id, info) = (row.target.id, row.info.clone());
                self.places.push(Place { id, info, mapped: vec![], rows: 0, regions: 0 });
                let last = self.places.len() - 1;
                &mut self.places[last]
            }
        };
        place.rows += 1;
        place.regions += row.target.regions.len() as u64;
        if !Arc::ptr_eq(&place.info, &row.info) {
            place.info = row.info.clone();
        }
        let space = self.spaces.entry(row.target.id).or_default();
        if space.changes(&row.target.mappings) {
            for (range, name) in seen.mapped() {
                space.map(range, &name);
            }
        }
        Ok(())
    }
}

/// The union of what was mapped over time; where something else was mapped later, that counts.
#[derive(Default)]
struct Space {
    pieces: BTreeMap<u64, (u64, Arc<str>)>,
    mappings: Option<Arc<[Mapping]>>,
}

impl Space {
    /// Whether these are other mappings than those before.
    fn changes(&mut self, mappings: &Arc<[Mapping]>) -> bool {
        let same = self.mappings.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, mappings) || seen == mappings);
        if !same {
            self.mappings = Some(mappings.clone());
        }
        !same
    }

    fn map(&mut self, range: AddrRange, name: &Arc<str>) {
        let (start, end) = (range.start(), range.end());
        if self.pieces.get(&start).is_some_and(|(e, n)| *e == end && n == name) {
            return;
        }
        // What begins before and reaches in keeps its part before, and its part after if it reaches beyond.
        if let Some((&s, (e, n))) = self.pieces.range(..start).next_back()
            && *e > start
        {
            let (e, n) = (*e, n.clone());
            self.pieces.insert(s, (start, n.clone()));
            if e > end {
                self.pieces.insert(end, (e, n));
            }
        }
        let inside: Vec<u64> = self.pieces.range(start..end).map(|(&s, _)| s).collect();
        for s in inside {
            if let Some((e, n)) = self.pieces.remove(&s)
                && e > end
            {
                self.pieces.insert(end, (e, n));
            }
        }
        self.pieces.insert(start, (end, name.clone()));
    }

    fn into_named(self) -> Vec<Named> {
        let mut all: Vec<Named> = vec![];
        for (start, (end, name)) in self.pieces {
            match all.last_mut() {
                Some(last) if last.range.end() == start && last.name == name => {
                    if let Some(range) = AddrRange::new(last.range.start(), end) {
                        last.range = range;
                    }
                }
                _ => all.extend(AddrRange::new(start, end).map(|range| Named { range, name })),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: u64, end: u64, name: &str) -> Named {
        Named { range: AddrRange::new(start, end).unwrap(), name: name.into() }
    }

    #[test]
    fn what_is_mapped_later_takes_the_place_of_what_was_there() {
        let mut space = Space::default();
        for (start, end, name) in [(0, 10, "a"), (20, 30, "b"), (5, 25, "c"), (7, 9, "a"), (30, 40, "b")] {
            space.map(AddrRange::new(start, end).unwrap(), &name.into());
        }
        assert_eq!(
            space.into_named(),
            [named(0, 5, "a"), named(5, 7, "c"), named(7, 9, "a"), named(9, 25, "c"), named(25, 40, "b")]
        );
    }
}
