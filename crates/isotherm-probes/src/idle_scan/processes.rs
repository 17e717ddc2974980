//! The idle memory of a process, found from the frames of its pages.

use std::path::{Path, PathBuf};

use isotherm_core::{IdleTally, Mapping, PAGE_SIZE, PageState};

use super::findings::{MappingIdle, ProcessIdle};
use super::frames::Frames;
use super::nodes::Nodes;
use super::population::Member;
use isotherm_kernel::pages::{PageBuffer, Pagemap};

/// The number of pages whose frames are read at once: as many as fit into one call.
const AT_ONCE: u64 = 512;

/// A mapping without permissions that is larger than this, in bytes, is a reservation: no page of it is present.
const RESERVATION: u64 = 1 << 30;

/// Reads the frames of the pages of processes.
#[derive(Debug)]
pub(super) struct Pagemaps {
    root: PathBuf,
    buffer: PageBuffer,
}

impl Pagemaps {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), buffer: PageBuffer::default() }
    }

    /// Calls `found` with the frame of each page that is present in a process. The frame is 0 if the kernel hides it.
    /// Memory that is unmapped during the walk has no pages.
    pub(super) fn each_frame(&mut self, member: &Member, mut found: impl FnMut(u64)) {
        let Ok(pagemap) = Pagemap::open(&self.root, &member.pid.to_string()) else { return };
        for mapping in member.mappings.iter().filter(|mapping| is_worth_it(mapping)) {
            self.frames(&pagemap, mapping, &mut found);
        }
    }

    fn frames(&mut self, pagemap: &Pagemap, mapping: &Mapping, found: &mut impl FnMut(u64)) {
        for piece in mapping.range.pieces(AT_ONCE * PAGE_SIZE) {
            let found = |frame: Option<u64>| frame.into_iter().for_each(&mut *found);
            if pagemap.frames(piece.page_addresses(), &mut self.buffer, found).is_err() {
                break;
            }
        }
    }

    /// The idle memory of a process, or `None` if the process has ended or access to it is not permitted.
    pub(super) fn process(
        &mut self,
        member: &Member,
        frames: &Frames,
        nodes: &Nodes,
        by_mapping: bool,
    ) -> Option<ProcessIdle> {
        let pagemap = Pagemap::open(&self.root, &member.pid.to_string()).ok()?;
        let mut process = ProcessIdle {
            pid: member.pid,
            inner_pid: member.inner_pid,
            command: member.command.clone(),
            cgroup: member.cgroup.clone(),
            total: IdleTally::default(),
            shared: 0,
            mappings: Vec::new(),
        };
        for mapping in member.mappings.iter().filter(|mapping| is_worth_it(mapping)) {
            let mut tally = IdleTally::default();
            self.frames(&pagemap, mapping, &mut |frame| {
                if !nodes.is_scanned(nodes.of(frame)) {
                    return;
                }
                // A page that is not user memory (of a device or hugetlbfs, or the zero page) cannot be observed.
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
        // After an exec, or after the end of the process, nothing is present at these addresses.
        (!process.total.is_empty()).then_some(process)
    }
}

fn is_worth_it(mapping: &Mapping) -> bool {
    mapping.permissions.any() || mapping.range.size() <= RESERVATION
}
