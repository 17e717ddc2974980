//! Requests to clear the pages of samples, all of one target.

use isotherm_core::PAGE_SIZE;
use isotherm_kernel::HUGE;
use isotherm_kernel::madvise::{Advice, advise};
use rustix::io::Errno;

use super::BpfError;
use super::folio::{Folios, Whole};
use super::leaf::{Extent, Leaf};
use super::program::{PageTables, Program, Walked};
use super::space::SpaceHandle;
use super::target::{BpfTarget, Clearing};
use super::words::accessed;

/// A sample that must be cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The index of the sample.
    pub(super) sample: usize,
    /// The index of its target.
    pub(super) slot: usize,
    pub(super) addr: u64,
    /// The entry that maps the sample.
    pub(super) leaf: Leaf,
    /// The range that must be cleared for the sample.
    pub(super) whole: Whole,
}

/// Notes for the next survey which of the pages that are about to be cleared were accessed. `requests` are all of one
/// target.
pub(super) fn note(
    program: &mut Program,
    tables: &PageTables,
    target: &mut BpfTarget,
    requests: &[Request],
) -> Result<(), BpfError> {
    let Some(pgd) = target.space().map(SpaceHandle::pgd) else { return Ok(()) };
    for request in requests {
        let range = request.whole.range;
        if range.size() == PAGE_SIZE || request.leaf.extent() == Some(Extent::Huge) {
            target.sampled.add(range);
            continue;
        }
        // A large folio, whose pages have accessed bits of their own. It lies in two blocks at most.
        let blocks = [range.start() - range.start() % HUGE, range.end().saturating_sub(1) / HUGE * HUGE];
        let blocks = if blocks[0] == blocks[1] { &blocks[..1] } else { &blocks[..] };
        let sampled = &mut target.sampled;
        program.copy_tables(tables, pgd, 1, blocks, |i, found| {
            if let Walked::Table(table) = found {
                sampled.add_pages(blocks[i], accessed(table), range);
            }
        })?;
    }
    Ok(())
}

/// Clears `requests`, all of one target and at most [`isotherm_kernel::madvise::RANGES_A_CALL`] of them. Returns how
/// many were cleared. The samples that the kernel refuses to clear become unobservable.
pub(super) fn clear_in(
    target: &mut BpfTarget,
    folios: &Folios,
    requests: &[Request],
    unobservable: &mut [bool],
) -> u64 {
    let mut cleared = 0;
    let mut rest = requests;
    while let Some((first, others)) = rest.split_first() {
        if target.clearing_at(first.addr) != Clearing::Single {
            unobservable[first.sample] = true;
            rest = others;
            continue;
        }
        let Some(space) = target.space() else {
            break;
        };
        match advise(space.pidfd(), rest.iter().map(|request| request.whole.range), Advice::Cold) {
            Ok(done) if done > 0 => {
                cleared += done as u64;
                rest = &rest[done..];
            }
            // The memory was unmapped in the meantime, so there is no access.
            Err(Errno::NOMEM) => rest = others,
            Err(Errno::SRCH | Errno::PERM) => {
                target.refuse();
                break;
            }
            // EINVAL means that the whole mapping is locked or not ordinary memory. Another error is about this range.
            result => {
                let refused =
                    || Clearing::of_refused(first.leaf.frame(first.addr).and_then(|frame| folios.flags(frame)));
                if result != Err(Errno::INVAL) || !target.set_clearing(first.addr, refused()) {
                    unobservable[first.sample] = true;
                    rest = others;
                }
            }
        }
    }
    cleared
}
