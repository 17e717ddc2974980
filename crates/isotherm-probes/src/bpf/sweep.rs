//! Sweeps: clear the accessed bits of a large amount of private anonymous memory at once.
//!
//! Sweeps make the probe faster: after a sweep, samples find accesses only in memory that is in use, and not in all
//! memory that was ever used. Clearing a page in a sweep costs a sixtieth of clearing it alone. All memory is swept
//! when a target is added. Memory that comes later is swept by [block](BLOCK): once, when a sample in the block is
//! accessed for the first time. Pages that sweeps leave out are cleared one by one.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, push_joined};
use rustix::io::Errno;

use super::BpfError;
use super::find::{Finder, Place};
use super::folio::Folios;
use super::leaf::Extent;
use super::program::{Lookup, PageTables, Program};
use super::space::SpaceHandle;
use super::swept::{BLOCK, Swept};
use isotherm_kernel::HUGE;
use isotherm_kernel::madvise::{Advice, advise};

/// The amount of memory that is checked and cleared at once, in bytes: a multiple of a huge page. [`advise`] splits it
/// into calls that are short enough for the target.
const PIECE: u64 = 64 << 20;

/// The longest time that the sweeps of targets that were added together take (about 8 GiB), so that the monitor does
/// not wait for terabytes, or for a thousand processes.
pub(super) const LONGEST: Duration = Duration::from_millis(100);

/// The number of places in each 2 MiB that are checked for large folios.
const PLACES: usize = 3;

/// Sweeps the private anonymous memory of targets.
#[derive(Debug)]
pub(super) struct Sweeper<'a> {
    pub(super) program: &'a mut Program,
    pub(super) tables: &'a PageTables,
    pub(super) folios: &'a Folios,
    pub(super) allowance: &'a mut SweepCredit,
}

/// How many pages sweeps may clear: as many a second as the targets may set accessed bits again, and at the start those
/// of [`LENT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SweepCredit {
    /// The pages of a second.
    rate: f64,
    left: f64,
    at: Instant,
}

/// What sweeps may clear at once.
const LENT: Duration = Duration::from_secs(10);

impl SweepCredit {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, left: rate * LENT.as_secs_f64(), at: Instant::now() }
    }

    /// Takes as many of these pages as are allowed at `now`, in whole blocks if not all of them are.
    fn take(&mut self, pages: u64, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + self.rate * passed).min(self.rate * LENT.as_secs_f64());
        let allowed = (self.left as u64).min(pages);
        let taken = if allowed < pages { allowed - allowed % (BLOCK / PAGE_SIZE) } else { allowed };
        self.left -= taken as f64;
        taken
    }
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) enum SweepResult {
    /// The number of mappings in which something was cleared.
    Cleared(u64),
    /// The kernel does not permit it.
    Refused,
}

impl Sweeper<'_> {
    /// Sweeps the part of the block around `addr` that is in `mapping`.
    pub(super) fn block(
        &mut self,
        space: &SpaceHandle,
        mapping: &Mapping,
        addr: u64,
        swept: &mut Swept,
    ) -> Result<SweepResult, BpfError> {
        let start = addr - addr % BLOCK;
        let block =
            AddrRange::new(start, start.saturating_add(BLOCK)).and_then(|block| block.intersection(mapping.range));
        // The block is not tried again, whatever the result.
        swept.note_block(addr);
        match block {
            Some(block)
                if is_worth_it(mapping) && self.allowance.take(block.pages(), Instant::now()) == block.pages() =>
            {
                self.piece(space, block)
            }
            _ => Ok(SweepResult::Cleared(0)),
        }
    }

    /// Sweeps what has page tables in `mappings`, until `end` and within the allowance.
    pub(super) fn all(
        &mut self,
        space: &SpaceHandle,
        mappings: &[Mapping],
        end: Instant,
        swept: &mut Swept,
    ) -> Result<SweepResult, BpfError> {
        let mut cleared = 0;
        if Instant::now() >= end {
            return Ok(SweepResult::Cleared(0));
        }
        let mappings = || mappings.iter().filter(|mapping| is_worth_it(mapping));
        let mut places = Vec::new();
        let ranges = mappings().map(|mapping| mapping.range);
        Finder::default().find(self.program, self.tables, space.pgd(), ranges, &mut places)?;
        for mapping in mappings() {
            let mut any = false;
            for piece in pieces(&places, mapping.range) {
                let now = Instant::now();
                let taken = if now < end { self.allowance.take(piece.pages(), now) } else { 0 };
                let Some(piece) = AddrRange::new(piece.start(), piece.start() + taken * PAGE_SIZE) else { break };
                match self.piece(space, piece)? {
                    SweepResult::Cleared(0) => {}
                    SweepResult::Cleared(_) => any = true,
                    SweepResult::Refused => return Ok(SweepResult::Refused),
                }
                swept.note(piece);
            }
            cleared += u64::from(any);
        }
        Ok(SweepResult::Cleared(cleared))
    }

    /// Sweeps a piece of one mapping.
    fn piece(&mut self, space: &SpaceHandle, piece: AddrRange) -> Result<SweepResult, BpfError> {
        let ranges = self.without_broken_huge_pages(space, piece)?;
        if ranges.is_empty() {
            return Ok(SweepResult::Cleared(0));
        }
        match advise(space.pidfd(), ranges, Advice::Cold) {
            Ok(_) => Ok(SweepResult::Cleared(1)),
            Err(Errno::PERM) => Ok(SweepResult::Refused),
            // The mapping is locked, or it has been removed, or the process has ended.
            Err(_) => Ok(SweepResult::Cleared(0)),
        }
    }

    /// The parts of `piece` without huge pages that are mapped page by page: a clear might split those. Such a huge
    /// page is the result of unmapping or protecting a part of it.
    fn without_broken_huge_pages(&mut self, space: &SpaceHandle, piece: AddrRange) -> Result<Vec<AddrRange>, BpfError> {
        let stretches: Vec<AddrRange> = piece.pieces(HUGE).collect();
        let lookup = |addr| Lookup { pgd: space.pgd(), addr };
        let lookups: Vec<Lookup> = stretches.iter().flat_map(|stretch| ends_and_middle(*stretch)).map(lookup).collect();
        let mut leaves = Vec::with_capacity(lookups.len());
        self.program.walk(self.tables, lookups.iter().copied(), &mut leaves)?;

        let mut kept: Vec<AddrRange> = Vec::new();
        for (i, &stretch) in stretches.iter().enumerate() {
            let looked_at = i * PLACES..(i + 1) * PLACES;
            let broken = lookups[looked_at.clone()].iter().zip(&leaves[looked_at]).any(|(lookup, leaf)| {
                leaf.extent() == Some(Extent::Page)
                    && leaf.frame(lookup.addr).is_some_and(|frame| self.folios.is_large(frame))
            });
            if broken {
                continue;
            }
            push_joined(&mut kept, stretch);
        }
        Ok(kept)
    }
}

/// The parts of `range` in `places`, which are sorted: neighbours together, as many as one call clears.
fn pieces(places: &[Place], range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let from = places.partition_point(|place| place.start + BLOCK <= range.start());
    let mut places = places[from..].iter().map(|place| place.start).take_while(move |&start| start < range.end());
    let mut next = places.next();
    std::iter::from_fn(move || {
        let start = next?;
        let mut end = start + BLOCK;
        next = places.next();
        while next == Some(end) && end - start < PIECE {
            end += BLOCK;
            next = places.next();
        }
        AddrRange::new(start, end)?.intersection(range)
    })
}

/// The first, the middle and the last page of a range.
fn ends_and_middle(range: AddrRange) -> [u64; PLACES] {
    let last = range.pages().saturating_sub(1);
    [0, last / 2, last].map(|page| range.start() + page * PAGE_SIZE)
}

fn is_worth_it(mapping: &Mapping) -> bool {
    let anonymous = matches!(&*mapping.name, "" | "[heap]" | "[stack]") || mapping.name.starts_with("[anon:");
    !mapping.permissions.shared && anonymous
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::find::MappedBy;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn the_checked_places_are_in_the_range() {
        assert_eq!(ends_and_middle(range(0x1000, 0x2000)), [0x1000; 3]);
        assert_eq!(ends_and_middle(range(0, HUGE)), [0, 0xf_f000, 0x1f_f000]);
    }

    #[test]
    fn a_sweep_takes_only_what_has_page_tables_in_pieces_of_one_call() {
        let at = |block: u64| Place { start: block * BLOCK, by: MappedBy::Table };
        let mut places: Vec<Place> = [1, 2, 3, 7].map(at).into();
        places.extend((100..140).map(at));
        let of = |start, end| pieces(&places, range(start, end)).collect::<Vec<_>>();
        // The first block and the last one are in part of other mappings.
        assert_eq!(
            of(BLOCK + 0x1000, 7 * BLOCK + 0x3000),
            [range(BLOCK + 0x1000, 4 * BLOCK), range(7 * BLOCK, 7 * BLOCK + 0x3000)]
        );
        assert_eq!(of(4 * BLOCK, 7 * BLOCK), []);
        assert_eq!(of(90 * BLOCK, 1 << 40), [range(100 * BLOCK, 132 * BLOCK), range(132 * BLOCK, 140 * BLOCK)]);
    }

    #[test]
    fn sweeps_clear_what_targets_may_set_again_in_ten_seconds_and_then_what_they_may_since() {
        let mut allowance = SweepCredit::new(1000.0);
        let start = allowance.at;
        assert_eq!([3000, 6500, 3000].map(|pages| allowance.take(pages, start)), [3000, 6500, 0], "512 are a block");
        assert_eq!(allowance.take(4000, start + Duration::from_secs(3)), 3072);
        assert_eq!(allowance.take(20_000, start + Duration::from_secs(3600)), 9728);
        let mut all = SweepCredit::new(f64::INFINITY);
        assert_eq!([all.take(1 << 40, start), all.take(1 << 40, start)], [1 << 40; 2]);
    }

    #[test]
    fn only_private_anonymous_memory_is_swept() {
        let mapping = |shared, name: &str| {
            let mut mapping = Mapping { name: name.into(), ..Mapping::anonymous(range(0, 1 << 30)) };
            mapping.permissions.shared = shared;
            mapping
        };
        for name in ["", "[heap]", "[stack]", "[anon:arena]"] {
            assert!(is_worth_it(&mapping(false, name)), "{name}");
            assert!(!is_worth_it(&mapping(true, name)), "{name}");
        }
        for name in ["/usr/lib/libc.so.6", "[vdso]", "[anon_shmem:x]"] {
            assert!(!is_worth_it(&mapping(false, name)), "{name}");
        }
    }
}
