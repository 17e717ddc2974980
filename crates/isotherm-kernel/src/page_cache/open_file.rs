//! An open file of which page cache is found and dropped.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use isotherm_core::survey::{BLOCK_SIZE, PageBits};
use isotherm_core::{AddrRange, FileId, PAGE_SIZE};
use rustix::fs::{Advice, AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, fadvise, fstatfs, openat, statx};
use rustix::io::Errno;

use super::CachedFile;
use super::stat::{CacheStat, cachestat, clean_parts};
use super::window::Window;
use crate::pages::{FlagTable, PageBuffer};

/// The file system `overlay` (`statfs(2)`).
const OVERLAY: u64 = 0x794c_7630;

/// A regular file, open for advice.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    /// Whether it is a file of an overlay. cachestat finds no pages of it: they are those of a file below.
    is_overlaid: bool,
}

/// What became of an attempt to drop page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Bytes that were in the page cache before, and that are not any more.
    pub dropped: u64,
    /// Bytes that were left, because they were changed and are not in the file yet.
    pub dirty: u64,
    /// Other bytes that are still in the page cache.
    pub left: u64,
}

/// The path as it is, without following a link at its end: `O_PATH` opens nothing.
#[allow(clippy::disallowed_methods, reason = "finds a file of which page cache is read, and opens none")]
pub(super) fn find(path: &Path) -> Result<(OwnedFd, Statx), Errno> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = statx(&found, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    Ok((found, stat))
}

/// Which file it is.
pub(super) fn id(stat: &Statx) -> FileId {
    FileId { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino }
}

/// Whether it is a regular file.
pub(super) fn is_regular(stat: &Statx) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile
}

impl CachedFile {
    /// Opens the file, read-only. Its access time does not change.
    ///
    /// # Errors
    /// `ENOENT` if the path leads to another file by now, or to none; `EPERM` if the file belongs to another user.
    pub fn open(&self) -> Result<OpenFile, Errno> {
        let (found, stat) = find(&self.path)?;
        if !is_regular(&stat) || id(&stat) != self.id {
            return Err(Errno::NOENT);
        }
        OpenFile::open(&found)
    }

    /// The bytes of the file at these addresses, which lie in its place.
    pub fn bytes_at(&self, addresses: AddrRange) -> Option<AddrRange> {
        let start = self.range.start();
        AddrRange::new(addresses.start().checked_sub(start)?, addresses.end() - start)
    }
}

impl OpenFile {
    /// Opens a regular file that was found by `O_PATH`.
    #[allow(
        clippy::disallowed_methods,
        reason = "opens a file of which page cache is read or dropped, and creates none"
    )]
    pub(super) fn open(found: &OwnedFd) -> Result<Self, Errno> {
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        let is_overlaid = fstatfs(&fd)?.f_type as u64 & 0xffff_ffff == OVERLAY;
        Ok(Self { fd, is_overlaid })
    }

    /// The same file, of which cachestat(2) tells nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn without_counts(self) -> Self {
        Self { is_overlaid: true, ..self }
    }

    /// Counts the pages of `range`, in bytes of the file.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 6.5; `EOPNOTSUPP` for files of an overlay.
    pub fn stat(&self, range: AddrRange) -> Result<CacheStat, Errno> {
        if self.is_overlaid {
            return Err(Errno::OPNOTSUPP);
        }
        cachestat(self.fd.as_fd(), range)
    }

    /// The pages of `range` that are in the page cache: whole pages, and at most [`BLOCK_SIZE`] bytes. Pages have
    /// numbers from the start of the range on.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)` or `mincore(2)`.
    pub fn resident(&self, range: AddrRange) -> Result<PageBits, Errno> {
        self.window(range)?.resident()
    }

    /// Maps `range`: whole pages, and at most [`BLOCK_SIZE`] bytes.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`.
    pub fn window(&self, range: AddrRange) -> Result<Window, Errno> {
        Window::new(self.fd.as_fd(), range)
    }

    /// The same pages with their page frames. The pages are mapped only while they are looked up.
    ///
    /// # Errors
    /// `EPERM` if the kernel does not show page frame numbers.
    pub fn frames(&self, range: AddrRange) -> Result<Vec<(usize, u64)>, Errno> {
        self.window(range)?.frames()
    }

    /// Has the kernel read `range` into the page cache.
    ///
    /// # Errors
    /// Returns the error of `posix_fadvise(2)`.
    pub fn read_in(&self, range: AddrRange) -> Result<(), Errno> {
        fadvise(&self.fd, range.start(), NonZeroU64::new(range.size()), Advice::WillNeed)
    }

    /// Drops what is clean and not in use of `range`: whole pages, and at most [`BLOCK_SIZE`] bytes. The kernel would
    /// begin to write dirty pages, so these are left out of the call. It leaves pages that a process maps, and parts of
    /// folios that reach beyond the range. `flags` finds dirty pages where cachestat(2) does not.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it cannot be found out which pages are dirty; else the error of the call that failed.
    pub fn drop_clean(&self, range: AddrRange, flags: Option<&FlagTable>) -> Result<Dropped, Errno> {
        let before = self.resident(range)?;
        if before.is_empty() {
            return Ok(Dropped::default());
        }
        let mut clean = Vec::new();
        let dirty = self.find_clean(range, before, flags, &mut clean)?;
        for part in clean {
            fadvise(&self.fd, part.start(), NonZeroU64::new(part.size()), Advice::DontNeed)?;
        }
        let still = (self.resident(range)? & before).count() as u64 * PAGE_SIZE;
        let before = before.count() as u64 * PAGE_SIZE;
        let dirty = (dirty * PAGE_SIZE).min(still);
        Ok(Dropped { dropped: before - still, dirty, left: still - dirty })
    }

    /// Finds the parts of `range` without dirty pages, and counts these.
    fn find_clean(
        &self,
        range: AddrRange,
        resident: PageBits,
        flags: Option<&FlagTable>,
        clean: &mut Vec<AddrRange>,
    ) -> Result<u64, Errno> {
        // What has pages, and none by cachestat, has them in another file.
        match self.stat(range) {
            Ok(found) if found.cached > 0 => {
                return clean_parts(range, &mut |part| self.stat(part), &mut |part| clean.push(part));
            }
            _ => {}
        }
        let flags = flags.ok_or(Errno::OPNOTSUPP)?;
        let mut frames = self.frames(range)?;
        frames.retain(|(page, _)| resident.contains(*page));
        frames.sort_unstable_by_key(|(_, frame)| *frame);
        let (mut all, mut buffer) = (PageBits::NONE, PageBuffer::default());
        let mut pages = frames.iter();
        let mut unknown = Vec::new();
        let told = flags.each(frames.iter().map(|(_, frame)| *frame), &mut buffer, |found| match pages.next() {
            Some((page, _)) if !found.is_tail() && !found.is_dirty() => all.insert(*page),
            Some(one) if found.is_tail() => unknown.push(*one),
            _ => {}
        });
        told.map_err(|error| error.errno())?;
        // The flags of a folio are those of its first frame.
        for (page, frame) in unknown {
            let head = flags.head(frame).map_err(|error| error.errno())?;
            if head.is_some_and(|(_, found)| !found.is_dirty()) {
                all.insert(page);
            }
        }
        let part = |run: std::ops::Range<usize>| {
            let at = |page: usize| range.start() + page as u64 * PAGE_SIZE;
            AddrRange::new(at(run.start), at(run.end))
        };
        clean.extend(all.runs().filter_map(part));
        Ok((resident & !all).count() as u64)
    }
}

/// Cuts a range at the multiples of [`BLOCK_SIZE`].
pub(super) fn by_block(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let first = range.start() - range.start() % BLOCK_SIZE;
    let blocks = (first..range.end()).step_by(BLOCK_SIZE as usize);
    blocks.filter_map(move |start| AddrRange::new(start, start + BLOCK_SIZE)?.intersection(range))
}
