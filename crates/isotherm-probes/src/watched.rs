//! The common parts of the eBPF programs that watch processes: the map of these processes (`watched.h`), the
//! tracepoints that the programs run at, and the ring buffer that they report to.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{Error, Link, Map, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The name of the map of the watched processes.
pub(crate) const WATCHED_MAP: &str = "watched";

/// The namespace of process IDs that this process is in.
const PID_NAMESPACE: &str = "/proc/self/ns/pid";
/// The inode number of the first namespace of process IDs (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Flags of a process, as in `watched.h`.
const WATCHED: u32 = 1;
const CHILDREN: u32 = 2;
const DESCENDANTS: u32 = 4;

/// Whether the process IDs that this process sees are those of the eBPF programs.
pub(crate) fn has_process_ids_of_the_kernel() -> bool {
    fs::metadata(PID_NAMESPACE).is_ok_and(|namespace| namespace.ino() == FIRST_PID_NAMESPACE)
}

/// Attaches programs to their tracepoints. They run as long as the links exist.
///
/// # Errors
/// The tracepoint at which a program does not run, and why.
pub(crate) fn attach(object: &Object, programs: &[(&str, &'static str)]) -> Result<Vec<Link>, (&'static str, Error)> {
    let attach = |&(name, tracepoint): &(&str, &'static str)| {
        let program = object.progs_mut().find(|program| program.name() == name);
        let attached = program.map_or_else(|| Err(missing()), |program| program.attach_trace());
        attached.map_err(|source| (tracepoint, source))
    };
    programs.iter().map(attach).collect()
}

/// Watches a process from now on, and its descendants as well if `descendants` says so.
pub(crate) fn watch(object: &Object, pid: u32, descendants: bool) -> Result<(), Error> {
    set(object, pid, WATCHED | if descendants { DESCENDANTS } else { 0 })
}

/// Watches the children that this process starts from now on, from their start.
pub(crate) fn watch_children(object: &Object, descendants: bool) -> Result<(), Error> {
    set(object, std::process::id(), if descendants { DESCENDANTS } else { CHILDREN })
}

/// Watches a process no more, and no children of it that start from now on. Does nothing if it has ended.
pub(crate) fn leave(object: &Object, pid: u32) {
    if let Ok(watched) = map(object, WATCHED_MAP) {
        // It is not in the map if it has ended.
        let _ = watched.delete(&pid.to_ne_bytes());
    }
}

fn set(object: &Object, pid: u32, flags: u32) -> Result<(), Error> {
    map(object, WATCHED_MAP)?.update(&pid.to_ne_bytes(), &flags.to_ne_bytes(), MapFlags::ANY)
}

/// The map of this name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Error> {
    object.maps().find(|map| map.name() == name).ok_or_else(missing)
}

/// The numbers in the only element of the array of this name; zero if it cannot be read.
pub(crate) fn numbers<const N: usize>(object: &Object, name: &str) -> [u64; N] {
    let bytes = map(object, name).and_then(|map| map.lookup(&[0; 4], MapFlags::ANY)).ok().flatten();
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.iter().flat_map(|bytes| bytes.chunks_exact(8))) {
        *number = bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes);
    }
    numbers
}

/// The error for a part of the programs that is not there.
fn missing() -> Error {
    Error::from_raw_os_error(Errno::NOENT.raw_os_error())
}

/// The most records that are read at a time.
pub(crate) const AT_A_TIME: usize = 64;

/// What programs have reported and was not read yet.
pub(crate) struct Reports<T: 'static> {
    ring: RingBuffer<'static>,
    /// Becomes readable when there are records.
    ready: OwnedFd,
    read: Rc<RefCell<Vec<T>>>,
}

impl<T: 'static> Reports<T> {
    /// Reads from the ring buffer of this name. `parse` reads a record, and returns `None` for one that is passed over.
    pub(crate) fn open(object: &Object, name: &str, parse: fn(&[u8]) -> Option<T>) -> Result<Self, Error> {
        let read: Rc<RefCell<Vec<T>>> = Rc::default();
        let sink = Rc::clone(&read);
        let map = map(object, name)?;
        let ready = map.as_fd().try_clone_to_owned().map_err(Error::from)?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, move |bytes: &[u8]| {
            sink.borrow_mut().extend(parse(bytes));
            0
        })?;
        Ok(Self { ring: builder.build()?, ready, read })
    }

    /// The next records, [`AT_A_TIME`] at most, in the order in which they were made; none if there are none at the end
    /// of this time.
    pub(crate) fn next(&self, within: Duration) -> io::Result<Vec<T>> {
        if self.ring.consume_raw_n(AT_A_TIME) <= 0 {
            let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&self.ready, PollFlags::IN)], Some(&within)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.ring.consume_raw_n(AT_A_TIME);
        }
        Ok(self.read.take())
    }
}
