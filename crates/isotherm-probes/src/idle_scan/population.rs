//! The processes whose memory is scanned, and the cgroup of each.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Layout, Mapping, TargetId, TargetSpace};
use procfs::ProcError;
use procfs::process::{Process, all_processes_with_root};
use rustix::io::Errno;

use super::{ProcessScope, ScanError, Scope, tops};
use isotherm_kernel::cgroup::Hierarchy;
use isotherm_kernel::{
    MappingNames, Part, Selection, TargetError, command_line, inner_pid, memory_id, read_mappings, resident, since_boot,
};

/// A process at the time when it was listed.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) inner_pid: Option<u32>,
    /// When the process started, since boot.
    pub(super) start: Duration,
    pub(super) command: String,
    pub(super) cgroup: Option<String>,
    /// Resident memory in bytes.
    pub(super) resident: u64,
    /// The mappings; not empty.
    pub(super) mappings: Arc<[Mapping]>,
}

/// Lists processes.
#[derive(Debug)]
pub(super) struct Population {
    root: PathBuf,
    proc: PathBuf,
    hierarchy: Option<Hierarchy>,
}

/// The result of reading a process.
enum Looked {
    Member(Member),
    /// The process has ended, or it is a kernel thread.
    WithoutMemory,
    /// It has mapped nothing that belongs to the part of processes that is scanned.
    OutsidePart,
    /// Reading its mappings is not permitted.
    Refused,
    /// Its mappings cannot be read for another reason, such as too many open files.
    Failed(io::Error),
}

impl Member {
    pub(super) fn id(&self) -> TargetId {
        TargetId::process(self.pid, self.start)
    }

    pub(super) fn space(&self) -> TargetSpace {
        TargetSpace { id: self.id(), layout: Layout::Process, mappings: Arc::clone(&self.mappings) }
    }
}

impl Population {
    pub(super) fn new(root: &Path, hierarchy: Option<Hierarchy>) -> Self {
        Self { root: root.into(), proc: root.join("proc"), hierarchy }
    }

    pub(super) fn hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchy.as_ref()
    }

    /// The processes that belong to a selection.
    fn selected(&self, selection: &Selection) -> Result<Vec<u32>, ScanError> {
        selection.find(&self.root).map_err(|error| self.unlisted(&error))
    }

    /// The processes cannot be listed.
    fn unlisted(&self, error: &io::Error) -> ScanError {
        ScanError::Processes { path: self.proc.clone(), why: error.to_string() }
    }

    /// Checks that the given processes can be scanned.
    pub(super) fn check(&self, scope: &Scope) -> Result<(), ScanError> {
        let Scope::Processes(ProcessScope { selection, part, waits }) = scope else { return Ok(()) };
        if let Some(count) = selection.too_many(&self.root).map_err(|error| self.unlisted(&error))? {
            return Err(ScanError::TooMany { selection: selection.to_string(), count, most: selection.most });
        }
        if selection.is_open() && !waits && self.selected(selection)?.is_empty() {
            let (selection, advice) = (selection.to_string(), selection.advice(&self.root));
            return Err(TargetError::NoneSelected { selection, advice }.into());
        }
        for pid in selection.named_pids() {
            let refused = |why: &str| Err(ScanError::NoProcess(format!("process {pid} {why}")));
            let looked = match self.open(pid) {
                Ok(Some(process)) => self.look(&process, part),
                Ok(None) => {
                    let why = format!("there is no process {pid} (`ps -e` lists the processes)");
                    return Err(ScanError::NoProcess(why));
                }
                Err(error) => Looked::Failed(error),
            };
            match looked {
                Looked::Member(_) | Looked::OutsidePart => {}
                Looked::Failed(error) => return refused(&format!("cannot be scanned: {error}")),
                Looked::WithoutMemory => {
                    return refused("has no memory: it has ended, or it is a kernel thread (choose another process)");
                }
                Looked::Refused => {
                    return refused(
                        "cannot be scanned: access is not permitted (run isotherm as root or with CAP_SYS_PTRACE, or \
                         choose a process of your own)",
                    );
                }
            }
        }
        if !part.is_whole() && !waits && self.members(scope, &mut Vec::new())?.is_empty() {
            return Err(TargetError::NothingMapped { part: part.to_string(), selection: selection.to_string() }.into());
        }
        Ok(())
    }

    /// The processes in `scope`, sorted by PID. Adds to `notes` which given processes have ended, and how many
    /// processes are left out because access is not permitted.
    pub(super) fn members(&self, scope: &Scope, notes: &mut Vec<String>) -> Result<Vec<Member>, ScanError> {
        let mut members = Vec::new();
        let mut refused = 0;
        let mut failed: Vec<io::Error> = Vec::new();
        let mut take = |looked| match looked {
            Looked::Member(member) => members.push(member),
            Looked::WithoutMemory | Looked::OutsidePart => {}
            Looked::Refused => refused += 1,
            Looked::Failed(error) => failed.push(error),
        };
        match scope {
            Scope::Processes(ProcessScope { selection, part, .. }) => {
                let found = self.selected(selection)?;
                if found.len() > selection.most {
                    let most = selection.most;
                    note(notes, format!("{} processes match; only the first {most} are scanned", found.len()));
                }
                for pid in found.into_iter().take(selection.most) {
                    match self.open(pid).map(|process| process.map(|process| self.look(&process, part))) {
                        Ok(None | Some(Looked::WithoutMemory)) if selection.named_pids().any(|named| named == pid) => {
                            note(notes, format!("process {pid} has ended"));
                        }
                        Ok(None | Some(Looked::WithoutMemory)) => {}
                        Ok(Some(looked)) => take(looked),
                        Err(error) => take(Looked::Failed(error)),
                    }
                }
            }
            Scope::All | Scope::Cgroups(_) => {
                let part = &Part::default();
                let failed = |e: ProcError| ScanError::Processes { path: self.proc.clone(), why: e.to_string() };
                let tops = match (scope, &self.hierarchy) {
                    (Scope::Cgroups(named), Some(hierarchy)) => Some(tops(hierarchy, named)?),
                    _ => None,
                };
                for process in all_processes_with_root(&self.proc).map_err(failed)?.flatten() {
                    if let Some(tops) = &tops {
                        let cgroup = self.hierarchy.as_ref().and_then(|all| all.of_process(process.pid.unsigned_abs()));
                        if !cgroup.is_some_and(|cgroup| tops.iter().any(|top| top.matches_at_or_above(&cgroup))) {
                            continue;
                        }
                    }
                    take(self.look(&process, part));
                }
            }
        }
        members.sort_by_key(|member| member.pid);
        if refused > 0 {
            let (processes, their) = if refused == 1 {
                ("1 process is".into(), "its")
            } else {
                (format!("{refused} processes are"), "their")
            };
            let why = format!("access to {their} memory needs CAP_SYS_PTRACE in {their} user namespace");
            note(notes, format!("{processes} left out: {why}"));
        }
        if let [error, ..] = &failed[..] {
            let (count, processes) = (failed.len(), if failed.len() == 1 { "process is" } else { "processes are" });
            note(notes, format!("{count} {processes} left out, because reading failed: {error}"));
        }
        Ok(members)
    }

    /// Notes that a process ended after it was listed, or cannot be observed, if it was given by PID.
    pub(super) fn note_ended(&self, member: &Member, scope: &Scope, notes: &mut Vec<String>) {
        let pid = member.pid;
        let Scope::Processes(ProcessScope { selection, .. }) = scope else { return };
        if !selection.named_pids().any(|named| named == pid) {
            return;
        }
        if memory_id(&self.root, pid) == pid {
            note(notes, format!("process {pid} ended during the scan"));
        } else {
            let why = "its main thread has ended, and the kernel lets nobody else clear accessed bits";
            note(notes, format!("process {pid} cannot be observed: {why}"));
        }
    }

    /// Whether a process has locked memory (mlock(2)).
    pub(super) fn has_locked(&self, member: &Member) -> bool {
        let Ok(Some(process)) = self.open(member.pid) else { return false };
        process.status().is_ok_and(|status| status.vmlck.is_some_and(|kib| kib > 0))
    }

    /// `None` if there is no such process.
    fn open(&self, pid: u32) -> io::Result<Option<Process>> {
        match Process::new_with_root(self.proc.join(pid.to_string())) {
            Ok(process) => Ok(Some(process)),
            Err(ProcError::NotFound(_)) => Ok(None),
            Err(ProcError::PermissionDenied(_)) => Err(Errno::ACCESS.into()),
            Err(ProcError::Io(error, _)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Reads the part of a process that is scanned.
    fn look(&self, process: &Process, part: &Part) -> Looked {
        let pid = process.pid.unsigned_abs();
        let id = memory_id(&self.root, pid);
        let maps = File::open(self.proc.join(id.to_string()).join("maps"));
        let mappings = match maps.and_then(|maps| read_mappings(maps, &mut MappingNames::default(), None)) {
            Ok(mappings) if mappings.is_empty() => return Looked::WithoutMemory,
            Ok(mappings) => mappings,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Looked::Refused,
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::NOENT)) => {
                return Looked::WithoutMemory;
            }
            Err(e) => return Looked::Failed(e),
        };
        let mappings = part.of(&mappings);
        if mappings.is_empty() {
            return Looked::OutsidePart;
        }
        let start = process.stat().map_or(Duration::ZERO, |stat| since_boot(stat.starttime));
        let cgroup = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.of_process(pid));
        let command = command_line(&self.root, pid);
        let mapped = mappings.iter().map(|mapping| mapping.range.size()).sum();
        let resident = resident(&self.root, pid).unwrap_or_default().min(mapped);
        let inner_pid = inner_pid(&self.root, pid);
        Looked::Member(Member { pid, inner_pid, start, command, cgroup, resident, mappings })
    }
}

fn note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
