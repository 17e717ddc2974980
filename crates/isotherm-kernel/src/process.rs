//! One process: its identity and its mappings.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, Permissions, ProcessId, TargetId};
use procfs::ProcError;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use rustix::io::Errno;
use thiserror::Error;

use crate::Pidfd;
use crate::host::process_cpu_time;

/// The first address of the kernel's half of the address space on x86-64. `[vsyscall]` lies above it.
const KERNEL_SPACE: u64 = 1 << 63;

/// The flag of a kernel thread (`PF_KTHREAD`, see `proc_pid_stat(5)`).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The flag of a process that is exiting (`PF_EXITING`).
const EXITING: u32 = 0x4;

/// Why a process cannot be watched.
#[derive(Debug, Error)]
pub enum TargetError {
    /// There is no process with this ID.
    #[error("there is no process {0} (`ps -e` lists the processes)")]
    NoSuchProcess(u32),
    /// The process has ended, and its parent has not waited for it yet.
    #[error("process {pid} ({name}) has already ended and is a zombie (choose a running process)")]
    Ended {
        /// The process ID.
        pid: u32,
        /// The name of the process.
        name: String,
    },
    /// The process is a kernel thread.
    #[error("process {pid} ({name}) is a kernel thread and has no memory of its own (choose a user process)")]
    KernelThread {
        /// The process ID.
        pid: u32,
        /// The name of the process.
        name: String,
    },
    /// The kernel does not let the process be held.
    #[error("process {pid} cannot be opened ({hint})")]
    Open {
        /// The process ID.
        pid: u32,
        /// How to fix it.
        hint: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The user may not read the mappings of the process.
    #[error(
        "process {pid} ({name}) belongs to {}, and its memory map cannot be read (run isotherm as root or with \
         CAP_SYS_PTRACE, or choose a process of your own)",
        owner.map_or("an unknown user".into(), |owner| format!("user {owner}"))
    )]
    NotPermitted {
        /// The process ID.
        pid: u32,
        /// The name of the process.
        name: String,
        /// The user ID of the owner; `None` if it cannot be read.
        owner: Option<u32>,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The process cannot be read from `/proc` for another reason.
    #[error("process {pid} cannot be read from /proc (is /proc mounted?)")]
    Lookup {
        /// The process ID.
        pid: u32,
        /// The error.
        source: ProcError,
    },
}

/// Why no pidfd of the process could be opened (`pidfd_open(2)`).
fn not_opened(pid: u32, errno: Errno) -> TargetError {
    let hint = match errno {
        // A thread that does not lead its process has an ID, but no pidfd: EINVAL, since Linux 6.15 ENOENT.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => return TargetError::NoSuchProcess(pid),
        Errno::MFILE | Errno::NFILE => "raise the limit of open files: ulimit -n",
        Errno::NOSYS => "Linux 5.3 or later is needed",
        Errno::PERM | Errno::ACCESS => "a seccomp filter, as in a container, may forbid pidfd_open",
        _ => "see pidfd_open(2)",
    };
    TargetError::Open { pid, hint, source: errno.into() }
}

/// A running process. A pidfd refers to it, so a later process with the same ID is not mistaken for it.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    proc: procfs::process::Process,
    pidfd: Pidfd,
    started_unix_ns: u64,
}

impl Process {
    /// Opens a process and checks that it can be monitored.
    ///
    /// # Errors
    /// Fails if there is no such process, if it is a kernel thread or a zombie, or if its mappings cannot be read.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let lookup = |source| match source {
            ProcError::NotFound(_) => TargetError::NoSuchProcess(pid),
            source => TargetError::Lookup { pid, source },
        };
        // A thread ID also has an entry in /proc, but no pidfd.
        let pidfd = Pidfd::open(pid).map_err(|errno| not_opened(pid, errno))?;
        let proc = procfs::process::Process::new(pid.cast_signed()).map_err(lookup)?;
        let stat = proc.stat().map_err(lookup)?;
        let name = stat.comm.clone();
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(TargetError::KernelThread { pid, name });
        }
        let id = ProcessId { pid, start: since_boot(stat.starttime) };
        let started_unix_ns = started_unix_ns(id.start);
        let process = Self { id, proc, pidfd, started_unix_ns };
        match process.mappings() {
            Ok(mappings) if mappings.is_empty() => Err(TargetError::Ended { pid, name }),
            Ok(_) => Ok(process),
            Err(ProcError::PermissionDenied(_)) => {
                let owner = process.proc.uid().ok();
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                Err(TargetError::NotPermitted { pid, name, owner, source })
            }
            Err(source) => Err(lookup(source)),
        }
    }

    /// The identity of the process as a target.
    pub fn id(&self) -> TargetId {
        TargetId::Process(self.id)
    }

    /// The pidfd of the process.
    pub fn pidfd(&self) -> Pidfd {
        self.pidfd.clone()
    }

    /// Whether the process has ended. It may still be a zombie.
    pub fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// The CPU time that all threads of the process have taken so far. A process that has taken none since an earlier
    /// call has not accessed its memory since then, has no new mappings and no new children, unless another process
    /// shares its address space (`CLONE_VM` without `CLONE_THREAD`). `None` if it has ended.
    pub fn cpu_time(&self) -> Option<Duration> {
        process_cpu_time(self.id.pid).filter(|_| !self.has_ended())
    }

    /// The size of the address space in pages, reserved space included. `None` if it has ended.
    pub(crate) fn pages_mapped(&self) -> Option<u64> {
        Some(self.proc.statm().ok()?.size)
    }

    /// The start time of the process, in nanoseconds since the Unix epoch, with the precision of the kernel's clock
    /// tick.
    pub fn started_unix_ns(&self) -> u64 {
        self.started_unix_ns
    }

    /// The command line, with spaces between the arguments, or the name of the process if it has no command line.
    pub fn command(&self) -> String {
        match self.proc.cmdline() {
            Ok(arguments) if !arguments.is_empty() => arguments.join(" "),
            _ => self.proc.stat().map(|stat| stat.comm).unwrap_or_default(),
        }
    }

    /// The mappings of the process in user space. The list is empty when the process has ended.
    ///
    /// # Errors
    /// Fails if `/proc/PID` no longer exists or the mappings may not be read.
    pub fn mappings(&self) -> Result<Arc<[Mapping]>, ProcError> {
        loop {
            let mappings: Arc<[Mapping]> = self.proc.maps()?.iter().filter_map(mapping).collect();
            // If the process calls execve(2) after its maps file is opened, the file still refers to the old address
            // space and is empty. Read the new one then.
            if !mappings.is_empty() || self.is_ending() {
                return Ok(mappings);
            }
        }
    }

    /// Whether the main thread is exiting or has exited. The process has no mappings from then on.
    fn is_ending(&self) -> bool {
        self.proc.stat().map_or(true, |stat| stat.flags & EXITING != 0)
    }

    /// The process IDs of the children of all threads of the process.
    ///
    /// # Errors
    /// Fails if the process no longer exists, or if the kernel does not list children (`CONFIG_PROC_CHILDREN`).
    pub fn children(&self) -> Result<Vec<u32>, ProcError> {
        let mut children = Vec::new();
        for task in self.proc.tasks()? {
            children.extend(task?.children()?);
        }
        Ok(children)
    }
}

/// Converts an entry of `/proc/PID/maps`. Returns `None` for `[vsyscall]`, which lies in the kernel's half of the
/// address space.
pub fn mapping(map: &MemoryMap) -> Option<Mapping> {
    let (start, end) = map.address;
    let range = AddrRange::new(start, end).filter(|range| range.end() < KERNEL_SPACE)?;
    let permissions = Permissions {
        read: map.perms.contains(MMPermissions::READ),
        write: map.perms.contains(MMPermissions::WRITE),
        execute: map.perms.contains(MMPermissions::EXECUTE),
        shared: map.perms.contains(MMPermissions::SHARED),
    };
    let name = match &map.pathname {
        MMapPath::Anonymous => "".into(),
        MMapPath::Path(path) => path.to_string_lossy().into(),
        MMapPath::Heap => "[heap]".into(),
        MMapPath::Stack => "[stack]".into(),
        MMapPath::TStack(thread) => format!("[stack:{thread}]").into(),
        MMapPath::Vdso => "[vdso]".into(),
        MMapPath::Vvar => "[vvar]".into(),
        MMapPath::Vsyscall => "[vsyscall]".into(),
        MMapPath::Rollup => "[rollup]".into(),
        MMapPath::Vsys(key) => format!("/SYSV{key:08x}").into(),
        MMapPath::Other(name) => format!("[{name}]").into(),
    };
    Some(Mapping { range, permissions, name, node: None })
}

/// Converts clock ticks since boot, the unit of field 22 of `/proc/PID/stat` (`proc_pid_stat(5)`).
pub fn since_boot(ticks: u64) -> Duration {
    let ticks_per_s = procfs::ticks_per_second().max(1);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_s))
}

/// Converts a time since boot to nanoseconds since the Unix epoch.
fn started_unix_ns(since_boot: Duration) -> u64 {
    let boot_s = procfs::boot_time_secs().unwrap_or_default();
    boot_s * 1_000_000_000 + since_boot.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_without_a_process_is_reported_as_such() {
        let reported = |errno| match not_opened(7, errno) {
            TargetError::NoSuchProcess(7) => "none".to_owned(),
            error => isotherm_core::chain(&error),
        };
        for errno in [Errno::SRCH, Errno::INVAL, Errno::NOENT] {
            assert_eq!(reported(errno), "none", "{errno}");
        }
        assert!(reported(Errno::MFILE).contains("ulimit -n): Too many open files"), "{}", reported(Errno::MFILE));
        assert!(reported(Errno::NOSYS).contains("Linux 5.3"), "{}", reported(Errno::NOSYS));
        assert!(reported(Errno::PERM).contains("seccomp"), "{}", reported(Errno::PERM));
    }

    #[test]
    fn an_owner_that_cannot_be_read_is_unknown_and_not_root() {
        let error = |owner| TargetError::NotPermitted {
            pid: 7,
            name: "x".into(),
            owner,
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        assert!(error(None).to_string().contains("belongs to an unknown user"));
        assert!(error(Some(1000)).to_string().contains("belongs to user 1000"));
    }
}
