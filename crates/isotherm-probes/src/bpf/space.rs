//! One target's address space, held so that its page tables can be read.

use std::io;
use std::path::Path;

use isotherm_kernel::Pidfd;
use isotherm_kernel::pages::{Pagemap, PagemapEntry};
use rustix::io::Errno;

use super::BpfError;
use super::program::{Program, Resolved};

/// How often a look-up that was disturbed is done again.
const RESOLVE_ATTEMPTS: u32 = 8;

/// The address space of a process, and the process itself.
///
/// The open pagemap keeps the kernel's `mm_struct` and with it the top page table from being freed and used for
/// something else. After the process has ended or called exec, that table is empty: a walk finds nothing present.
#[derive(Debug)]
pub(super) struct Space {
    pidfd: Pidfd,
    pagemap: Pagemap,
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

impl Space {
    /// Takes hold of this process, and learns what kind of file a pagemap is to the kernel.
    ///
    /// It proves along the way that such a file stands for an address space in the way that the program takes it to.
    pub(super) fn open_own(program: &mut Program) -> Result<(Self, PagemapKind), BpfError> {
        let pid = std::process::id();
        let (pidfd, pagemap) = open_files(pid).map_err(|errno| files_error(pid, errno))?;
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
            Err(Errno::NOENT | Errno::SRCH) => return Ok(Opened::Gone),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Ok(Opened::Refused(errno.into())),
            Err(errno) => return Err(files_error(pid, errno)),
        };
        for _ in 0..RESOLVE_ATTEMPTS {
            let Resolved { f_op, mm, pgd, .. } = program.resolve(&pagemap)?;
            // Another thread may have opened so many files that the table of files was replaced during the look-up.
            if f_op != kind.0 {
                continue;
            }
            // If the process still lives, the ID was its own when the pagemap was opened by it.
            if mm == 0 || pgd == 0 || pidfd.has_ended() {
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
    pub(super) fn pidfd(&self) -> &Pidfd {
        &self.pidfd
    }

    /// Whether both are the same address space of the same process: not if it has called exec in between.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        // Both hold their address space, so that one cannot have taken the other's place; an ID can.
        self.mm == other.mm && !self.pidfd.has_ended()
    }

    /// In which frames its pages are.
    pub(super) fn pagemap(&self) -> &Pagemap {
        &self.pagemap
    }

    /// Whether the page at `addr` is mapped here and nowhere else; nothing if that is not told.
    pub(super) fn is_exclusive(&self, addr: u64) -> Option<bool> {
        self.pagemap.entry(addr).ok().flatten().map(PagemapEntry::is_exclusive)
    }
}

/// The process, and the file that stands for its address space.
fn open_files(pid: u32) -> Result<(Pidfd, Pagemap), Errno> {
    Ok((Pidfd::open(pid)?, Pagemap::open(Path::new("/"), &pid.to_string()).map_err(|error| error.errno())?))
}

fn files_error(pid: u32, errno: Errno) -> BpfError {
    let mend = "is /proc mounted, and is there room for two more open files a target (`ulimit -n`)?";
    BpfError::File { path: format!("/proc/{pid}/pagemap"), source: errno.into(), mend }
}
