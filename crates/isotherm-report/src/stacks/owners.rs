//! Which stack the memory at an address belongs to, at any time: the one that mapped it last.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Allocation, StackId, TargetId};
use rangemap::RangeMap;

/// The stacks that mapped memory, over time.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    calls: HashMap<TargetId, Vec<Call>>,
    bytes: usize,
}

/// When a call was made, what it mapped, and from where.
type Call = (Duration, AddrRange, Option<StackId>);

/// What a target takes, apart from its calls: its entry, and the room for the first calls.
const BYTES_OF_TARGET: usize = 256;

impl Owners {
    /// Adds a call. Those of a target come in the order of time.
    pub(crate) fn add(&mut self, call: &Allocation) {
        let calls = self.calls.entry(call.target).or_default();
        self.bytes += size_of::<Call>() + if calls.is_empty() { BYTES_OF_TARGET } else { 0 };
        calls.push((call.time, call.range, call.stack));
    }

    /// About how many bytes the calls take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Each stack of each target, once.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (TargetId, StackId)> {
        self.calls.iter().flat_map(|(target, calls)| {
            let stacks: HashSet<StackId> = calls.iter().filter_map(|(_, _, stack)| *stack).collect();
            stacks.into_iter().map(move |stack| (*target, stack))
        })
    }
}

/// The maps of all targets, which go forward in time.
#[derive(Debug, Default)]
pub(crate) struct OwnerMaps {
    owners: Arc<Owners>,
    /// The map of each target, and how many of its calls are in it.
    maps: HashMap<TargetId, (usize, OwnerMap)>,
}

impl OwnerMaps {
    pub(crate) fn new(owners: &Arc<Owners>) -> Self {
        Self { owners: Arc::clone(owners), maps: HashMap::new() }
    }

    /// The map of a target at a time, which is not before that of the last call for it.
    pub(crate) fn at(&mut self, target: TargetId, time: Duration) -> &OwnerMap {
        let (done, map) = self.maps.entry(target).or_default();
        let calls = self.owners.calls.get(&target).map_or(&[][..], |calls| calls);
        let due = calls[*done..].iter().take_while(|(made, ..)| *made <= time);
        for (_, range, stack) in due {
            map.set(*range, *stack);
            *done += 1;
        }
        map
    }
}

/// Which stack each address of a target belongs to.
#[derive(Debug, Default)]
pub(crate) struct OwnerMap {
    ranges: RangeMap<u64, StackId>,
}

impl OwnerMap {
    /// Says that a range belongs to a stack from now on; to none if that is not known.
    fn set(&mut self, range: AddrRange, stack: Option<StackId>) {
        match stack {
            Some(stack) => self.ranges.insert(range.into(), stack),
            None => self.ranges.remove(range.into()),
        }
    }

    /// The parts of a range that belong to one stack each, in the order of addresses.
    pub(crate) fn parts(&self, range: AddrRange) -> Vec<(AddrRange, Option<StackId>)> {
        let (mut parts, mut at) = (Vec::new(), range.start());
        for (known, &stack) in self.ranges.overlapping(Range::from(range)) {
            let Some(part) = AddrRange::new(known.start, known.end).and_then(|known| known.intersection(range)) else {
                continue;
            };
            parts.extend(AddrRange::new(at, part.start()).map(|gap| (gap, None)));
            parts.push((part, Some(stack)));
            at = part.end();
        }
        parts.extend(AddrRange::new(at, range.end()).map(|gap| (gap, None)));
        parts
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::MappingCall;
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn memory_belongs_to_the_last_call_that_mapped_it_by_then() {
        let target = TargetId::process(1, Duration::ZERO);
        let mut owners = Owners::default();
        for (seconds, from, to, stack) in [(1, 10, 50, Some(0)), (2, 20, 30, Some(1)), (4, 0, 100, None)] {
            let (time, call) = (Duration::from_secs(seconds), MappingCall::Mmap);
            owners.add(&Allocation { time, target, call, range: range(from, to), stack });
        }
        let mut maps = OwnerMaps::new(&Arc::new(owners));
        let mut at = |seconds| maps.at(target, Duration::from_secs(seconds)).parts(range(5, 60));
        assert_eq!(at(0), [(range(5, 60), None)]);
        assert_eq!(at(1), [(range(5, 10), None), (range(10, 50), Some(0)), (range(50, 60), None)]);
        let parts: Vec<_> = at(3).into_iter().map(|(part, stack)| (part.size(), stack)).collect();
        assert_eq!(parts, [(5, None), (10, Some(0)), (10, Some(1)), (20, Some(0)), (10, None)]);
        assert_eq!(at(4), [(range(5, 60), None)]);
    }

    proptest! {
        #[test]
        fn the_map_is_what_an_array_of_all_addresses_is(calls: Vec<(u8, u8, Option<u8>)>) {
            let (mut map, mut array) = (OwnerMap::default(), [None; 512]);
            for (start, len, stack) in calls {
                let (start, end) = (u64::from(start), u64::from(start) + u64::from(len) + 1);
                let stack = stack.map(StackId::from);
                map.set(range(start, end), stack);
                array[start as usize..end as usize].fill(stack);
            }
            let mut next = 0;
            for (part, stack) in map.parts(range(0, 512)) {
                prop_assert_eq!(part.start(), next);
                prop_assert!(array[part.start() as usize..part.end() as usize].iter().all(|owner| *owner == stack));
                next = part.end();
            }
            prop_assert_eq!(next, 512);
        }
    }
}
