//! Surveys all pages of a target: reads every page table once, and clears accessed bits in ranges.

mod clear;
mod find;
mod folios;
mod masks;
mod read;
mod spans;

use isotherm_core::survey::{BlockPages, ClearPages};

use super::BpfError;
use super::folio::Folios;
use super::program::{PageTables, Program};
use super::target::Target;
use clear::{Clearer, Tools};
use folios::{LargeFolios, Zeros};
use read::Reader;

/// How many surveys the frames of huge zero pages are remembered for.
const ZERO_SURVEYS: u32 = 16;

/// What surveys keep.
#[derive(Debug, Default)]
pub(super) struct Pages {
    reader: Reader,
    clearer: Clearer,
    large: LargeFolios,
    zeros: Zeros,
    surveys: u32,
}

impl Pages {
    /// Begins a survey.
    pub(super) fn begin(&mut self) {
        self.large.begin();
        self.surveys = self.surveys.wrapping_add(1);
        if self.surveys.is_multiple_of(ZERO_SURVEYS) {
            self.zeros.forget();
        }
    }

    /// Appends the blocks of `target` that have present pages to `blocks`, in the order of addresses. Forgets which
    /// pages sampling has cleared.
    pub(super) fn read(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &mut Target,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BpfError> {
        let first = blocks.len();
        self.reader.read(program, tables, target, &self.zeros, blocks)?;
        target.sampled.clear();
        if target.is_refused() {
            blocks[first..].iter_mut().for_each(|block| block.unobservable = block.present);
        }
        Ok(())
    }

    /// Clears the accessed bits of pages. Returns how many it has cleared.
    pub(super) fn clear(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        folios: &Folios,
        target: &mut Target,
        blocks: &mut [ClearPages],
    ) -> Result<u64, BpfError> {
        let mut tools = Tools { program, tables, folios, large: &mut self.large, zeros: &mut self.zeros };
        self.clearer.clear(&mut tools, target, blocks)
    }
}
