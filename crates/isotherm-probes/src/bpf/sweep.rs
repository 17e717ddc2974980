//! Sweeps: accessed bits cleared of a lot of private anonymous memory at once.
//!
//! They are for speed only, so that samples find accessed what is in use and not what was ever used: a page swept along with
//! its neighbours costs a sixtieth of a page cleared alone. All memory is swept at a target's start, and what comes later a
//! [block](BLOCK) at a time, once, when a sample is first found accessed in it. What sweeps leave out is cleared page by page.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE};
use rustix::io::Errno;

use super::BpfError;
use super::folio::Folios;
use super::leaf::Extent;
use super::program::{PageTables, Place, Program};
use super::space::Space;
use super::swept::{BLOCK, Swept};
use isotherm_kernel::HUGE;
use isotherm_kernel::madvise::{Advice, advise};

/// So much is cleared by one call, for which the kernel holds the target's map: about a millisecond if all of it
/// was accessed. It is a multiple of a huge page.
const PIECE: u64 = 64 << 20;

/// A mapping over this size is left out: it is a reservation, whose few used pages are not worth looking for.
const LARGEST: u64 = 4 << 40;

/// After this time the clear ends, wherever it is (about 8 GiB far): the monitor is not to wait for terabytes.
const LONGEST: Duration = Duration::from_millis(100);

/// In each stretch of a huge page's size, so many places are looked at for parts of large folios.
const PLACES: usize = 3;

/// Clears the accessed bits of a target's private anonymous memory.
#[derive(Debug)]
pub(super) struct Sweeper<'a> {
    pub(super) program: &'a mut Program,
    pub(super) tables: &'a PageTables,
    pub(super) folios: &'a Folios,
}

/// What came of a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Came {
    /// Something was cleared of so many mappings.
    Cleared(u64),
    /// The kernel does not allow it.
    Refused,
}

impl Sweeper<'_> {
    /// Sweeps the block that `addr` lies in, as far as it is of this mapping.
    pub(super) fn block(
        &mut self,
        space: &Space,
        mapping: &Mapping,
        addr: u64,
        swept: &mut Swept,
    ) -> Result<Came, BpfError> {
        let start = addr - addr % BLOCK;
        let block =
            AddrRange::new(start, start.saturating_add(BLOCK)).and_then(|block| block.intersection(mapping.range));
        // Whatever comes of it, it is not tried again.
        swept.note_block(addr);
        match block {
            Some(block) if is_worth_it(mapping) => self.piece(space, block),
            _ => Ok(Came::Cleared(0)),
        }
    }

    /// Sweeps what it may of all `mappings`.
    pub(super) fn all(&mut self, space: &Space, mappings: &[Mapping], swept: &mut Swept) -> Result<Came, BpfError> {
        let began = Instant::now();
        let mut cleared = 0;
        for mapping in mappings.iter().filter(|mapping| is_worth_it(mapping)) {
            let mut any = false;
            for piece in mapping.range.pieces(PIECE).take_while(|_| began.elapsed() < LONGEST) {
                match self.piece(space, piece)? {
                    Came::Cleared(0) => {}
                    Came::Cleared(_) => any = true,
                    Came::Refused => return Ok(Came::Refused),
                }
                swept.note(piece);
            }
            cleared += u64::from(any);
        }
        Ok(Came::Cleared(cleared))
    }

    /// Sweeps a piece of one mapping.
    fn piece(&mut self, space: &Space, piece: AddrRange) -> Result<Came, BpfError> {
        let ranges = self.without_broken_huge_pages(space, piece)?;
        if ranges.is_empty() {
            return Ok(Came::Cleared(0));
        }
        match advise(space.pidfd(), ranges, Advice::Cold) {
            Ok(_) => Ok(Came::Cleared(1)),
            Err(Errno::PERM) => Ok(Came::Refused),
            // A locked mapping, or one that has gone, alone or with its process.
            Err(_) => Ok(Came::Cleared(0)),
        }
    }

    /// The stretches of `piece` without huge pages that are mapped page by page, which might be split. Such a page is
    /// what is left after a part of a huge page was unmapped or protected.
    fn without_broken_huge_pages(&mut self, space: &Space, piece: AddrRange) -> Result<Vec<AddrRange>, BpfError> {
        let stretches: Vec<AddrRange> = piece.pieces(HUGE).collect();
        let place = |addr| Place { pgd: space.pgd(), addr };
        let places: Vec<Place> = stretches.iter().flat_map(|stretch| ends_and_middle(*stretch)).map(place).collect();
        let mut leaves = Vec::with_capacity(places.len());
        self.program.walk(self.tables, places.iter().copied(), &mut leaves)?;

        let mut kept: Vec<AddrRange> = Vec::new();
        for (i, &stretch) in stretches.iter().enumerate() {
            let looked_at = i * PLACES..(i + 1) * PLACES;
            let broken = places[looked_at.clone()].iter().zip(&leaves[looked_at]).any(|(place, leaf)| {
                leaf.extent() == Some(Extent::Page)
                    && leaf.frame(place.addr).is_some_and(|frame| self.folios.is_large(frame))
            });
            if broken {
                continue;
            }
            match kept.pop_if(|last| last.touches(stretch)) {
                Some(last) => kept.extend(AddrRange::new(last.start(), stretch.end())),
                None => kept.push(stretch),
            }
        }
        Ok(kept)
    }
}

/// The first, the middle and the last page of a range.
fn ends_and_middle(range: AddrRange) -> [u64; PLACES] {
    let last = range.pages().saturating_sub(1);
    [0, last / 2, last].map(|page| range.start() + page * PAGE_SIZE)
}

fn is_worth_it(mapping: &Mapping) -> bool {
    let anonymous = matches!(&*mapping.name, "" | "[heap]" | "[stack]") || mapping.name.starts_with("[anon:");
    !mapping.permissions.shared && anonymous && mapping.range.size() <= LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn the_places_looked_at_lie_in_the_range() {
        assert_eq!(ends_and_middle(range(0x1000, 0x2000)), [0x1000; 3]);
        assert_eq!(ends_and_middle(range(0, HUGE)), [0, 0xf_f000, 0x1f_f000]);
    }

    #[test]
    fn only_private_anonymous_memory_is_swept() {
        let mapping = |shared, name: &str, size| {
            let mut mapping = Mapping { name: name.into(), ..Mapping::anonymous(range(0, size)) };
            mapping.permissions.shared = shared;
            mapping
        };
        for name in ["", "[heap]", "[stack]", "[anon:arena]"] {
            assert!(is_worth_it(&mapping(false, name, 1 << 30)), "{name}");
            assert!(!is_worth_it(&mapping(true, name, 1 << 30)), "{name}");
            assert!(!is_worth_it(&mapping(false, name, 16 << 40)), "a reservation");
        }
        for name in ["/usr/lib/libc.so.6", "[vdso]", "[anon_shmem:x]"] {
            assert!(!is_worth_it(&mapping(false, name, 1 << 30)), "{name}");
        }
    }
}
