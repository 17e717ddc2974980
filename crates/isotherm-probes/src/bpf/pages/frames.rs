//! The page frames of pages that several targets may map.

use isotherm_core::survey::{BlockFrames, PageBits};

use super::read::Suspects;
use crate::bpf::BpfError;
use crate::bpf::entries::{PAGES, frame_of};
use crate::bpf::program::{Found, MAX_TABLES, PageTables, Program};
use crate::bpf::target::Target;

/// Calls `found` with the page frames of the `suspects` of `target`.
pub(super) fn frames(
    program: &mut Program,
    tables: &PageTables,
    target: &Target,
    suspects: &[Suspects],
    found: &mut dyn FnMut(BlockFrames<'_>),
) -> Result<(), BpfError> {
    let Some(space) = target.space() else { return Ok(()) };
    let mut frames = [0; PAGES];
    for suspects in suspects.chunks(MAX_TABLES) {
        let starts: Vec<u64> = suspects.iter().map(|block| block.start).collect();
        program.copy_tables(tables, space.pgd(), 1, &starts, |i, entries| {
            let mut pages = PageBits::NONE;
            for page in suspects[i].pages.iter() {
                let frame = match entries {
                    Found::Table(table) => frame_of(table[page], tables.address_mask),
                    Found::Leaf(leaf) => leaf.frame(starts[i] + page as u64 * isotherm_core::PAGE_SIZE),
                };
                if let Some(frame) = frame {
                    frames[page] = frame;
                    pages.insert(page);
                }
            }
            found(BlockFrames { start: starts[i], pages, frames: &frames });
        })?;
    }
    Ok(())
}
