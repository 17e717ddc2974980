//! One target's address space, held so that its page tables can be read.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use isotherm_core::PAGE_SIZE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::BpfError;
use super::program::{Program, Resolved};

/// How often a look-up that was disturbed is done again.
const RESOLVE_ATTEMPTS: u32 = 8;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

// Fields of an entry of /proc/PID/pagemap: Documentation/admin-guide/mm/pagemap.rst.
const PAGEMAP_PRESENT: u64 = 1 << 63;
const PAGEMAP_EXCLUSIVE: u64 = 1 << 56;
const PAGEMAP_FRAME: u64 = (1 << 55) - 1;

/// The address space of a process, and the process itself.
///
/// The open pagemap keeps the kernel's `mm_struct` and with it the top page table from being freed and used for
/// something else. After the process has ended or called exec, that table is empty: a walk finds nothing present.
#[derive(Debug)]
pub(super) struct Space {
    pidfd: OwnedFd,
    pagemap: File,
    mm: u64,
    pgd: u64,
}

/// What kind of file a pagemap is to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagemapKind(u64);

/// What came of taking hold of a process.
#[derive(Debug)]
pub(super) enum Opened {
    /// It is held.
    Held(Space),
    /// There is no such process, or it has no memory any more.
    Gone,
    /// Its memory may not be looked at.
    Refused(io::Error),
}

/// What pagemap says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagemapEntry(u64);

impl PagemapEntry {
    /// The page frame, or nothing if the page is not present. Frame 0 stands for "not told".
    pub(super) fn frame(self) -> Option<u64> {
        (self.0 & PAGEMAP_PRESENT != 0).then_some(self.0 & PAGEMAP_FRAME)
    }

    /// Whether this is the page's only mapping.
    pub(super) fn exclusive(self) -> bool {
        self.0 & PAGEMAP_EXCLUSIVE != 0
    }
}

impl Space {
    /// Takes hold of this process, and learns what kind of file a pagemap is to the kernel.
    ///
    /// It proves along the way that such a file stands for an address space in the way that the program takes it to.
    pub(super) fn open_own(program: &mut Program) -> Result<(Self, PagemapKind), BpfError> {
        let pid = std::process::id();
        let (pidfd, pagemap) = open_files(pid).map_err(|source| files_error(pid, source))?;
        let resolved = program.resolve(&pagemap)?;
        if resolved.mm != resolved.own_mm || resolved.mm == 0 || resolved.pgd == 0 {
            let why = "its own pagemap is not its own address space; is /proc that of another PID namespace?";
            return Err(BpfError::GaveUp { program: "resolve", why });
        }
        Ok((Self { pidfd, pagemap, mm: resolved.mm, pgd: resolved.pgd }, PagemapKind(resolved.f_op)))
    }

    /// Takes hold of a process.
    pub(super) fn open(pid: u32, program: &mut Program, kind: PagemapKind) -> Result<Opened, BpfError> {
        let (pidfd, pagemap) = match open_files(pid) {
            Ok(files) => files,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Opened::Gone),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(Opened::Refused(e)),
            Err(source) => return Err(files_error(pid, source)),
        };
        for _ in 0..RESOLVE_ATTEMPTS {
            let Resolved { f_op, mm, pgd, .. } = program.resolve(&pagemap)?;
            // Another thread may have opened so many files that the table of files was replaced during the look-up.
            if f_op != kind.0 {
                continue;
            }
            // If the process still lives, the ID was its own when the pagemap was opened by it.
            if mm == 0 || pgd == 0 || ended(&pidfd) {
                return Ok(Opened::Gone);
            }
            return Ok(Opened::Held(Self { pidfd, pagemap, mm, pgd }));
        }
        Err(BpfError::GaveUp { program: "resolve", why: "the open pagemap is not found to be one" })
    }

    /// The kernel's address of the top page table.
    pub(super) fn pgd(&self) -> u64 {
        self.pgd
    }

    /// The process.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether both are the same address space of the same process: not if it has called exec in between.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        // Both hold their address space, so that one cannot have taken the other's place; an ID can.
        self.mm == other.mm && !ended(&self.pidfd)
    }

    /// What pagemap says of the pages from `addr` on: as many as there is room for in `room`, and are told.
    pub(super) fn pagemap<'a>(
        &self,
        addr: u64,
        room: &'a mut [u8],
    ) -> impl ExactSizeIterator<Item = PagemapEntry> + use<'a> {
        // A space that has gone reads as empty; any other failure is as good.
        let told = self.pagemap.read_at(room, addr / PAGE_SIZE * 8).unwrap_or(0);
        room[..told].as_chunks().0.iter().map(|bytes| PagemapEntry(u64::from_ne_bytes(*bytes)))
    }

    /// What pagemap says of the page at `addr`.
    pub(super) fn pagemap_entry(&self, addr: u64) -> Option<PagemapEntry> {
        self.pagemap(addr, &mut [0; 8]).next()
    }
}

/// The process, and the file that stands for its address space.
fn open_files(pid: u32) -> io::Result<(OwnedFd, File)> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ErrorKind::NotFound)?;
    let gone = |e: io::Error| if e.raw_os_error() == Some(libc::ESRCH) { ErrorKind::NotFound.into() } else { e };
    let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| gone(e.into()))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(gone)?;
    Ok((pidfd, pagemap))
}

fn files_error(pid: u32, source: io::Error) -> BpfError {
    let mend = "is /proc mounted, and is there room for two more open files a target (`ulimit -n`)?";
    BpfError::File { path: format!("/proc/{pid}/pagemap"), source, mend }
}

fn ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&NO_TIME)).is_ok_and(|ready| ready > 0)
}
