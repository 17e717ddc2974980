//! The page frames of processes, and which of them are in huge pages.

use std::path::{Path, PathBuf};

use isotherm_core::scheme::HUGE_PAGE_SIZE;
use isotherm_core::{AddrRange, PAGE_SIZE, push_joined};
use isotherm_kernel::page_cache::FileReader;
use isotherm_kernel::pages::{FlagTable, PageBuffer, Pagemap, TableError};
use rustix::io::Errno;
use thiserror::Error;

/// The number of frames in a huge page.
const HUGE: u64 = HUGE_PAGE_SIZE / PAGE_SIZE;

/// The most pages whose frames are read in one step.
const PAGES_AT_ONCE: usize = HUGE as usize;

/// Why the page frames of processes cannot be read, and how to fix it.
#[derive(Debug, Error)]
pub enum FramesError {
    /// A table of the kernel cannot be opened.
    #[error("the page frames of processes cannot be read (run isotherm as root)")]
    Table(#[from] TableError),
    /// The kernel does not show page frame numbers.
    #[error("/proc/self/pagemap does not show page frame numbers (run isotherm as root, or with CAP_SYS_ADMIN)")]
    Hidden,
}

/// Whose pages are read.
#[derive(Debug)]
pub(crate) enum Owner<'a> {
    /// Those of the process with this ID.
    Process(u32),
    /// The page cache of files.
    Files(&'a mut FileReader),
    /// Physical memory: an address is that of a frame.
    Physical,
}

impl From<u32> for Owner<'_> {
    fn from(pid: u32) -> Self {
        Self::Process(pid)
    }
}

/// Reads the page frames of processes and of files.
#[derive(Debug)]
pub(crate) struct Frames {
    root: PathBuf,
    buffer: PageBuffer,
    addresses: Vec<u64>,
    read: Vec<Option<u64>>,
}

impl Frames {
    /// Checks that the kernel shows page frame numbers. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// Fails if the pagemap cannot be opened or read, or does not show page frame numbers.
    pub(crate) fn open(root: &Path) -> Result<Self, FramesError> {
        let own = Pagemap::open(root, "self")?;
        let mut frames = Self::unchecked(root);
        // The page of this variable is present, so its frame number is 0 only if the kernel hides it.
        let here = &raw const frames as u64;
        let mut own_frame = None;
        own.frames(std::iter::once(here), &mut frames.buffer, |frame| own_frame = frame)?;
        if own_frame.is_none_or(|frame| frame == 0) { Err(FramesError::Hidden) } else { Ok(frames) }
    }

    /// Without the check.
    pub(crate) fn unchecked(root: &Path) -> Self {
        Self { root: root.into(), buffer: PageBuffer::default(), addresses: Vec::new(), read: Vec::new() }
    }

    /// Calls `each` with the address and the frame of each page of `owner` in memory that lies in `ranges`, which are
    /// sorted and disjoint; in the order of addresses.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on the pagemap, or of `each`.
    pub(crate) fn each<'a>(
        &mut self,
        owner: impl Into<Owner<'a>>,
        ranges: &[AddrRange],
        mut each: impl FnMut(u64, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let pid = match owner.into() {
            Owner::Process(pid) => pid,
            Owner::Physical => {
                let mut pages = ranges.iter().flat_map(|range| range.page_addresses());
                return pages.try_for_each(|addr| each(addr, addr / PAGE_SIZE));
            }
            Owner::Files(files) => {
                return ranges.iter().try_for_each(|range| {
                    let mut acted = Ok(());
                    files.frames(*range, |addr, frame| acted = acted.and_then(|()| each(addr, frame)))?;
                    acted
                });
            }
        };
        let pagemap = Pagemap::open(&self.root, &pid.to_string()).map_err(|error| error.errno())?;
        let mut addresses = ranges.iter().flat_map(|range| range.page_addresses());
        loop {
            self.addresses.clear();
            self.addresses.extend(addresses.by_ref().take(PAGES_AT_ONCE));
            if self.addresses.is_empty() {
                return Ok(());
            }
            self.read.clear();
            let at = self.addresses.iter().copied();
            let read = pagemap.frames(at, &mut self.buffer, |frame| self.read.push(frame));
            read.map_err(|error| error.errno())?;
            for (&addr, frame) in self.addresses.iter().zip(&self.read) {
                if let Some(frame) = *frame {
                    each(addr, frame)?;
                }
            }
        }
    }
}

/// Tells which pages are in huge pages.
#[derive(Debug)]
pub(crate) struct HugePages {
    flags: FlagTable,
    /// The last first frame whose flags were read, and whether it is a huge page. Neighbouring pages mostly belong to
    /// the same huge page.
    last: (u64, bool),
}

impl HugePages {
    /// Opens the flags of page frames. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// Fails if the table cannot be opened.
    pub(crate) fn open(root: &Path) -> Result<Self, TableError> {
        Ok(Self { flags: FlagTable::open(root)?, last: (u64::MAX, false) })
    }

    /// Forgets what was read: huge pages come and go.
    pub(crate) fn forget(&mut self) {
        self.last = (u64::MAX, false);
    }

    /// Whether the page at `addr` with this frame is a part of a huge page, which is aligned both in memory and in the
    /// address space.
    ///
    /// # Errors
    /// Returns the error of read(2).
    pub(crate) fn hold(&mut self, addr: u64, frame: u64) -> Result<bool, Errno> {
        if frame % HUGE != addr / PAGE_SIZE % HUGE {
            return Ok(false);
        }
        let first = frame - frame % HUGE;
        if self.last.0 != first {
            self.last = (first, self.flags.is_huge_page(first).map_err(|error| error.errno())?);
        }
        Ok(self.last.1)
    }
}

/// Appends a page to sorted ranges. It is merged with the last range if they touch.
pub(crate) fn add_page(found: &mut Vec<AddrRange>, addr: u64) {
    if let Some(page) = AddrRange::new(addr, addr + PAGE_SIZE) {
        push_joined(found, page);
    }
}
