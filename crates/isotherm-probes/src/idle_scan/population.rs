//! The processes whose memory is scanned, and the cgroup of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Layout, Mapping, PAGE_SIZE, TargetId, TargetSpace};
use procfs::ProcError;
use procfs::process::{Process, VmFlags, all_processes_with_root};

use super::{ScanError, Scope};
use isotherm_kernel::cgroup::{Hierarchy, is_below};
use isotherm_kernel::{mapping, since_boot};

/// A process at the time when it was listed.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) pid: u32,
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
    proc: PathBuf,
    hierarchy: Option<Hierarchy>,
}

/// The result of reading a process.
enum Looked {
    Member(Member),
    /// The process has ended, or it is a kernel thread.
    WithoutMemory,
    /// Reading its mappings is not permitted.
    Refused,
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
        Self { proc: root.join("proc"), hierarchy }
    }

    pub(super) fn hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchy.as_ref()
    }

    /// Checks that the given processes can be scanned.
    pub(super) fn check(&self, scope: &Scope) -> Result<(), ScanError> {
        let Scope::Processes(pids) = scope else { return Ok(()) };
        for &pid in pids {
            let refused = |why: &str| Err(ScanError::NoProcess(format!("process {pid} {why}")));
            let Some(process) = self.open(pid) else {
                return Err(ScanError::NoProcess(format!("there is no process {pid} (`ps -e` lists the processes)")));
            };
            match self.look(&process) {
                Looked::Member(_) => {}
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
        Ok(())
    }

    /// The processes in `scope`, sorted by PID. Adds to `notes` which given processes have ended, and how many
    /// processes are left out because access is not permitted.
    pub(super) fn members(&self, scope: &Scope, notes: &mut Vec<String>) -> Result<Vec<Member>, ScanError> {
        let mut members = Vec::new();
        let mut refused = 0;
        let mut take = |looked| match looked {
            Looked::Member(member) => members.push(member),
            Looked::WithoutMemory => {}
            Looked::Refused => refused += 1,
        };
        match scope {
            Scope::Processes(pids) => {
                let mut pids = pids.clone();
                pids.sort_unstable();
                pids.dedup();
                for pid in pids {
                    match self.open(pid).map(|process| self.look(&process)) {
                        None | Some(Looked::WithoutMemory) => note(notes, format!("process {pid} has ended")),
                        Some(looked) => take(looked),
                    }
                }
            }
            Scope::All | Scope::Cgroups(_) => {
                let failed = |e: ProcError| ScanError::Processes { path: self.proc.clone(), why: e.to_string() };
                let tops: Option<Vec<String>> = match (scope, &self.hierarchy) {
                    (Scope::Cgroups(named), Some(hierarchy)) => {
                        Some(named.iter().map(|named| hierarchy.path_of(named)).collect())
                    }
                    _ => None,
                };
                for process in all_processes_with_root(&self.proc).map_err(failed)?.flatten() {
                    if let Some(tops) = &tops {
                        let cgroup = self.hierarchy.as_ref().and_then(|all| all.of_process(process.pid.unsigned_abs()));
                        if !cgroup.is_some_and(|cgroup| tops.iter().any(|top| is_below(&cgroup, top))) {
                            continue;
                        }
                    }
                    take(self.look(&process));
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
        Ok(members)
    }

    /// Notes that a process ended after it was listed, if it was given by PID.
    pub(super) fn note_ended(&self, member: &Member, scope: &Scope, notes: &mut Vec<String>) {
        if let Scope::Processes(_) = scope {
            note(notes, format!("process {} ended during the scan", member.pid));
        }
    }

    /// The ranges that a process has locked in memory (mlock(2)); empty if there are none, or if the process has ended.
    pub(super) fn locked(&self, member: &Member) -> Vec<AddrRange> {
        let Some(process) = self.open(member.pid) else { return Vec::new() };
        // smaps is expensive, because the kernel walks all pages: read it only if memory is locked.
        if !process.status().is_ok_and(|status| status.vmlck.is_some_and(|kib| kib > 0)) {
            return Vec::new();
        }
        let maps = process.smaps();
        let locked =
            maps.iter().flat_map(|maps| maps.iter()).filter(|map| map.extension.vm_flags.contains(VmFlags::LO));
        locked.filter_map(|map| AddrRange::new(map.address.0, map.address.1)).collect()
    }

    fn open(&self, pid: u32) -> Option<Process> {
        Process::new_with_root(self.proc.join(pid.to_string())).ok()
    }

    fn look(&self, process: &Process) -> Looked {
        let maps = match process.maps() {
            Ok(maps) => maps,
            Err(ProcError::PermissionDenied(_)) => return Looked::Refused,
            Err(_) => return Looked::WithoutMemory,
        };
        let mappings: Arc<[Mapping]> = maps.iter().filter_map(mapping).collect();
        if mappings.is_empty() {
            return Looked::WithoutMemory;
        }
        let pid = process.pid.unsigned_abs();
        let stat = process.stat().ok();
        let command = match process.cmdline() {
            Ok(arguments) if !arguments.is_empty() => arguments.join(" "),
            _ => stat.as_ref().map(|stat| stat.comm.clone()).unwrap_or_default(),
        };
        let start = stat.map_or(Duration::ZERO, |stat| since_boot(stat.starttime));
        let cgroup = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.of_process(pid));
        Looked::Member(Member { pid, start, command, cgroup, resident: resident(process), mappings })
    }
}

fn note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// The resident memory of a process in bytes, as `/proc/PID/statm` reports it.
fn resident(process: &Process) -> u64 {
    process.statm().map_or(0, |statm| statm.resident * PAGE_SIZE)
}
