//! What of a process's memory is idle, by the frames that its pages are in.

use std::path::{Path, PathBuf};

use isotherm_core::{IdleTally, Mapping, PAGE_SIZE, PageState};

use super::findings::{MappingIdle, ProcessIdle};
use super::frames::Frames;
use super::population::Member;
use isotherm_kernel::pages::{Pagemap, Room};

/// Pages that are asked for at once: as many as fit into one call.
const AT_ONCE: u64 = 512;

/// A mapping that may not be accessed at all and is larger than this is a reservation, with nothing present.
const RESERVATION: u64 = 1 << 30;

/// Reads where the pages of processes are.
#[derive(Debug)]
pub(super) struct Pagemaps {
    root: PathBuf,
    room: Room,
}

impl Pagemaps {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), room: Room::default() }
    }

    /// Tells the frame of each page that a process has present; those that are not told are frame 0. What goes away meanwhile has
    /// no more pages.
    pub(super) fn each_frame(&mut self, member: &Member, mut tell: impl FnMut(u64)) {
        let Ok(pagemap) = Pagemap::open(&self.root, &member.pid.to_string()) else { return };
        for mapping in member.mappings.iter().filter(|mapping| is_worth_it(mapping)) {
            self.frames(&pagemap, mapping, &mut tell);
        }
    }

    fn frames(&mut self, pagemap: &Pagemap, mapping: &Mapping, tell: &mut impl FnMut(u64)) {
        for piece in mapping.range.pieces(AT_ONCE * PAGE_SIZE) {
            let tell = |frame: Option<u64>| frame.into_iter().for_each(&mut *tell);
            if pagemap.frames(piece.page_addresses(), &mut self.room, tell).is_err() {
                break;
            }
        }
    }

    /// What of a process's memory is idle; nothing if it has ended since, or may not be looked at.
    pub(super) fn process(&mut self, member: &Member, frames: &Frames, by_mapping: bool) -> Option<ProcessIdle> {
        let pagemap = Pagemap::open(&self.root, &member.pid.to_string()).ok()?;
        let mut process = ProcessIdle {
            pid: member.pid,
            command: member.command.clone(),
            cgroup: member.cgroup.clone(),
            total: IdleTally::default(),
            mappings: Vec::new(),
        };
        for mapping in member.mappings.iter().filter(|mapping| is_worth_it(mapping)) {
            let mut tally = IdleTally::default();
            self.frames(&pagemap, mapping, &mut |frame| {
                // What is no page of a user (a device's, of hugetlbfs, the page of zeroes) cannot be observed.
                let state = frames.mark(frame).and_then(|mark| mark.state());
                tally.add(state.unwrap_or(PageState::Unobservable), PAGE_SIZE);
            });
            process.total += &tally;
            if by_mapping && !tally.is_empty() {
                process.mappings.push(MappingIdle {
                    range: mapping.range,
                    permissions: mapping.permissions,
                    name: mapping.name.clone(),
                    tally,
                });
            }
        }
        // After an exec, or after its end, nothing is present there.
        (!process.total.is_empty()).then_some(process)
    }
}

fn is_worth_it(mapping: &Mapping) -> bool {
    mapping.permissions.any() || mapping.range.size() <= RESERVATION
}
