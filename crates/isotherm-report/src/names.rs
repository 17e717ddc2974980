//! A bound on the names of mappings that a report tells apart.
//!
//! A process chooses what its mappings are called, and so does the author of a recording. Reports have sums for each
//! name, so that a small file with millions of names would take gigabytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Mapping, TargetId};

/// The most names that are told apart: about as many mappings as Linux lets a process have (`vm.max_map_count`).
const MOST_NAMES: usize = 1 << 16;
/// The most bytes that these names have together.
const MOST_BYTES: usize = 32 << 20;
/// The name of all mappings with further names.
const OTHERS: &str = "[other names]";

/// The names of the mappings of one walk. The first ones are kept, and all further ones are one name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashSet<Arc<str>>,
    bytes: usize,
    /// The mappings of the targets at `time` and at the time before.
    lists: HashMap<TargetId, List>,
    time: Duration,
}

/// The mappings of a target.
#[derive(Debug)]
struct List {
    recorded: Arc<[Mapping]>,
    /// The same with the names that are told apart.
    told: Arc<[Mapping]>,
    /// The last time that had the target.
    seen: Duration,
}

impl Names {
    /// The mappings of a target at `time`, with the names that are told apart. Equal lists stay one list, as long as
    /// the target is there.
    pub(crate) fn tell(&mut self, time: Duration, target: TargetId, mappings: &Arc<[Mapping]>) -> Arc<[Mapping]> {
        if time > self.time {
            let last = self.time;
            self.lists.retain(|_, list| list.seen == last);
            self.time = time;
        }
        if let Some(list) = self.lists.get_mut(&target)
            && Arc::ptr_eq(&list.recorded, mappings)
        {
            list.seen = time;
            return Arc::clone(&list.told);
        }
        let told = self.cut(mappings);
        let list = List { recorded: Arc::clone(mappings), told: Arc::clone(&told), seen: time };
        self.lists.insert(target, list);
        told
    }

    fn cut(&mut self, mappings: &Arc<[Mapping]>) -> Arc<[Mapping]> {
        let others = mappings.iter().filter(|mapping| !self.knows(&mapping.label())).count();
        if others == 0 {
            return Arc::clone(mappings);
        }
        let name: Arc<str> = OTHERS.into();
        let told = |mapping: &Mapping| match self.known.contains(&mapping.label()) {
            true => mapping.clone(),
            false => Mapping { name: Arc::clone(&name), node: None, ..mapping.clone() },
        };
        mappings.iter().map(told).collect()
    }

    /// Whether a name is one of those that are told apart. A new one becomes one of them if there is room.
    fn knows(&mut self, name: &Arc<str>) -> bool {
        if self.known.contains(name) {
            return true;
        }
        let has_room = self.known.len() < MOST_NAMES && self.bytes + name.len() <= MOST_BYTES;
        if has_room {
            self.bytes += name.len();
            self.known.insert(Arc::clone(name));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{AddrRange, PAGE_SIZE};

    use super::*;

    fn mappings(names: impl Iterator<Item = String>) -> Arc<[Mapping]> {
        let range = |nth: u64| AddrRange::new(nth * PAGE_SIZE, (nth + 1) * PAGE_SIZE).unwrap();
        (0..).zip(names).map(|(nth, name)| Mapping { name: name.into(), ..Mapping::anonymous(range(nth)) }).collect()
    }

    #[test]
    fn names_are_told_apart_up_to_a_bound() {
        let (mut names, target) = (Names::default(), TargetId::process(1, Duration::ZERO));
        let few = mappings(["", "/bin/x", "/bin/x"].into_iter().map(str::to_owned));
        assert!(Arc::ptr_eq(&names.tell(Duration::ZERO, target, &few), &few));
        let many = mappings((0..2 * MOST_NAMES).map(|nth| format!("/{nth}")));
        let told = names.tell(Duration::from_secs(1), target, &many);
        let different: HashSet<&str> = told.iter().map(|mapping| &*mapping.name).collect();
        assert_eq!((different.len(), &*told[0].name, &*told[told.len() - 1].name), (MOST_NAMES - 1, "/0", OTHERS));
        assert!(Arc::ptr_eq(&names.tell(Duration::from_secs(2), target, &many), &told));
        // What was told apart stays so.
        assert!(Arc::ptr_eq(&names.tell(Duration::from_secs(3), target, &few), &few));
    }

    #[test]
    fn the_bytes_of_names_have_a_bound() {
        let long = "d".repeat(1 << 20);
        let many = mappings((0..40).map(|nth| format!("{long}{nth}")));
        let told = Names::default().tell(Duration::ZERO, TargetId::PhysicalMemory, &many);
        assert_eq!(told.iter().filter(|mapping| &*mapping.name != OTHERS).count(), 31);
    }
}
