//! One process of a run, and what it was like when it was read last.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{Mapping, chain};

use crate::cgroup::of_process;
use crate::ends::{Ends, InEnds};
use crate::listing::{ROOT, inner_pid};
use crate::maps::MappingNames;
use crate::part::Part;
use crate::process::not_opened;
use crate::unreadable::Unreadable;
use crate::{Process, TargetError};

/// A process of a run.
#[derive(Debug)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// The command line when it was read last. `execve(2)` changes it.
    pub command: String,
    /// The path of the cgroup, as [`of_process`](crate::cgroup::of_process) has it, when the command line was read for
    /// the first time or became another one. Services are moved to their cgroup before they execute their program.
    pub cgroup: Option<String>,
    /// The process ID in the PID namespace of the process, as [`inner_pid`](crate::inner_pid) has it.
    pub inner_pid: Option<u32>,
    /// The mappings when they were read last.
    pub(crate) mappings: Arc<[Mapping]>,
    /// Their names.
    names: MappingNames,
    /// What the process was like just before the mappings were read. `None` if they could not be read the last time.
    read: Option<LastRead>,
    /// The error number of the last attempt to read the mappings, if it failed; 0 for an error without one.
    failed: Option<i32>,
    /// Whether its children were never looked for: it may have some, even if it rests.
    is_new: bool,
    /// Whether the process leaves when it becomes another program that the selection does not name.
    pub(crate) is_selected: bool,
    /// Its end is noticed as long as it is a member.
    _in_ends: InEnds,
}

/// What a process was like just before its mappings were read.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Instant,
    cpu: Duration,
    pages_mapped: Option<u64>,
    /// How many times it was found to be at rest, and as large as before.
    rests: u32,
}

impl LastRead {
    /// What `process` is like now. `None` if it has ended.
    fn of(process: &Process) -> Option<Self> {
        let pages_mapped = process.pages_mapped();
        process.cpu_time().map(|cpu| Self { at: Instant::now(), cpu, pages_mapped, rests: 0 })
    }

    /// What `process` has done since then.
    fn activity(&mut self, process: &Process) -> Activity {
        let (age, ran) = (self.at.elapsed(), process.cpu_time() != Some(self.cpu));
        if !ran && age < REST {
            return Activity::Rest;
        }
        let is_due = if ran { age >= READ_AFTER } else { self.rests >= MOST_RESTS };
        if is_due || process.pages_mapped() != self.pages_mapped {
            return Activity::Mapped;
        }
        if ran {
            return Activity::Ran;
        }
        (self.at, self.rests) = (Instant::now(), self.rests + 1);
        Activity::Rest
    }
}

/// What a process has done since its mappings were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Nothing: it has not run.
    Rest,
    /// It has run, and may have new children. Its address space is as large as before.
    Ran,
    /// Its mappings may be other ones.
    Mapped,
}

/// The mappings of a process that has run are read again after this time even if its address space is as large as
/// before.
const READ_AFTER: Duration = Duration::from_secs(1);

/// After this time, the size of the address space is looked at even if the process has not run: a process that shares
/// its address space may have changed it.
const REST: Duration = Duration::from_secs(10);

/// The mappings of a process that has not run are read again after this many rests in which its size has not changed.
const MOST_RESTS: u32 = 5;

/// What an update of a process has found.
#[derive(Debug)]
pub(crate) struct Update {
    /// Whether the process has become another program.
    pub(crate) is_other: bool,
    /// What the user must know of.
    pub(crate) news: Option<String>,
}

impl Member {
    /// Opens the process with this ID. Its end is noticed from now on.
    ///
    /// # Errors
    /// Fails if it cannot be watched.
    pub(crate) fn open(pid: u32, part: &Part, ends: &Arc<Ends>) -> Result<Self, TargetError> {
        let mut names = MappingNames::default();
        let process = Process::find(pid)?;
        let in_ends = InEnds::new(ends, pid, process.pidfd()).map_err(|errno| not_opened(pid, errno))?;
        let read = LastRead::of(&process);
        let mappings = part.of(&process.first_mappings(&mut names)?);
        Ok(Self {
            command: process.command(),
            cgroup: of_process(Path::new(ROOT), pid),
            inner_pid: inner_pid(Path::new(ROOT), pid),
            process,
            mappings,
            names,
            read,
            failed: None,
            is_new: true,
            is_selected: false,
            _in_ends: in_ends,
        })
    }

    /// What the process has done since its mappings were read.
    pub(crate) fn activity(&mut self) -> Activity {
        let activity = self.read.as_mut().map_or(Activity::Mapped, |read| read.activity(&self.process));
        match (activity, std::mem::take(&mut self.is_new)) {
            (Activity::Rest, true) => Activity::Ran,
            (activity, _) => activity,
        }
    }

    /// Reads the mappings, the command line, and the cgroup if the command line is another one. On an error, all stay
    /// as they were. Returns whether the process has become another program.
    fn read(&mut self, part: &Part) -> Result<bool, Unreadable> {
        let read = LastRead::of(&self.process);
        self.read = None;
        self.mappings = part.of(&self.process.read_mappings(&mut self.names)?);
        self.names.tidy();
        let command = self.process.command();
        let is_other = !command.is_empty() && command != self.command;
        if is_other {
            self.cgroup = of_process(Path::new(ROOT), self.process.pid());
            self.command = command;
        }
        self.read = read;
        Ok(is_other)
    }

    /// Reads the process again. If it cannot be read at the moment, it stays as it was.
    pub(crate) fn update(&mut self, part: &Part) -> Result<Update, Unreadable> {
        match self.read(part) {
            Ok(is_other) => {
                self.failed = None;
                Ok(Update { is_other, news: None })
            }
            Err(Unreadable::ForNow(error)) => {
                let failed = Some(error.raw_os_error().unwrap_or_default());
                let is_news = std::mem::replace(&mut self.failed, failed) != failed;
                let error = Unreadable::ForNow(error);
                let text = || {
                    let (id, name) = (self.process.id(), self.process.name());
                    format!(
                        "{id} ({name}): {}; its mappings stay as they were, and isotherm tries again",
                        chain(&error)
                    )
                };
                Ok(Update { is_other: false, news: is_news.then(text) })
            }
            Err(error) => Err(error),
        }
    }
}
