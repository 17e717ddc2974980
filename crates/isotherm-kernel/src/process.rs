//! One process: its identity and its mappings.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, ProcessId, TargetId};
use procfs::ProcError;
use rustix::io::Errno;
use thiserror::Error;

use crate::Pidfd;
use crate::host::CpuClock;
use crate::listing::ROOT;
use crate::mapping_reader::MappingReader;
use crate::maps::{Line, MappingNames, read_lines, read_mappings};
use crate::names::{command_line, memory_id, process_name};
use crate::procmap;
use crate::unreadable::{Unreadable, hint};

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
    #[error("process {pid} cannot be read from /proc{}", lookup_hint(source))]
    Lookup {
        /// The process ID.
        pid: u32,
        /// The error.
        source: io::Error,
    },
    /// The processes of the machine cannot be listed.
    #[error("the processes cannot be listed from /proc{}", lookup_hint(.0))]
    Listing(#[source] io::Error),
    /// No process belongs to the selection.
    #[error("no process matches: {selection} ({advice})")]
    NoneSelected {
        /// What was asked for.
        selection: String,
        /// What to do.
        advice: String,
    },
    /// Nothing of the processes belongs to the part that is asked for.
    #[error("nothing is mapped that matches: {part}, in {selection} (/proc/PID/maps lists the mappings)")]
    NothingMapped {
        /// The part that was asked for.
        part: String,
        /// The processes that were asked for.
        selection: String,
    },
    /// More processes belong to the selection than can be watched.
    #[error("{count} processes match, and at most {most} are watched: {selection} (ask for fewer)")]
    TooMany {
        /// What was asked for.
        selection: String,
        /// How many processes match.
        count: usize,
        /// How many are watched at most.
        most: usize,
    },
    /// The process was watched and lives, but cannot be read any longer.
    #[error("process {pid} ({name}) is no longer watched")]
    Lost {
        /// The process ID.
        pid: u32,
        /// The name of the process.
        name: String,
        /// Why.
        source: Unreadable,
    },
}

impl TargetError {
    /// Whether there is no process with memory of its own (any longer), so that nobody misses it.
    pub(crate) fn is_no_process(&self) -> bool {
        matches!(self, Self::NoSuchProcess(_) | Self::Ended { .. } | Self::KernelThread { .. })
    }
}

fn lookup_hint(error: &io::Error) -> &'static str {
    match hint(error) {
        "" if error.kind() == io::ErrorKind::NotFound => " (is /proc mounted?)",
        hint => hint,
    }
}

/// The error of the system call, or `InvalidData` for a file that is not as the kernel writes it.
fn io_error(error: ProcError) -> io::Error {
    match error {
        ProcError::PermissionDenied(_) => Errno::ACCESS.into(),
        ProcError::NotFound(_) => Errno::NOENT.into(),
        ProcError::Io(error, _) => error,
        garbage => io::Error::new(io::ErrorKind::InvalidData, garbage),
    }
}

/// Why no pidfd of the process could be opened (`pidfd_open(2)`), or its end cannot be noticed (`epoll_ctl(2)`).
pub(crate) fn not_opened(pid: u32, errno: Errno) -> TargetError {
    let hint = match errno {
        // A thread that does not lead its process has an ID, but no pidfd: EINVAL, since Linux 6.15 ENOENT.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => return TargetError::NoSuchProcess(pid),
        Errno::MFILE | Errno::NFILE => "raise the limit of open files: ulimit -n",
        Errno::NOSPC => "raise the limit fs.epoll.max_user_watches: sysctl",
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
    cpu_clock: Option<CpuClock>,
    started_unix_ns: u64,
}

/// How many times mappings that read as empty, although the process lives, are read again.
const ATTEMPTS: u32 = 16;

impl Process {
    /// Opens a process and checks that it can be monitored.
    ///
    /// # Errors
    /// Fails if there is no such process, if it is a kernel thread or a zombie, or if its mappings cannot be read.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let (process, _) = Self::find(pid)?;
        process.first_mappings(&mut MappingReader::default())?;
        Ok(process)
    }

    /// Opens a process without a look at its mappings. Returns the size of its address space with it, as
    /// [`pages_mapped`](Self::pages_mapped) has it.
    ///
    /// # Errors
    /// Fails if there is no such process, or if it is a kernel thread.
    pub(crate) fn find(pid: u32) -> Result<(Self, u64), TargetError> {
        let lookup = |source| match io_error(source) {
            error if error.kind() == io::ErrorKind::NotFound => TargetError::NoSuchProcess(pid),
            source => TargetError::Lookup { pid, source },
        };
        // A thread ID also has an entry in /proc, but no pidfd.
        let pidfd = Pidfd::open(pid).map_err(|errno| not_opened(pid, errno))?;
        let proc = procfs::process::Process::new(pid.cast_signed()).map_err(lookup)?;
        let stat = proc.stat().map_err(lookup)?;
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(TargetError::KernelThread {
                pid,
                name: process_name(Path::new(ROOT), pid).unwrap_or_default(),
            });
        }
        let id = ProcessId { pid, start: since_boot(stat.starttime) };
        let found = Self { id, proc, pidfd, cpu_clock: CpuClock::of(pid), started_unix_ns: started_unix_ns(id.start) };
        Ok((found, stat.vsize / PAGE_SIZE))
    }

    /// Reads the mappings of a process that was just opened.
    ///
    /// # Errors
    /// Fails if the process is a zombie, or if its mappings cannot be read.
    pub(crate) fn first_mappings(&self, reader: &mut MappingReader) -> Result<Arc<[Mapping]>, TargetError> {
        let pid = self.id.pid;
        self.read_mappings(reader).map_err(|error| match error {
            Unreadable::Ended => match process_name(Path::new(ROOT), pid) {
                Ok(name) => TargetError::Ended { pid, name },
                Err(_) => TargetError::NoSuchProcess(pid),
            },
            Unreadable::ForGood(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                TargetError::NotPermitted { pid, name: self.name(), owner: self.proc.uid().ok(), source }
            }
            Unreadable::ForNow(source) | Unreadable::ForGood(source) => TargetError::Lookup { pid, source },
        })
    }

    /// The identity of the process as a target.
    pub fn id(&self) -> TargetId {
        TargetId::Process(self.id)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.id.pid
    }

    /// The pidfd of the process.
    pub fn pidfd(&self) -> Pidfd {
        self.pidfd.clone()
    }

    /// Whether the process has ended, with all its threads. It may still be a zombie.
    pub fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// The CPU time that all threads of the process have taken so far. A process that has taken none since an earlier
    /// call has not accessed its memory since then, has no new mappings and no new children, unless another process
    /// shares its address space (`CLONE_VM` without `CLONE_THREAD`). `None` after its end, unless a later process has
    /// its ID.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.cpu_clock?.now()
    }

    /// The size of the address space in pages, reserved space included. `None` if it has ended; 0 if the main thread
    /// has.
    pub(crate) fn pages_mapped(&self) -> Option<u64> {
        Some(self.proc.statm().ok()?.size)
    }

    /// The start time of the process, in nanoseconds since the Unix epoch, with the precision of the kernel's clock
    /// tick.
    pub fn started_unix_ns(&self) -> u64 {
        self.started_unix_ns
    }

    /// The name of the process. Empty if it cannot be read.
    pub(crate) fn name(&self) -> String {
        process_name(Path::new(ROOT), self.id.pid).unwrap_or_default()
    }

    /// The command line, with spaces between the arguments, or the name of the process if it has no command line. See
    /// [`command_line`].
    pub fn command(&self) -> String {
        command_line(Path::new(ROOT), self.id.pid)
    }

    /// The mappings of the process in user space; never empty.
    ///
    /// # Errors
    /// Says whether the process has ended, or why its mappings cannot be read.
    pub fn mappings(&self) -> Result<Arc<[Mapping]>, Unreadable> {
        self.read_mappings(&mut MappingReader::default())
    }

    /// Reads the mappings with a reader that may have read them before. The list is a new one even if nothing has
    /// changed: probes see from that that it was read.
    pub(crate) fn read_mappings(&self, reader: &mut MappingReader) -> Result<Arc<[Mapping]>, Unreadable> {
        read_maps(self.id.pid, &self.pidfd, |maps| {
            let mappings = reader.read(&maps)?;
            Ok((!mappings.is_empty()).then_some(mappings))
        })
    }

    /// The process IDs of the children of all threads of the process.
    ///
    /// # Errors
    /// Says whether the process has ended, or why the children cannot be read: the kernel may not list them
    /// (`CONFIG_PROC_CHILDREN`).
    pub fn children(&self) -> Result<Vec<u32>, Unreadable> {
        let unreadable = |error| Unreadable::new(io_error(error), &self.pidfd);
        let mut children = Vec::new();
        for task in self.proc.tasks().map_err(unreadable)? {
            match task.and_then(|task| task.children()) {
                Ok(of_thread) => children.extend(of_thread),
                // This thread has ended meanwhile, or the kernel lists no children at all.
                Err(ProcError::NotFound(path)) if !self.lists_children() => {
                    return Err(unreadable(ProcError::NotFound(path)));
                }
                Err(ProcError::NotFound(_)) => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        Ok(children)
    }

    /// Whether the kernel lists the children of the main thread, which has an entry as long as the process.
    fn lists_children(&self) -> bool {
        Path::new(&format!("{ROOT}proc/{0}/task/{0}/children", self.id.pid)).exists()
    }
}

/// The mappings of process `pid`, which `process` refers to, in user space; never empty.
///
/// # Errors
/// As [`Process::mappings`].
pub fn mappings_of(pid: u32, process: &Pidfd) -> Result<Arc<[Mapping]>, Unreadable> {
    read_maps(pid, process, |maps| {
        let mappings = read_mappings(maps, &mut MappingNames::default(), None)?;
        Ok((!mappings.is_empty()).then_some(mappings))
    })
}

/// The addresses of the mappings of process `pid`, which `process` refers to; never empty.
///
/// # Errors
/// As [`Process::mappings`].
pub fn mapped_ranges(pid: u32, process: &Pidfd) -> Result<Vec<AddrRange>, Unreadable> {
    read_maps(pid, process, |maps| all_ranges(&maps))
}

/// The addresses of those mappings of process `pid`, which `process` refers to, that have a part of `ranges`, and maybe
/// of others: a kernel before Linux 6.11 lists only all of them.
///
/// # Errors
/// As [`Process::mappings`].
pub fn mapped_within(pid: u32, process: &Pidfd, ranges: &[AddrRange]) -> Result<Vec<AddrRange>, Unreadable> {
    read_maps(pid, process, |maps| match procmap::mapped_within(&maps, ranges) {
        Ok(Some(mapped)) => Ok(Some(mapped)),
        Ok(None) => all_ranges(&maps),
        // The file is empty then.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    })
}

/// The addresses of all mappings in a file `maps`. `None` if it is empty.
fn all_ranges(maps: &File) -> io::Result<Option<Vec<AddrRange>>> {
    let mut ranges = Vec::new();
    read_lines(maps, |line| {
        if let Line::Mapping(range, ..) = line {
            ranges.push(range);
        }
    })?;
    Ok((!ranges.is_empty()).then_some(ranges))
}

/// Reads the file `maps` of process `pid`, which `process` refers to. `read` returns `None` if the file is empty.
fn read_maps<T>(
    pid: u32,
    process: &Pidfd,
    mut read: impl FnMut(File) -> io::Result<Option<T>>,
) -> Result<T, Unreadable> {
    let root = Path::new(ROOT);
    let unreadable = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::SRCH | Errno::NOENT) if is_ending(pid) => Unreadable::Ended,
        _ => Unreadable::new(error, process),
    };
    let mut read = |id: u32| File::open(root.join(format!("proc/{id}/maps"))).and_then(&mut read);
    for _ in 0..ATTEMPTS {
        let mut mappings = read(pid).map_err(unreadable)?;
        if mappings.is_none() {
            // Either the main thread has ended and others go on, or the process has called execve(2) after its maps
            // file was opened: then the file refers to the old address space. Read again then.
            let id = memory_id(root, pid);
            if id != pid {
                mappings = read(id).map_err(unreadable)?;
            } else if is_ending(pid) {
                return Err(Unreadable::Ended);
            }
        }
        // If the process is alive now, then the ID was its own when the file was opened.
        if process.has_ended() {
            return Err(Unreadable::Ended);
        }
        if let Some(mappings) = mappings {
            return Ok(mappings);
        }
    }
    Err(unreadable(Errno::AGAIN.into()))
}

/// Whether the main thread is exiting or has exited. Without another thread that lives, the process has no mappings
/// from then on.
fn is_ending(pid: u32) -> bool {
    match procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.stat()) {
        Ok(stat) => stat.flags & EXITING != 0,
        Err(error) => matches!(error, ProcError::NotFound(_)),
    }
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
    fn the_mappings_in_some_ranges_are_those_of_all_that_have_a_part_of_them() {
        let (pid, mut sleep) = sleeping();
        let process = Pidfd::open(pid).unwrap();
        let all = mapped_ranges(pid, &process).unwrap();
        let [first, second, .., last] = all[..] else { panic!("{all:?}") };
        let range = |from, to| AddrRange::new(from, to).unwrap();
        let beyond = range(last.end(), last.end() + 4096);
        for ranges in [
            vec![],
            vec![range(second.start() + 4096, second.start() + 8192)],
            vec![range(0, first.start()), beyond],
            vec![range(0, beyond.end())],
            vec![last, first, first],
        ] {
            let is_wanted = |mapping: &AddrRange| ranges.iter().any(|range| range.intersection(*mapping).is_some());
            let wanted: Vec<AddrRange> = all.iter().copied().filter(is_wanted).collect();
            let mut found = mapped_within(pid, &process, &ranges).unwrap();
            found.retain(is_wanted);
            assert_eq!(found, wanted, "{ranges:?}");
        }
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(matches!(mapped_within(pid, &process, &[first]), Err(Unreadable::Ended)));
    }

    /// A process that has begun to sleep.
    fn sleeping() -> (u32, std::process::Child) {
        let sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", sleep.id())).unwrap();
        while !state().contains("(sleep) S") {
            std::thread::yield_now();
        }
        (sleep.id(), sleep)
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
