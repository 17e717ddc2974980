//! A process that actions are made on. It is held open, so that no action reaches another process.

use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{Pidfd, Process, ProcessTable, Unreadable, mapped_ranges, mapped_within};
use rustix::io::Errno;

use super::outside::Memory;

/// A process that is held by a pidfd, so that an action cannot reach another process with the same ID.
#[derive(Debug)]
pub(super) struct Held {
    target: TargetId,
    pub(super) pid: u32,
    pidfd: Pidfd,
}

impl Held {
    /// Holds a process of the table. The table does not stay locked. Returns `None` if the target is not in the table.
    pub(super) fn new(process_table: &ProcessTable, target: TargetId) -> Option<Self> {
        let members = process_table.members();
        Some(Self { target, pid: target.pid()?, pidfd: members.get(&target)?.process.pidfd() })
    }

    /// Holds a process that is open.
    pub(super) fn of(process: &Process) -> Self {
        Self { target: process.id(), pid: process.pid(), pidfd: process.pidfd() }
    }

    pub(super) const fn target(&self) -> TargetId {
        self.target
    }

    pub(super) fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// The mappings that have a part of these ranges, as they are now, and maybe others.
    pub(super) fn mapped_within(&self, ranges: &[AddrRange]) -> Result<Vec<AddrRange>, Errno> {
        mapped_within(self.pid, &self.pidfd, ranges).map_err(errno)
    }
}

/// The error number of a process that cannot be read.
fn errno(error: Unreadable) -> Errno {
    match error.error() {
        Some(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        None => Errno::SRCH,
    }
}

impl Memory for Held {
    fn advise(&mut self, ranges: &[AddrRange], advice: Advice) -> Result<usize, Errno> {
        advise(&self.pidfd, ranges.iter().copied(), advice).map_err(|errno| match errno {
            // The kernel looks for the memory at the main thread, which has called `pthread_exit`.
            Errno::SRCH if !self.has_ended() => Errno::OPNOTSUPP,
            errno => errno,
        })
    }

    fn mapped(&mut self) -> Result<Vec<AddrRange>, Errno> {
        mapped_ranges(self.pid, &self.pidfd).map_err(errno)
    }
}
