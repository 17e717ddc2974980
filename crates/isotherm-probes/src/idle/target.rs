//! What the probe knows of one target.

use std::io;
use std::path::Path;
use std::sync::Arc;

use isotherm_core::{Mapping, PAGE_SIZE, TargetId, TargetSpace, mapping_at};
use rustix::io::Errno;

use super::IdleError;
use isotherm_kernel::pages::{Pagemap, Room};

/// A target and how its pages are found.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) id: TargetId,
    /// Sorted and disjoint.
    mappings: Arc<[Mapping]>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// An address is that of a frame.
    Physical,
    /// The process's pagemap tells.
    Process(Pagemap),
    /// It has ended: there are no pages.
    Gone,
    /// Its memory may not be looked at.
    Refused,
}

impl Target {
    /// Learns how the pages of a target are found, and why they may not be if so.
    pub(super) fn open(root: &Path, space: &TargetSpace) -> Result<(Self, Option<io::Error>), IdleError> {
        let (way, refusal) = match space.id {
            TargetId::PhysicalMemory => (Way::Physical, None),
            TargetId::Cgroup(_) => (Way::Refused, Some(io::ErrorKind::Unsupported.into())),
            // Opened anew each time: after an exec, the process has another address space.
            TargetId::Process(process) => match Pagemap::open(root, &process.pid.to_string()) {
                Ok(pagemap) => (Way::Process(pagemap), None),
                Err(error) => match error.errno() {
                    Errno::NOENT | Errno::SRCH => (Way::Gone, None),
                    Errno::ACCESS | Errno::PERM => (Way::Refused, Some(error.source)),
                    _ => return Err(IdleError::pagemap(error)),
                },
            },
        };
        Ok((Self { id: space.id, mappings: Arc::clone(&space.mappings), way }, refusal))
    }

    /// Whether a page may be at `addr`.
    pub(super) fn maps(&self, addr: u64) -> bool {
        mapping_at(&self.mappings, addr).is_some()
    }

    /// Whether its pages are where they are whatever happens.
    pub(super) fn is_physical(&self) -> bool {
        matches!(self.way, Way::Physical)
    }

    /// Tells the frame of the page at each of `addresses`, which are sorted: nothing if there is no page, frame 0 if there is no
    /// telling.
    pub(super) fn frames(
        &self,
        addresses: impl ExactSizeIterator<Item = u64>,
        room: &mut Room,
        mut tell: impl FnMut(Option<u64>),
    ) {
        let mut left = addresses.len();
        match &self.way {
            Way::Physical => {
                left = 0;
                addresses.for_each(|addr| tell(Some(addr / PAGE_SIZE)));
            }
            Way::Process(pagemap) => {
                let told = pagemap.frames(addresses, room, |frame| {
                    left -= 1;
                    tell(frame);
                });
                if told.is_ok() {
                    debug_assert_eq!(left, 0);
                }
            }
            Way::Gone => {
                left = 0;
                addresses.for_each(|_| tell(None));
            }
            Way::Refused => {}
        }
        // What could not be read, of a process that may not be looked at or whose memory cannot be just now.
        (0..left).for_each(|_| tell(Some(0)));
    }
}
