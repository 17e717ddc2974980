//! One process: what it is and what it has mapped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, Permissions, ProcessId, TargetId};
use procfs::ProcError;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use thiserror::Error;

use crate::Pidfd;

/// The first address that belongs to the kernel on x86-64; `[vsyscall]` lies above it.
const KERNEL_SPACE: u64 = 1 << 63;

/// Set in a process's flags if it is a kernel thread (`PF_KTHREAD`, see `proc_pid_stat(5)`).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Set in a process's flags from the beginning of its end on (`PF_EXITING`).
const EXITING: u32 = 0x4;

/// Why a process cannot be watched.
#[derive(Debug, Error)]
pub enum TargetError {
    /// There is no process of this ID.
    #[error("there is no process {0}; `ps -e` lists those that there are")]
    NoSuchProcess(u32),
    /// The process has ended, but its parent has not taken notice yet.
    #[error("process {pid} ({name}) has ended already (it is a zombie); choose one that runs")]
    Ended {
        /// Its ID.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The process is a kernel thread.
    #[error("process {pid} ({name}) is a kernel thread and has no memory of its own; choose a user process")]
    KernelThread {
        /// Its ID.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// Its mappings may not be read.
    #[error(
        "process {pid} ({name}) is of user {owner}, whose memory map this user may not read: {source}; run isotherm as \
         root (with CAP_SYS_PTRACE), or choose a process of your own"
    )]
    NotPermitted {
        /// Its ID.
        pid: u32,
        /// Its name.
        name: String,
        /// The user ID of its owner.
        owner: u32,
        /// The kernel's word.
        source: io::Error,
    },
    /// Anything else that the kernel said.
    #[error("process {pid} cannot be looked up in /proc: {source}; is /proc mounted?")]
    Lookup {
        /// Its ID.
        pid: u32,
        /// What went wrong.
        source: ProcError,
    },
}

/// A process that runs, held so that its ID cannot come to mean another one.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    proc: procfs::process::Process,
    pidfd: Pidfd,
    started_unix_ns: u64,
}

impl Process {
    /// Takes hold of a process and checks that it can be watched.
    ///
    /// # Errors
    /// If there is no such process, it is a kernel thread or a zombie, or its mappings may not be read.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let lookup = |source| match source {
            ProcError::NotFound(_) => TargetError::NoSuchProcess(pid),
            source => TargetError::Lookup { pid, source },
        };
        // The ID of a thread has an entry in /proc, too, but no pidfd.
        let pidfd = Pidfd::open(pid).map_err(|_| TargetError::NoSuchProcess(pid))?;
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
                let owner = process.proc.uid().unwrap_or_default();
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                Err(TargetError::NotPermitted { pid, name, owner, source })
            }
            Err(source) => Err(lookup(source)),
        }
    }

    /// Its identity as a target.
    pub fn id(&self) -> TargetId {
        TargetId::Process(self.id)
    }

    /// The hold on it.
    pub fn pidfd(&self) -> Pidfd {
        self.pidfd.clone()
    }

    /// When it started, since the Unix epoch, to the kernel's clock tick.
    pub fn started_unix_ns(&self) -> u64 {
        self.started_unix_ns
    }

    /// Its command line with spaces between the arguments, or its name where it has none.
    pub fn command(&self) -> String {
        match self.proc.cmdline() {
            Ok(arguments) if !arguments.is_empty() => arguments.join(" "),
            _ => self.proc.stat().map(|stat| stat.comm).unwrap_or_default(),
        }
    }

    /// What it has mapped in user space; empty once it has ended.
    ///
    /// # Errors
    /// If the process is gone altogether or its mappings may not be read.
    pub fn mappings(&self) -> Result<Arc<[Mapping]>, ProcError> {
        loop {
            let mappings: Arc<[Mapping]> = self.proc.maps()?.iter().filter_map(mapping).collect();
            // A process that calls exec between the opening and the reading of its maps has nothing in them: they are of the address space
            // that it has left. Then its new one is asked for.
            if !mappings.is_empty() || self.is_ending() {
                return Ok(mappings);
            }
        }
    }

    /// Whether its first thread is about to end, or has: from then on it has no mappings.
    fn is_ending(&self) -> bool {
        self.proc.stat().map_or(true, |stat| stat.flags & EXITING != 0)
    }

    /// Its children, those of all its threads.
    ///
    /// # Errors
    /// If the process is gone, or the kernel does not keep lists of children (`CONFIG_PROC_CHILDREN`).
    pub fn children(&self) -> Result<Vec<u32>, ProcError> {
        let mut children = Vec::new();
        for task in self.proc.tasks()? {
            children.extend(task?.children()?);
        }
        Ok(children)
    }
}

/// The mapping as the monitor knows it; nothing for `[vsyscall]`, which lies in the kernel's half.
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

/// A time in clock ticks since boot, as in field 22 of `/proc/PID/stat`.
fn since_boot(ticks: u64) -> Duration {
    let ticks_per_s = procfs::ticks_per_second().max(1);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_s))
}

/// A time since boot as one since the Unix epoch.
fn started_unix_ns(since_boot: Duration) -> u64 {
    let boot_s = procfs::boot_time_secs().unwrap_or_default();
    boot_s * 1_000_000_000 + since_boot.as_nanos() as u64
}
