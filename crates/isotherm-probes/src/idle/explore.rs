//! Which blocks of a process a survey reads.
//!
//! `/proc/PID/pagemap` has an entry for each page of address space, present or not. Some programs map terabytes of it.
//! Therefore a survey reads only the smallest mappings whole, up to 16 GiB in all. In larger mappings it reads the
//! blocks that had pages at the last survey, and some of the other blocks, in turns. Space without permission comes
//! last, and has turns of its own: most of it is reserved, but a process may have filled it before.

use std::collections::BTreeSet;

use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{AddrRange, Mapping};

use crate::mapping::is_memory;

/// The mappings that are read whole have at most so many bytes together. To read so much empty space takes some 10 ms.
const WHOLE: u64 = 16 << 30;

/// How many blocks of the others the first survey of a process reads: 64 GiB of address space.
const FIRST: usize = 32 << 10;

/// How many of them each later survey reads, besides those known to have pages: 4 GiB.
const LATER: usize = 2 << 10;

/// The blocks of a process.
#[derive(Debug, Default)]
pub(super) struct Explored {
    /// The addresses of the blocks that had pages, in memory or in swap, when they were read last.
    known: BTreeSet<u64>,
    /// The turns of large mappings that the process may access, and of those without permission.
    turns: [Turns; 2],
}

/// The turns of the blocks of large mappings.
#[derive(Debug, Default)]
struct Turns {
    /// Where the next survey continues.
    next: u64,
    was_read: bool,
}

impl Explored {
    /// Puts the addresses of the blocks to read into `blocks`, in rising order.
    pub(super) fn plan(&mut self, mappings: &[Mapping], blocks: &mut Vec<u64>) {
        blocks.clear();
        let mut memory: Vec<&Mapping> = mappings.iter().filter(|mapping| is_memory(mapping)).collect();
        let size = |mapping: &&Mapping| mapping.range.size();
        let mut large = Vec::new();
        if memory.iter().map(size).sum::<u64>() > WHOLE {
            memory.sort_unstable_by_key(|of| (!of.permissions.any(), of.range.size(), of.range.start()));
            let mut left = WHOLE;
            let fits = |mapping: &&Mapping| left.checked_sub(size(mapping)).map(|rest| left = rest).is_some();
            (memory, large) = memory.into_iter().partition(fits);
            large.sort_unstable_by_key(|mapping| mapping.range.start());
        }
        blocks.extend(memory.iter().flat_map(|mapping| blocks_of(mapping.range)));
        blocks.extend(large.iter().flat_map(|of| self.known.range(first(of.range)..of.range.end())));
        let (usable, reserved): (Vec<_>, Vec<_>) = large.into_iter().partition(|mapping| mapping.permissions.any());
        for (turns, large) in self.turns.iter_mut().zip([usable, reserved]) {
            turns.take(large.iter().map(|mapping| mapping.range), &self.known, blocks);
        }
        blocks.sort_unstable();
        blocks.dedup();
        self.known.clear();
    }

    /// The block at this address has pages.
    pub(super) fn note(&mut self, block: u64) {
        self.known.insert(block);
    }
}

impl Turns {
    /// Adds the next blocks of large mappings, which are sorted by address, without those that are `known`.
    fn take(&mut self, large: impl Iterator<Item = AddrRange> + Clone, known: &BTreeSet<u64>, blocks: &mut Vec<u64>) {
        let most = if self.was_read { LATER } else { FIRST };
        self.was_read = true;
        let from = self.next;
        let all = || large.clone().flat_map(blocks_of);
        let after = all().skip_while(|&block| block < from);
        let turn = after.chain(all().take_while(|&block| block < from)).filter(|block| !known.contains(block));
        let before = blocks.len();
        blocks.extend(turn.take(most));
        self.next = blocks[before..].last().map_or(0, |last| last.saturating_add(BLOCK_SIZE));
    }
}

/// The address of the block in which a range begins.
fn first(range: AddrRange) -> u64 {
    range.start() - range.start() % BLOCK_SIZE
}

/// The addresses of the blocks that have a part of a range.
pub(super) fn blocks_of(range: AddrRange) -> impl Iterator<Item = u64> {
    (first(range)..range.end()).step_by(BLOCK_SIZE as usize)
}

#[cfg(test)]
mod tests {
    use isotherm_core::Permissions;

    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping::anonymous(AddrRange::new(start, end).unwrap())
    }

    fn plan(explored: &mut Explored, mappings: &[Mapping]) -> Vec<u64> {
        let mut blocks = Vec::new();
        explored.plan(mappings, &mut blocks);
        blocks
    }

    #[test]
    fn a_small_process_is_read_whole_every_time() {
        let none = without_permission(20 * BLOCK_SIZE, 21 * BLOCK_SIZE);
        let mappings =
            [mapping(4096, 8192), mapping(8192, BLOCK_SIZE + 4096), none, mapping(40 * BLOCK_SIZE, 41 * BLOCK_SIZE)];
        let mut explored = Explored::default();
        for _ in 0..3 {
            assert_eq!(plan(&mut explored, &mappings), [0, BLOCK_SIZE, 20 * BLOCK_SIZE, 40 * BLOCK_SIZE]);
            explored.note(BLOCK_SIZE);
        }
    }

    fn without_permission(start: u64, end: u64) -> Mapping {
        Mapping { permissions: Permissions::NONE, ..mapping(start, end) }
    }

    #[test]
    fn reserved_space_takes_no_turn_from_memory_that_may_be_accessed() {
        let (accessible, reserved) = (40_000, 1_000_000);
        let small = without_permission(0, BLOCK_SIZE);
        let large = mapping(BLOCK_SIZE, (1 + accessible) * BLOCK_SIZE);
        let reserved = without_permission(2 * accessible * BLOCK_SIZE, (2 * accessible + reserved) * BLOCK_SIZE);
        let mappings = [small, large.clone(), reserved.clone()];
        let mut explored = Explored::default();
        let planned: Vec<_> = (0..5).map(|_| plan(&mut explored, &mappings)).collect();
        let seen: BTreeSet<u64> = planned.iter().flatten().copied().collect();
        assert_eq!(seen.iter().filter(|block| large.range.contains(**block)).count() as u64, accessible);
        // The reservation is read all the same, a part at a time.
        let of_it = |blocks: &Vec<u64>| blocks.iter().filter(|block| reserved.range.contains(**block)).count();
        assert_eq!(planned.iter().map(of_it).collect::<Vec<_>>(), [FIRST, LATER, LATER, LATER, LATER]);
    }

    #[test]
    fn of_a_reservation_each_block_has_its_turn_and_known_blocks_are_read_every_time() {
        let blocks = 100_000;
        let end = BLOCK_SIZE * (1 + blocks);
        let small = mapping(end + BLOCK_SIZE, end + 2 * BLOCK_SIZE);
        let mappings = [mapping(BLOCK_SIZE, end), small.clone()];
        let mut explored = Explored::default();
        let known = BLOCK_SIZE * 7;
        let mut seen = BTreeSet::new();
        for survey in 0..40 {
            let planned = plan(&mut explored, &mappings);
            assert!(planned.len() <= (if survey == 0 { FIRST } else { LATER }) + 2);
            assert!(planned.is_sorted_by(|a, b| a < b));
            assert!(planned.contains(&known) && planned.contains(&small.range.start()));
            explored.note(known);
            seen.extend(planned);
        }
        assert_eq!(seen.len() as u64, blocks + 1);
    }
}
