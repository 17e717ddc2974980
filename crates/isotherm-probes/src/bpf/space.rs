//! The address space of a target, held open so that its page tables can be read.

use std::io;
use std::path::Path;

use isotherm_kernel::pages::{Pagemap, PagemapEntry};
use isotherm_kernel::{Pidfd, Unreadable};
use rustix::io::Errno;

use super::BpfError;
use super::program::{Program, Resolved};

/// How many times a disturbed look-up is repeated.
const RESOLVE_ATTEMPTS: u32 = 8;

/// A handle to the address space of a process, and to the process itself.
///
/// The open pagemap keeps a reference to the kernel's `mm_struct`. The kernel therefore does not free and reuse the top
/// page table. After the process has ended or called exec, that table is empty, and a walk finds nothing present.
#[derive(Debug)]
pub(super) struct SpaceHandle {
    pidfd: Pidfd,
    pagemap: Pagemap,
    mm: u64,
    pgd: u64,
}

/// The file operations by which the kernel identifies a pagemap.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagemapKind(u64);

/// The result of opening a process.
#[derive(Debug)]
pub(super) enum Opened {
    /// The process is open.
    Held(SpaceHandle),
    /// There is no such process, or it has no memory.
    Gone,
    /// Access to its memory is not permitted, or the files cannot be opened at the moment.
    Refused(io::Error),
}

impl SpaceHandle {
    /// Opens this process, and learns the file operations of a pagemap.
    ///
    /// It also checks that a pagemap refers to an address space in the way that the eBPF program assumes.
    pub(super) fn open_own(program: &mut Program) -> Result<(Self, PagemapKind), BpfError> {
        let pid = std::process::id();
        let (pidfd, pagemap) = open_files(pid).map_err(|errno| files_error(pid, errno))?;
        let resolved = program.resolve(&pagemap)?;
        if resolved.mm != resolved.own_mm || resolved.mm == 0 || resolved.pgd == 0 {
            let why = "its own pagemap is not its own address space (is /proc of another PID namespace mounted?)";
            return Err(BpfError::GaveUp { program: "resolve", why });
        }
        Ok((Self { pidfd, pagemap, mm: resolved.mm, pgd: resolved.pgd }, PagemapKind(resolved.f_op)))
    }

    /// Opens a process.
    pub(super) fn open(pid: u32, program: &mut Program, kind: PagemapKind) -> Result<Opened, BpfError> {
        let pidfd = match Pidfd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(Opened::Gone),
            Err(errno) => return Ok(Opened::Refused(errno.into())),
        };
        let pagemap = match Pagemap::open(Path::new("/"), &pid.to_string()) {
            Ok(pagemap) => pagemap,
            // It has no memory: it is a kernel thread, or about to end.
            Err(error) if matches!(error.errno(), Errno::SRCH | Errno::NOENT) => return Ok(Opened::Gone),
            Err(error) => match Unreadable::new(error.source, &pidfd) {
                Unreadable::Ended => return Ok(Opened::Gone),
                Unreadable::ForNow(error) | Unreadable::ForGood(error) => return Ok(Opened::Refused(error)),
            },
        };
        for _ in 0..RESOLVE_ATTEMPTS {
            let Resolved { f_op, mm, pgd, .. } = program.resolve(&pagemap)?;
            // Another thread may have opened so many files that the kernel replaced the file table during the look-up.
            if f_op != kind.0 {
                continue;
            }
            // If the process is alive now, then the PID was its own when the pagemap was opened.
            if mm == 0 || pgd == 0 || pidfd.has_ended() {
                return Ok(Opened::Gone);
            }
            return Ok(Opened::Held(Self { pidfd, pagemap, mm, pgd }));
        }
        Err(BpfError::GaveUp { program: "resolve", why: "it found another file in place of the open pagemap" })
    }

    /// The kernel's address of the top page table.
    pub(super) fn pgd(&self) -> u64 {
        self.pgd
    }

    /// A number that no other address space has while this one is held.
    pub(super) fn identity(&self) -> u64 {
        self.mm
    }

    /// The process.
    pub(super) fn pidfd(&self) -> &Pidfd {
        &self.pidfd
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// Whether both are the same address space of the same process. False if the process called exec in between.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        // Both hold their address space, so its address is not reused. A PID can be reused.
        self.mm == other.mm && !self.pidfd.has_ended()
    }

    /// The pagemap of the process.
    pub(super) fn pagemap(&self) -> &Pagemap {
        &self.pagemap
    }

    /// Whether the page at `addr` is mapped only here, or `None` if the pagemap does not show it.
    pub(super) fn is_exclusive(&self, addr: u64) -> Option<bool> {
        self.pagemap.entry(addr).ok().flatten().map(PagemapEntry::is_exclusive)
    }
}

/// Opens the process and its pagemap.
fn open_files(pid: u32) -> Result<(Pidfd, Pagemap), Errno> {
    Ok((Pidfd::open(pid)?, Pagemap::open(Path::new("/"), &pid.to_string()).map_err(|error| error.errno())?))
}

fn files_error(pid: u32, errno: Errno) -> BpfError {
    let fix = "mount /proc, or raise the limit of open files: ulimit -n";
    BpfError::File { path: format!("/proc/{pid}/pagemap"), source: errno.into(), fix }
}
