//! What fails.

use nix::errno::Errno;
use nix::libc;

/// A kind of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Opens a file.
    Open,
    /// Reads a file.
    Read,
    /// Writes to a file.
    Write,
    /// Maps memory.
    Mmap,
    /// Starts a thread or a process.
    Clone,
    /// Traces another process.
    Ptrace,
    /// Talks to eBPF.
    Bpf,
    /// Gives advice on memory.
    Madvise,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] =
        [Self::Open, Self::Read, Self::Write, Self::Mmap, Self::Clone, Self::Ptrace, Self::Bpf, Self::Madvise];

    /// The kind of a system call, by its number.
    pub(super) fn of(number: i64) -> Option<Self> {
        Some(match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_fork | libc::SYS_vfork => match number {
                libc::SYS_open => Self::Open,
                _ => Self::Clone,
            },
            libc::SYS_openat | libc::SYS_openat2 => Self::Open,
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv => Self::Read,
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => Self::Write,
            libc::SYS_mmap => Self::Mmap,
            libc::SYS_clone | libc::SYS_clone3 => Self::Clone,
            libc::SYS_ptrace => Self::Ptrace,
            libc::SYS_bpf => Self::Bpf,
            libc::SYS_madvise | libc::SYS_process_madvise => Self::Madvise,
            _ => return None,
        })
    }

    /// The errors with which calls of this kind fail in practice.
    pub fn errors(self) -> &'static [Errno] {
        match self {
            Self::Open => &[Errno::EMFILE, Errno::EACCES, Errno::ENOENT],
            Self::Read => &[Errno::EIO, Errno::EINTR],
            Self::Write => &[Errno::ENOSPC, Errno::EIO, Errno::EINTR],
            Self::Mmap => &[Errno::ENOMEM],
            Self::Clone => &[Errno::EAGAIN, Errno::ENOMEM],
            Self::Ptrace => &[Errno::EPERM, Errno::ESRCH],
            Self::Bpf => &[Errno::EPERM, Errno::ENOMEM],
            Self::Madvise => &[Errno::EAGAIN, Errno::ENOMEM, Errno::EPERM, Errno::EINTR],
        }
    }
}

/// A call that fails, or at which the command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: Kind,
    /// Which call of this kind it is; the first one is 1.
    pub nth: u64,
    /// What happens.
    pub effect: Effect,
}

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error.
    Error(Errno),
    /// isotherm is killed (SIGKILL) as it makes the call.
    Kill,
}
