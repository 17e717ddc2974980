//! The targets that the probe holds, and what a scan of all pages asks about them besides the survey.

use std::io;
use std::time::{Duration, Instant};

use isotherm_core::{TargetId, TargetSpace};
use isotherm_kernel::Unreadable;

use super::BpfError;
use super::direct_map::memory_end;
use super::pages::FrameTable;
use super::probe::BpfProbe;
use super::space::SpaceHandle;
use super::sweep::LONGEST;
use super::target::BpfTarget;

/// The end of the machine's memory is read at most this often.
const READ_MEMORY_EVERY: Duration = Duration::from_secs(1);

impl BpfProbe {
    /// Holds these targets from now on, and no others. Returns those that refuse access, with the reason.
    pub(crate) fn hold(&mut self, targets: &[TargetSpace]) -> Result<Vec<(TargetId, io::Error)>, BpfError> {
        self.hold_changed(targets, |_, _| true)
    }

    /// Like [`hold`](Self::hold). A target is not opened again if it has not `changed`.
    pub(super) fn hold_changed(
        &mut self,
        targets: &[TargetSpace],
        changed: impl Fn(&BpfTarget, &TargetSpace) -> bool,
    ) -> Result<Vec<(TargetId, io::Error)>, BpfError> {
        // Reading it takes about a third of what a new target costs.
        if self.memory_read.elapsed() >= READ_MEMORY_EVERY {
            self.memory_read = Instant::now();
            match memory_end() {
                Ok(end) => self.tables.memory_end = end,
                // Memory that was added meanwhile is found later.
                Err(BpfError::File { source, .. }) if Unreadable::passes(&source) => {}
                Err(error) => return Err(error),
            }
        }
        self.sweeps_end = Instant::now() + LONGEST;
        let before = std::mem::take(&mut self.targets);
        let mut before: Vec<_> = before.into_iter().map(|target| (target.id, Some(target))).collect();
        let mut refusals = Vec::new();
        for space in targets {
            let known = before.binary_search_by_key(&space.id, |(id, _)| *id);
            let mut known = known.ok().and_then(|index| before[index].1.take());
            if let Some(known) = known.take_if(|known| !changed(known, space)) {
                self.targets.push(known);
                continue;
            }
            let (target, refused) = self.renew(space, known)?;
            refusals.extend(refused.map(|source| (space.id, source)));
            self.targets.push(target);
        }
        self.targets.sort_by_key(|target| target.id);
        if let Some(pages) = &mut self.pages {
            pages.keep(&self.targets);
        }
        Ok(refusals)
    }

    /// Holds these targets, too, which are new. One that refuses access is opened again when the mappings are read.
    pub(super) fn hold_more(&mut self, joined: &[TargetSpace]) -> Result<(), BpfError> {
        self.sweeps_end = Instant::now() + LONGEST;
        for space in joined {
            let (target, _) = self.renew(space, None)?;
            self.targets.push(target);
        }
        self.targets.sort_by_key(|target| target.id);
        Ok(())
    }

    /// The identity of a target's address space, or `None` if the target has ended or refuses access. It changes when
    /// the target calls exec.
    pub(crate) fn address_space(&self, target: TargetId) -> Option<u64> {
        self.held(target).and_then(BpfTarget::space).map(SpaceHandle::identity)
    }

    /// Calls `found` with the address of each block of a target that has page-table entries, and the page frames of the
    /// block. A block may be found that the last survey did not find, or the other way round.
    pub(crate) fn frames(&mut self, target: TargetId, found: impl FnMut(u64, &FrameTable)) -> Result<(), BpfError> {
        let Ok(index) = self.targets.binary_search_by_key(&target, |known| known.id) else { return Ok(()) };
        let pages = self.pages.get_or_insert_default();
        pages.frames(&mut self.program, &self.tables, &self.targets[index], found)
    }

    pub(super) fn held(&self, target: TargetId) -> Option<&BpfTarget> {
        let index = self.targets.binary_search_by_key(&target, |known| known.id).ok()?;
        Some(&self.targets[index])
    }
}
