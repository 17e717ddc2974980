//! The folios that hold pages: how large they are, and whether the kernel takes them for active.

use std::ops::Range;
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, BoxError, PAGE_SIZE};
use isotherm_kernel::lru_gen;
use isotherm_kernel::pages::{FlagTable, Flags};
use rustix::io::Errno;

use super::frames::{Frames, FramesError, Owner, add_page};

/// Finds the pages of a process or of files by their folios.
#[derive(Debug)]
pub(super) struct Folios {
    root: PathBuf,
    frames: Frames,
    flags: FlagTable,
}

/// A folio.
pub(super) struct Folio {
    pub(super) bytes: u64,
    pub(super) flags: Flags,
}

impl Folios {
    /// Opens the tables of the kernel. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// Fails if a table cannot be opened or read, or does not show page frame numbers.
    pub(super) fn open(root: &Path) -> Result<Self, FramesError> {
        Ok(Self { root: root.into(), frames: Frames::open(root)?, flags: FlagTable::open(root)? })
    }

    /// Checks that the kernel knows active pages.
    ///
    /// # Errors
    /// Says that it has generations instead.
    pub(super) fn have_active(&self) -> Result<(), BoxError> {
        if !lru_gen::is_on(&self.root) {
            return Ok(());
        }
        let what = "this kernel has generations of pages, and knows no active ones";
        Err(format!("{what} (/{} is not 0): filter by young, or by age", lru_gen::ENABLED).into())
    }

    /// Appends to `found` the pages in memory in `ranges`, which are sorted and disjoint, of whose folio `is` holds.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(super) fn find(
        &mut self,
        owner: Owner<'_>,
        ranges: &[AddrRange],
        is: impl Fn(Folio) -> bool,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let Self { frames, flags, .. } = self;
        // Neighbouring pages mostly belong to the same folio.
        let mut last: (Range<u64>, bool) = (0..0, false);
        frames.each(owner, ranges, |addr, frame| {
            if !last.0.contains(&frame) {
                let folio = flags.folio(frame).map_err(|error| error.errno())?.unwrap_or(frame..frame + 1);
                let head = flags.flags(folio.start).map_err(|error| error.errno())?.unwrap_or_default();
                let is_one = is(Folio { bytes: (folio.end - folio.start) * PAGE_SIZE, flags: head });
                last = (folio, is_one);
            }
            if last.1 {
                add_page(found, addr);
            }
            Ok(())
        })
    }
}
