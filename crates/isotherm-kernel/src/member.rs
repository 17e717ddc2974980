//! One process of a run, and its state at the last reading.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{Mapping, TargetId, chain};

use crate::cgroup::of_process;
use crate::ends::{Ends, InEnds};
use crate::listing::{PidNamespace, ROOT};
use crate::mapping_reader::MappingReader;
use crate::part::Part;
use crate::process::not_opened;
use crate::unreadable::Unreadable;
use crate::{Process, TargetError, monitor_cpu_time};

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
    /// The member whose address space it shares, if there is one. Its memory is that of the other one.
    pub shares: Option<TargetId>,
    /// The mappings when they were read last.
    pub(crate) mappings: Arc<[Mapping]>,
    /// Reads them.
    reader: MappingReader,
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
    /// The CPU time of this thread when the reading began, then what the reading took of it.
    took: Duration,
}

impl LastRead {
    /// What `process` is like now, whose address space has this size. `None` if it has ended.
    fn of(process: &Process, pages_mapped: Option<u64>) -> Option<Self> {
        let took = monitor_cpu_time();
        process.cpu_time().map(|cpu| Self { at: Instant::now(), cpu, pages_mapped, rests: 0, took })
    }

    /// The mappings have been read.
    fn took(self) -> Self {
        Self { took: monitor_cpu_time().saturating_sub(self.took), ..self }
    }

    /// What `process` has done since then.
    fn activity(&mut self, process: &Process) -> Activity {
        let (age, ran) = (self.at.elapsed(), process.cpu_time() != Some(self.cpu));
        if !ran && age < REST {
            return Activity::Rest;
        }
        let is_due = if ran { age >= READ_AFTER } else { self.rests >= MOST_RESTS };
        let may_differ = is_due || process.pages_mapped() != self.pages_mapped;
        if !may_differ && !ran {
            (self.at, self.rests) = (Instant::now(), self.rests + 1);
        }
        match (may_differ && age >= self.took * DEAR, ran) {
            (true, _) => Activity::Mapped,
            (false, true) => Activity::Ran,
            (false, false) => Activity::Rest,
        }
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

/// A reading of the mappings comes this many times as long after the one before as that took. So it takes at most one
/// part in this many of the time.
const DEAR: u32 = 200;

/// After this time, the size of the address space is checked even if the process has not run: a process that shares
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
    /// Opens the process with this ID. Its end is noticed from now on. `namespace` is the caller's PID namespace.
    ///
    /// # Errors
    /// Fails if it cannot be watched.
    pub(crate) fn open(pid: u32, part: &Part, ends: &Arc<Ends>, namespace: &PidNamespace) -> Result<Self, TargetError> {
        let mut reader = MappingReader::default();
        let (process, pages) = Process::find(pid)?;
        let in_ends = InEnds::new(ends, pid, process.pidfd()).map_err(|errno| not_opened(pid, errno))?;
        let read = LastRead::of(&process, Some(pages));
        let mappings = part.of(&process.first_mappings(&mut reader)?);
        Ok(Self {
            command: process.command(),
            cgroup: of_process(Path::new(ROOT), pid),
            inner_pid: namespace.inner_pid(Path::new(ROOT), pid),
            process,
            shares: None,
            mappings,
            reader,
            read: read.map(LastRead::took),
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
        let read = LastRead::of(&self.process, self.process.pages_mapped());
        self.read = None;
        self.mappings = part.of(&self.process.read_mappings(&mut self.reader)?);
        self.reader.tidy();
        let command = self.process.command();
        let is_other = !command.is_empty() && command != self.command;
        if is_other {
            self.cgroup = of_process(Path::new(ROOT), self.process.pid());
            self.command = command;
        }
        self.read = read.map(LastRead::took);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use isotherm_testing::installed_or_skip;

    use super::*;

    #[test]
    fn mappings_that_are_dear_to_read_are_not_read_again_soon() {
        let script = "import mmap, sys\nkept = []\nprint(flush=True)\n\
                      for line in sys.stdin: kept.append(mmap.mmap(-1, int(line)))";
        let mut python = Command::new("python3");
        python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = installed_or_skip!(python.spawn().map_err(|error| error.to_string()));
        // It may be a script that becomes python by execve(2), after which the mappings are read again.
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let namespace = PidNamespace::own(Path::new(ROOT));
        let mut member = Member::open(python.id(), &Part::default(), &Arc::default(), &namespace).unwrap();
        member.read.as_mut().unwrap().took = Duration::from_secs(3600);
        // Each line lets it run, and map more.
        let mut next = |member: &mut Member| {
            let began = Instant::now();
            loop {
                let before = member.process.pages_mapped();
                writeln!(python.stdin.as_mut().unwrap(), "{}", 1 << 20).unwrap();
                while member.process.pages_mapped() == before {
                    assert!(began.elapsed() < Duration::from_secs(30), "it maps nothing");
                    std::thread::yield_now();
                }
                match member.activity() {
                    Activity::Rest => {}
                    activity @ (Activity::Ran | Activity::Mapped) => return activity,
                }
            }
        };
        assert_eq!(next(&mut member), Activity::Ran);
        member.read.as_mut().unwrap().took = Duration::ZERO;
        assert_eq!(next(&mut member), Activity::Mapped);
        python.kill().unwrap();
        python.wait().unwrap();
    }
}
