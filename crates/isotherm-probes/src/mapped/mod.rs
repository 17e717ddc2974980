//! Physical memory, as the page tables of all processes show it: for kernels without idle page tracking.
//!
//! A survey reads the page tables of every process once, and puts together for each page frame whether it was accessed
//! through any of its mappings. Addresses are physical: the number of the page frame times the page size. There are no
//! samples, because the page tables that map a frame are known only from a survey.
//!
//! - A page is *present* if at least one process maps it. Page cache that no process maps, free memory and the memory
//!   of the kernel are absent.
//! - A page is *accessed* if it was accessed through a mapping whose accessed bit can be cleared. It is *unobservable*
//!   if its only accessed bits are in mappings that cannot be cleared, or if a guest of KVM, a device or io_uring
//!   accesses it without the page tables of its process.
//! - To clear a page, its accessed bit is cleared in each process that has set it.
//! - A frame that was freed and is mapped again is new memory if a survey lies in between. Otherwise, its accessed bit
//!   says that it was accessed in this interval: the kernel sets it in the mapping of a page that was faulted in. The
//!   idle time of a page begins again when the kernel moves the page to another frame.
//! - A survey in parts reads the processes first, some in each part. The next parts list blocks of frames, and the last
//!   ones clear the chosen frames of these blocks. See `survey.rs`.
//! - All processes are read, this one included. It is not an error if processes start or end between two surveys, or
//!   during one. Kernel threads have no memory.

mod accessed;
mod blocks;
mod processes;
mod stuck;
mod survey;

use std::io;
use std::path::{Path, PathBuf};

use isotherm_core::survey::{BlockPages, ClearPages, Survey};
use isotherm_core::{AccessProbe, BoxError, TargetSpace};
use thiserror::Error;

use crate::bpf::{BpfError, BpfProbe, SharedLimits, SharedMemory};
use crate::left_out;
use accessed::AccessedPages;
use blocks::FrameBlocks;
use processes::ProcessList;
use stuck::StuckPages;
use survey::Progress;

/// Why the memory that processes map cannot be surveyed.
#[derive(Debug, Error)]
pub enum MappedError {
    /// The processes cannot be listed.
    #[error("{path} cannot be listed (is /proc mounted?)")]
    Processes {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A survey that finds more blocks, 4 GiB, is done in parts.
const PARTS_ABOVE: usize = 2048;

/// Surveys physical memory through the page tables of all processes.
#[derive(Debug)]
pub struct MappedProbe {
    probe: BpfProbe,
    list: ProcessList,
    /// The processes of the current survey.
    spaces: Vec<TargetSpace>,
    frames: FrameBlocks,
    accessed: AccessedPages,
    stuck: StuckPages,
    blocks: Vec<BlockPages>,
    chosen: Vec<ClearPages>,
    /// Whether the current survey, which is done in one part, has cleared pages.
    has_cleared: bool,
    progress: Progress,
    /// Whether the current survey is done in one part.
    is_whole: bool,
    /// How many blocks the survey before has found.
    blocks_before: Option<usize>,
    /// A survey that finds more blocks is done in parts.
    parts_above: usize,
    /// The blocks of page frames that were found, when all processes were read.
    found: Vec<BlockPages>,
    /// How many accessed bits the current survey has cleared.
    cleared: u64,
}

impl MappedProbe {
    /// Loads the eBPF program. `shared` says how memory is observed that several processes map, within `limits`.
    ///
    /// # Errors
    /// If the program does not work here.
    pub fn open(shared: SharedMemory, limits: SharedLimits) -> Result<Self, BpfError> {
        Self::open_at(Path::new("/"), shared, limits)
    }

    /// Like [`open`](Self::open). The processes are those that are listed in `proc` below `root`.
    ///
    /// # Errors
    /// The same as those of [`open`](Self::open).
    pub fn open_at(root: &Path, shared: SharedMemory, limits: SharedLimits) -> Result<Self, BpfError> {
        let mut probe = BpfProbe::open()?.with_sweeps(false);
        probe.set_shared_memory(shared, limits);
        // Frames are counted once by this survey, whichever processes map them, and cleared in all their views.
        probe.set_all_views(true);
        Ok(Self {
            probe,
            list: ProcessList::new(root),
            spaces: Vec::new(),
            frames: FrameBlocks::default(),
            accessed: AccessedPages::default(),
            stuck: StuckPages::default(),
            blocks: Vec::new(),
            chosen: Vec::new(),
            has_cleared: false,
            progress: Progress::default(),
            is_whole: false,
            blocks_before: None,
            parts_above: PARTS_ABOVE,
            found: Vec::new(),
            cleared: 0,
        })
    }

    /// A survey that finds more than `blocks` blocks of 2 MiB is done in parts: 2,048 by default, which are 4 GiB.
    pub fn set_parts_above(&mut self, blocks: usize) {
        self.parts_above = blocks;
    }

    /// What the probe leaves out, in a sentence for the user.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub fn remark(&mut self) -> Result<String, MappedError> {
        let how = "physical memory is read through the page tables of processes (bpf), by surveys without samples";
        let left_out = left_out::before_a_scan(Path::new("/"));
        let left_out = left_out.unwrap_or_else(|| "what no process maps is left out".into());
        let refused = match self.list.read(&mut self.spaces)? {
            0 => String::new(),
            1 => "; so is 1 process, access to whose memory is not permitted".into(),
            many => format!("; so are {many} processes, access to whose memory is not permitted"),
        };
        Ok(format!("{how}: {left_out}{refused}"))
    }
}

impl AccessProbe for MappedProbe {
    /// Without effect: each survey lists the processes itself.
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn has_samples(&self) -> bool {
        false
    }

    fn clears(&self) -> u64 {
        self.probe.clears()
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}
