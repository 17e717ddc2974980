//! Where else targets map the memory of an action, and for how long it has been idle there.

use std::collections::HashMap;
use std::time::Duration;

use crate::{AddrRange, FileId, Mapping, Snapshot, TargetId};

/// What a snapshot knows of the other places at which targets map some memory.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere<'a> {
    snapshot: &'a Snapshot,
    age: Duration,
}

/// Idle pages at another place, which may be the same as those of the action. Their page frames tell whether they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePlace {
    /// The target that maps them.
    pub target: TargetId,
    /// Their addresses there.
    pub range: AddrRange,
    /// What is added to such an address, modulo 2^64, to get the address of the same page in the action.
    pub shift: u64,
}

impl<'a> Elsewhere<'a> {
    /// The other places in `snapshot`, where memory counts as idle if surveys have found it idle for `age`.
    pub const fn new(snapshot: &'a Snapshot, age: Duration) -> Self {
        Self { snapshot, age }
    }

    /// The idle pages that may be the same as those in `ranges` of `target`, which are sorted and disjoint: what lies
    /// at the same place of the same file or shared memory, and what lies at the same address in private memory, as
    /// after a fork. Without surveys, no memory is known to be idle.
    pub fn idle_places(&self, target: TargetId, ranges: &[AddrRange]) -> Vec<IdlePlace> {
        let mut places = Vec::new();
        let Some(own) = self.snapshot.targets.iter().find(|of| of.id == target) else { return places };
        let (files, private) = by_file(&own.mappings, ranges);
        if files.is_empty() && private.is_empty() {
            return places;
        }
        for other in &self.snapshot.targets {
            let Some(history) = self.snapshot.history(other.id) else { continue };
            let mut add = |here: AddrRange, there: &Mapping, shift: u64| {
                let moved = AddrRange::new(here.start().wrapping_sub(shift), here.end().wrapping_sub(shift));
                let is_elsewhere = shift != 0 || other.id != target;
                let Some(same) = moved.and_then(|same| same.intersection(there.range)).filter(|_| is_elsewhere) else {
                    return;
                };
                let idle = history.idle_ranges(same, self.age).into_iter();
                places.extend(idle.map(|(range, _)| IdlePlace { target: other.id, range, shift }));
            };
            for there in &*other.mappings {
                match there.file {
                    Some(file) => {
                        for (here, shift) in files.get(&file.id).into_iter().flatten() {
                            add(*here, there, file.shift.wrapping_sub(*shift));
                        }
                    }
                    None => parts(&private, there.range).for_each(|here| add(here, there, 0)),
                }
            }
        }
        places
    }
}

/// The parts of some ranges that lie in files, each with the shift of its mapping, and those that lie in none.
type ByFile = (HashMap<FileId, Vec<(AddrRange, u64)>>, Vec<AddrRange>);

/// The parts of `ranges`, which are sorted and disjoint, in these mappings.
fn by_file(mappings: &[Mapping], ranges: &[AddrRange]) -> ByFile {
    let (mut files, mut private): ByFile = (HashMap::new(), Vec::new());
    for mapping in mappings {
        match mapping.file {
            None => private.extend(parts(ranges, mapping.range)),
            Some(file) => {
                let mut here = parts(ranges, mapping.range).map(|part| (part, file.shift)).peekable();
                if here.peek().is_some() {
                    files.entry(file.id).or_default().extend(here);
                }
            }
        }
    }
    (files, private)
}

/// The parts of `ranges`, which are sorted and disjoint, in another range.
fn parts(ranges: &[AddrRange], within: AddrRange) -> impl Iterator<Item = AddrRange> {
    let from = ranges.partition_point(|range| range.end() <= within.start());
    ranges[from..].iter().map_while(move |range| range.intersection(within))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::survey::{BlockPages, ClearPages, PageBits, PageHistory};
    use crate::{MappedFile, PAGE_SIZE, TargetSnapshot};

    fn pages(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
    }

    fn of_file(inode: u64, range: AddrRange, first_page: u64) -> Mapping {
        let id = FileId { device: (8, 1), inode };
        let shift = (first_page * PAGE_SIZE).wrapping_sub(range.start());
        Mapping { file: Some(MappedFile { id, shift }), ..Mapping::anonymous(range) }
    }

    fn process(pid: u32) -> TargetId {
        TargetId::process(pid, Duration::ZERO)
    }

    /// Processes 1, 2, … with these mappings. Surveys, one a second for 4 s, have found these pages accessed each time.
    fn snapshot<const N: usize>(of: [(Vec<Mapping>, PageBits); N]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (pid, (mappings, accessed)) in (1..).zip(of) {
            let mut history = PageHistory::default();
            let found = BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
            for second in 0..5 {
                history.take(&[found], Duration::from_secs(second));
                history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
            }
            let (id, mappings) = (process(pid), mappings.into());
            snapshot.targets.push(TargetSnapshot { id, regions: Vec::new(), mappings });
            snapshot.histories.push((id, Arc::new(history)));
        }
        snapshot
    }

    /// The idle places of pages 0 to 9 of process 1: the process, its pages, and the page here of the first of them.
    fn places(snapshot: &Snapshot) -> Vec<(u32, u64, u64, u64)> {
        let elsewhere = Elsewhere::new(snapshot, Duration::from_secs(3));
        let found = elsewhere.idle_places(process(1), &[pages(0, 10)]);
        let place = |of: &IdlePlace| {
            let [start, end] = [of.range.start(), of.range.end()].map(|addr| addr / PAGE_SIZE);
            (of.target.pid().unwrap(), start, end, of.range.start().wrapping_add(of.shift) / PAGE_SIZE)
        };
        found.iter().map(place).collect()
    }

    #[test]
    fn a_file_is_found_by_its_pages_at_whatever_address() {
        let here = || of_file(7, pages(0, 10), 20);
        let twice = of_file(7, pages(50, 54), 26);
        let there = vec![of_file(7, pages(100, 110), 25), of_file(8, pages(200, 210), 20)];
        let both = snapshot([(vec![here(), twice], PageBits::NONE), (there, PageBits::NONE)]);
        assert_eq!(places(&both), [(1, 50, 54, 6), (2, 100, 105, 5)]);
        let anonymous = Mapping::anonymous(pages(0, 10));
        assert_eq!(places(&snapshot([(vec![here()], PageBits::NONE), (vec![anonymous], PageBits::NONE)])), []);
    }

    #[test]
    fn private_memory_is_found_at_its_address_where_it_is_idle() {
        let memory = || vec![Mapping::anonymous(pages(0, 100))];
        let both = snapshot([(memory(), PageBits::NONE), (memory(), PageBits::of(3..6))]);
        assert_eq!(places(&both), [(2, 0, 3, 0), (2, 6, 10, 6)]);
        let unsurveyed = Snapshot { histories: Vec::new(), ..both };
        assert_eq!(places(&unsurveyed), []);
    }
}
