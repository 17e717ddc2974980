//! The eBPF programs that report calls that map memory.

use std::fmt;
use std::time::Duration;

use libbpf_rs::{Link, Object};

use super::StacksError;
use super::calls::Call;
use crate::bpf::load_object;
use crate::watched::{self, Reports, WATCHED_MAP};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));

/// The maps of the programs.
const CALLS_MAP: &str = "calls";
const LOST_MAP: &str = "lost";

/// Programs, and where in the kernel each of them runs.
type Programs = &'static [(&'static str, &'static str)];

/// Programs that follow processes.
const PROCESSES: Programs =
    &[("forked", "sched_process_fork"), ("executed", "sched_process_exec"), ("exited", "sched_process_exit")];

/// Programs in the system calls that map memory.
const IN_CALLS: Programs =
    &[("mmap_left", "mmap(2)"), ("mremap_left", "mremap(2)"), ("brk_entered", "brk(2)"), ("brk_left", "brk(2)")];

/// Programs at the tracepoints of all system calls, which do the same.
const AT_ALL_CALLS: Programs = &[("any_entered", "sys_enter"), ("any_left", "sys_exit")];

/// Records which code of watched processes maps memory. At first, no process is watched.
pub struct StackTracer {
    object: Object,
    /// The programs run as long as these exist.
    _links: Vec<Link>,
    slows_all_calls: bool,
}

impl fmt::Debug for StackTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTracer").finish_non_exhaustive()
    }
}

impl StackTracer {
    /// Loads and attaches the eBPF programs: in the calls that map memory, or where the kernel does not allow that, at
    /// the tracepoints of all system calls.
    ///
    /// # Errors
    /// Why this does not work here.
    pub fn open() -> Result<Self, StacksError> {
        if !watched::has_process_ids_of_the_kernel() {
            return Err(StacksError::PidNamespace);
        }
        Self::with(IN_CALLS, AT_ALL_CALLS)
            .or_else(|_| Ok(Self { slows_all_calls: true, ..Self::with(AT_ALL_CALLS, IN_CALLS)? }))
    }

    /// With the programs `used` instead of the programs `unused`.
    fn with(used: Programs, unused: Programs) -> Result<Self, StacksError> {
        let unused: Vec<&str> = unused.iter().map(|(name, _)| *name).collect();
        let object = load_object(OBJECT, &unused).map_err(StacksError::Load)?;
        let links = watched::attach(&object, &[PROCESSES, used].concat());
        let links = links.map_err(|(at, source)| StacksError::Attach { at, source })?;
        Ok(Self { object, _links: links, slows_all_calls: false })
    }

    /// Whether each system call of each process of the machine takes longer as long as this exists. Otherwise only
    /// those that map memory do.
    pub fn slows_all_calls(&self) -> bool {
        self.slows_all_calls
    }

    /// Watches a process from now on.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn watch(&self, pid: u32, descendants: bool) -> Result<(), StacksError> {
        watched::watch(&self.object, pid, descendants).map_err(|source| StacksError::Map { name: WATCHED_MAP, source })
    }

    /// Watches the children that this process starts from now on, from their start.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn watch_children(&self, descendants: bool) -> Result<(), StacksError> {
        let watched = watched::watch_children(&self.object, descendants);
        watched.map_err(|source| StacksError::Map { name: WATCHED_MAP, source })
    }

    /// Watches no children that this process starts from now on.
    pub fn leave_children(&self) {
        self.leave(std::process::id());
    }

    /// Watches a process no more. Does nothing if it has ended.
    pub fn leave(&self, pid: u32) {
        watched::leave(&self.object, pid);
    }

    /// How many calls were lost since the start.
    pub(super) fn lost(&self) -> u64 {
        let [lost] = watched::numbers(&self.object, LOST_MAP);
        lost
    }

    /// The calls that the programs report.
    pub(super) fn calls(&self) -> Result<Calls, StacksError> {
        let calls = Reports::open(&self.object, CALLS_MAP, Call::read);
        calls.map(Calls).map_err(|source| StacksError::Map { name: CALLS_MAP, source })
    }
}

/// The calls that the programs have reported and that were not read yet.
pub(super) struct Calls(Reports<Call>);

impl Calls {
    /// The next calls, in the order in which they were made; none if there are none at the end of this time.
    pub(super) fn next(&self, within: Duration) -> Result<Vec<Call>, StacksError> {
        self.0.next(within).map_err(StacksError::Wait)
    }
}
