//! What a report keeps of mappings: by name, and where the mappings of each target have their place among the names.

use std::collections::HashMap;
use std::sync::Arc;

use isotherm_core::{Mapping, TargetId, TargetSnapshot};

/// Something for each name, in the order in which the names appear.
#[derive(Debug)]
pub(crate) struct ByName<T> {
    all: Vec<(Arc<str>, T)>,
    places: HashMap<Arc<str>, usize>,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Default> ByName<T> {
    /// The place of a name, which is new if it has none yet.
    pub(crate) fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let name: Arc<str> = name.into();
        self.all.push((Arc::clone(&name), T::default()));
        self.places.insert(name, self.all.len() - 1);
        self.all.len() - 1
    }

    /// What the name at a place has.
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut T> {
        self.all.get_mut(place).map(|(_, of)| of)
    }

    /// The names, each with what it has.
    pub(crate) fn into_all(self) -> Vec<(Arc<str>, T)> {
        self.all
    }
}

/// Something for each mapping of each target, as long as its mappings stay the same.
#[derive(Debug)]
pub(crate) struct OfMappings<T>(HashMap<TargetId, OfTarget<T>>);

/// The mappings of a target, and what each of them has.
#[derive(Debug)]
struct OfTarget<T> {
    mappings: Arc<[Mapping]>,
    known: Vec<Option<T>>,
}

impl<T> Default for OfMappings<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Default for OfTarget<T> {
    fn default() -> Self {
        Self { mappings: Arc::default(), known: Vec::new() }
    }
}

impl<T> OfMappings<T> {
    /// What the mappings of a target have, by their places. What is not known yet is `None`.
    pub(crate) fn of(&mut self, target: &TargetSnapshot) -> &mut [Option<T>] {
        let OfTarget { mappings, known } = self.0.entry(target.id).or_default();
        if !Arc::ptr_eq(mappings, &target.mappings) {
            *mappings = Arc::clone(&target.mappings);
            known.clear();
            known.resize_with(mappings.len(), || None);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{AddrRange, PAGE_SIZE};

    use super::*;

    #[test]
    fn what_is_known_of_mappings_is_forgotten_with_them() {
        let mappings = |count: u64| -> Arc<[Mapping]> {
            let range = |nth| AddrRange::new(nth * PAGE_SIZE, (nth + 1) * PAGE_SIZE).unwrap();
            (0..count).map(|nth| Mapping::anonymous(range(nth))).collect()
        };
        let snapshot =
            |id, mappings: &Arc<[Mapping]>| TargetSnapshot { id, regions: vec![], mappings: mappings.clone() };
        let (one, other) = (TargetId::PhysicalMemory, TargetId::process(1, std::time::Duration::ZERO));
        let (two, three) = (mappings(2), mappings(3));
        let mut known = OfMappings::default();
        known.of(&snapshot(one, &two))[1] = Some('a');
        known.of(&snapshot(other, &two))[0] = Some('b');
        assert_eq!(known.of(&snapshot(one, &two)), [None, Some('a')]);
        assert_eq!(known.of(&snapshot(one, &three)), [None, None, None]);
        assert_eq!(known.of(&snapshot(other, &two)), [Some('b'), None]);
    }
}
