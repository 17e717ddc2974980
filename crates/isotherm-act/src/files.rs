//! Acts on the page cache of files: drops it, moves it between memory nodes, or reads files in.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{Action, Outcome, RefusalReason, Work};
use isotherm_kernel::page_cache::{Dropped, FileReader, FileTable, OpenFile, has_cachestat};
use isotherm_kernel::pages::FlagTable;
use rustix::io::Errno;

use super::call_method::Row;
use super::check::between_nodes;
use super::error::ActError;
use super::migration::Migration;
use super::refusal::refusal;

/// Acts on the files of a table.
#[derive(Debug)]
pub(super) struct FileCache {
    reader: FileReader,
    /// Finds dirty pages where cachestat(2) does not. `None` if the user may not read it.
    flags: Option<FlagTable>,
}

/// What an action does to files.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileCall {
    Drop,
    ReadIn,
    Move,
    Count,
}

impl FileCache {
    /// `root` is the directory that stands for `/`.
    pub(super) fn new(root: &Path, files: FileTable) -> Self {
        Self { reader: FileReader::new(files), flags: FlagTable::open(root).ok() }
    }

    /// Checks that the action can be carried out on files.
    ///
    /// # Errors
    /// If it is one on memory of processes, if changed pages cannot be found, or if no memory can be moved.
    pub(super) fn check(&self, action: Action, migration: &mut Migration) -> Result<(), ActError> {
        match Row::of(action, false).on_files.ok_or(ActError::NotOnFiles(action))? {
            FileCall::Drop if self.flags.is_none() && !has_cachestat() => Err(ActError::DirtyUnknown(action)),
            FileCall::Move => between_nodes(action, migration),
            FileCall::Drop | FileCall::ReadIn | FileCall::Count => Ok(()),
        }
    }

    /// Acts on files, and says what became of each range. A call that moves pages when `interrupt` is set is finished,
    /// and no other begins.
    pub(super) fn run(
        &mut self,
        work: &Work<'_>,
        outcomes: &mut [Outcome],
        migration: &mut Migration,
        interrupt: &AtomicBool,
    ) {
        let call = Row::of(work.action, false).on_files;
        let mut moves = matches!(call, Some(FileCall::Move)).then(|| migration.of_files(work.action, interrupt));
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            match (call, &mut moves) {
                (_, Some(Ok(moves))) => {
                    self.each(*range, outcome, |file, bytes, outcome| moves.run(file, bytes, outcome));
                }
                (_, Some(Err(errno))) => *outcome = Outcome::refused(*range, refusal(*errno)),
                (Some(FileCall::Drop), None) => self.drop_clean(*range, outcome),
                (Some(FileCall::ReadIn), None) => self.each(*range, outcome, |file, bytes, outcome| {
                    file.read_in(bytes)?;
                    outcome.applied += bytes.size();
                    Ok(())
                }),
                (Some(FileCall::Count), None) => *outcome = Outcome::all(*range),
                // The check at the start has refused it.
                (Some(FileCall::Move) | None, None) => {
                    *outcome = Outcome::refused(*range, RefusalReason::Unsupported.into())
                }
            }
        }
        self.reader.close();
    }

    /// Drops the clean pages of a range that are not in use. Only what has left the page cache counts as applied.
    fn drop_clean(&mut self, range: AddrRange, outcome: &mut Outcome) {
        let flags = self.flags.take();
        let mut resident = 0;
        self.each(range, outcome, |file, bytes, outcome| {
            let Dropped { dropped, dirty, left } = file.drop_clean(bytes, flags.as_ref())?;
            outcome.applied += dropped;
            for (bytes, why) in [(dirty, RefusalReason::Dirty), (left, RefusalReason::Busy)] {
                if bytes > 0 {
                    outcome.refuse(bytes, why.into());
                }
            }
            resident += dirty + left;
            Ok(())
        });
        outcome.resident = Some(resident);
        self.flags = flags;
    }

    /// Calls `act` with the file at each part of a range. What is in no file any more is refused.
    fn each(
        &mut self,
        range: AddrRange,
        outcome: &mut Outcome,
        mut act: impl FnMut(&OpenFile, AddrRange, &mut Outcome) -> Result<(), Errno>,
    ) {
        let mut seen = 0;
        let acted = self.reader.each(range, |file, bytes, _| {
            seen += bytes.size();
            if let Err(errno) = act(file, bytes, outcome) {
                outcome.refuse(bytes.size(), refusal(errno));
            }
            Ok(())
        });
        debug_assert!(acted.is_ok());
        if let Some(gone) = range.size().checked_sub(seen).filter(|gone| *gone > 0) {
            outcome.refuse(gone, RefusalReason::NotMapped.into());
        }
    }
}
