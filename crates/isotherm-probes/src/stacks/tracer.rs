//! The eBPF programs that report calls that map memory.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::StacksError;
use super::calls::Call;
use crate::bpf::load_object;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));

/// The namespace of process IDs that this process is in.
const PID_NAMESPACE: &str = "/proc/self/ns/pid";
/// The inode number of the first namespace of process IDs (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Flags of a process, as in `calls.bpf.c`.
const WATCHED: u32 = 1;
const CHILDREN: u32 = 2;
const DESCENDANTS: u32 = 4;

/// The maps of the programs.
const WATCHED_MAP: &str = "watched";
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

/// The most calls that are read at a time.
const AT_A_TIME: usize = 64;

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
        if fs::metadata(PID_NAMESPACE).is_ok_and(|namespace| namespace.ino() != FIRST_PID_NAMESPACE) {
            return Err(StacksError::PidNamespace);
        }
        let object = load_object(OBJECT).map_err(StacksError::Load)?;
        let links = PROGRAMS.iter().map(|&(name, tracepoint)| {
            let program = object.progs_mut().find(|program| program.name() == name);
            let attached = match program {
                Some(program) => program.attach_trace(),
                None => Err(missing()),
            };
            attached.map_err(|source| StacksError::Attach { tracepoint, source })
        });
        let links = links.collect::<Result<_, _>>()?;
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
        self.set(pid, WATCHED | if descendants { DESCENDANTS } else { 0 })
    }

    /// Watches the children that this process starts from now on, from their start.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn watch_children(&self, descendants: bool) -> Result<(), StacksError> {
        self.set(std::process::id(), if descendants { DESCENDANTS } else { CHILDREN })
    }

    /// Watches no children that this process starts from now on.
    pub fn leave_children(&self) {
        self.leave(std::process::id());
    }

    /// Watches a process no more. Does nothing if it has ended.
    pub fn leave(&self, pid: u32) {
        if let Ok(watched) = map(&self.object, WATCHED_MAP) {
            // It is not in the map if it has ended.
            let _ = watched.delete(&pid.to_ne_bytes());
        }
    }

    fn set(&self, pid: u32, flags: u32) -> Result<(), StacksError> {
        let set = map(&self.object, WATCHED_MAP)?.update(&pid.to_ne_bytes(), &flags.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|source| StacksError::Map { name: WATCHED_MAP, source })
    }

    /// How many calls were lost since the start.
    pub(super) fn lost(&self) -> u64 {
        let count =
            map(&self.object, LOST_MAP).ok().and_then(|lost| lost.lookup(&[0; 4], MapFlags::ANY).ok().flatten());
        count.and_then(|count| count.first_chunk().copied().map(u64::from_ne_bytes)).unwrap_or(0)
    }

    /// The calls that the programs report.
    pub(super) fn calls(&self) -> Result<Calls, StacksError> {
        Calls::open(&self.object)
    }
}

/// The error for a part of the programs that is not there.
fn missing() -> libbpf_rs::Error {
    libbpf_rs::Error::from_raw_os_error(Errno::NOENT.raw_os_error())
}

fn map<'a>(object: &'a Object, name: &'static str) -> Result<Map<'a>, StacksError> {
    let found = object.maps().find(|map| map.name() == name);
    found.ok_or_else(|| StacksError::Map { name, source: missing() })
}

/// The calls that the programs have reported and that were not read yet.
pub(super) struct Calls {
    ring: RingBuffer<'static>,
    /// Becomes readable when there are calls.
    ready: OwnedFd,
    read: Rc<RefCell<Vec<Call>>>,
}

impl Calls {
    fn open(object: &Object) -> Result<Self, StacksError> {
        let error = |source| StacksError::Map { name: CALLS_MAP, source };
        let read: Rc<RefCell<Vec<Call>>> = Rc::default();
        let sink = Rc::clone(&read);
        let map = map(object, CALLS_MAP)?;
        let ready = map.as_fd().try_clone_to_owned().map_err(StacksError::Wait)?;
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.borrow_mut().extend(Call::read(bytes));
            0
        };
        builder.add(&map, take).map_err(error)?;
        let ring = builder.build().map_err(error)?;
        Ok(Self { ring, ready, read })
    }

    /// The next calls, in the order in which they were made; none if there are none at the end of this time.
    pub(super) fn next(&self, within: Duration) -> Result<Vec<Call>, StacksError> {
        if self.ring.consume_raw_n(AT_A_TIME) <= 0 {
            let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&self.ready, PollFlags::IN)], Some(&within)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(StacksError::Wait(error.into())),
            }
            self.ring.consume_raw_n(AT_A_TIME);
        }
        Ok(self.read.take())
    }
}
