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

/// The programs, and the tracepoint of each.
const PROGRAMS: [(&str, &str); 5] = [
    ("entered", "sys_enter"),
    ("left", "sys_exit"),
    ("forked", "sched_process_fork"),
    ("executed", "sched_process_exec"),
    ("exited", "sched_process_exit"),
];

/// Records which code of watched processes maps memory. At first, no process is watched.
pub struct StackTracer {
    object: Object,
    /// The programs run as long as these exist.
    _links: Vec<Link>,
}

impl fmt::Debug for StackTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTracer").finish_non_exhaustive()
    }
}

impl StackTracer {
    /// Loads and attaches the eBPF programs.
    ///
    /// # Errors
    /// Why this does not work here.
    pub fn open() -> Result<Self, StacksError> {
        if !watched::has_process_ids_of_the_kernel() {
            return Err(StacksError::PidNamespace);
        }
        let object = load_object(OBJECT).map_err(StacksError::Load)?;
        let links = watched::attach(&object, &PROGRAMS);
        let links = links.map_err(|(tracepoint, source)| StacksError::Attach { tracepoint, source })?;
        Ok(Self { object, _links: links })
    }

    /// Tries whether call stacks can be recorded here.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check() -> Result<(), StacksError> {
        Self::open().map(drop)
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
