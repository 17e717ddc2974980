//! Which processes have run: an eBPF iterator lists all threads, each with the number of times that it has left its
//! processor.
//!
//! A thread that is not on a processor, and does not wait for one, has not run since an earlier look if it was so then,
//! and that number is the same. Threads are listed by the address space that they use, so that a process that shares
//! the address space of another one counts as a part of it, and so does a thread of the kernel as long as it uses one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io::Read;

use libbpf_rs::{Iter, Link, Object};

use super::BpfError;
use super::program::load_object;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));

/// The number of 64-bit fields of a thread: `struct thread` of `tasks.bpf.c`.
const FIELDS: usize = 4;

/// The size of a thread in the list.
const THREAD: usize = FIELDS * size_of::<u64>();

/// The number of switches of a thread that runs.
const RUNS: u64 = u64::MAX;

/// How much of the list is read at a time: what the kernel has at once.
const AT_A_TIME: usize = 32 << 10;

/// The threads of the machine, by address space.
pub(super) struct Tasks {
    link: Link,
    _object: Object,
    /// For each address space, by the address of its `mm_struct`, a number that depends on all of its threads and
    /// their switches. `None` if one of them runs.
    marks: HashMap<u64, Option<u64>>,
    buffer: Vec<u8>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl Tasks {
    /// Loads the iterator.
    pub(super) fn load() -> Result<Self, BpfError> {
        let object = load_object(OBJECT, &[])?;
        let program = object.progs_mut().next();
        let program = program.ok_or(BpfError::GaveUp { program: "list_threads", why: "it is not in the object" })?;
        let link = program.attach().map_err(|source| BpfError::Run { program: "list_threads", source })?;
        Ok(Self { link, _object: object, marks: HashMap::new(), buffer: vec![0; AT_A_TIME] })
    }

    /// Lists the threads as they are now. If that fails, nothing is known of any.
    pub(super) fn look(&mut self) {
        self.marks.clear();
        if self.read().is_err() {
            self.marks.clear();
        }
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut list = Iter::new(&self.link).map_err(std::io::Error::other)?;
        loop {
            // A read returns whole threads.
            let length = list.read(&mut self.buffer)?;
            if length == 0 {
                return Ok(());
            }
            for thread in self.buffer[..length].as_chunks::<THREAD>().0 {
                take(&mut self.marks, fields(thread));
            }
        }
    }

    /// What the last look has found of the threads of an address space, by the address of its `mm_struct`: a number
    /// that stays the same as long as none of them runs. `None` if one of them runs, or if there is none.
    pub(super) fn mark(&self, mm: u64) -> Option<u64> {
        self.marks.get(&mm).copied().flatten()
    }
}

fn fields(thread: &[u8; THREAD]) -> [u64; FIELDS] {
    let (fields, _) = thread.as_chunks::<8>();
    std::array::from_fn(|field| u64::from_ne_bytes(fields[field]))
}

/// Adds a thread to the number of its address space. The threads are listed in any order.
fn take(marks: &mut HashMap<u64, Option<u64>>, [mm, began, tid, switches]: [u64; FIELDS]) {
    let of_thread = (switches != RUNS).then(|| mixed(mixed(mixed(began) ^ tid) ^ switches));
    match marks.entry(mm) {
        Entry::Vacant(entry) => _ = entry.insert(of_thread),
        Entry::Occupied(mut entry) => {
            let sum = entry.get().zip(of_thread).map(|(sum, of_thread)| sum.wrapping_add(of_thread));
            entry.insert(sum);
        }
    }
}

/// A number in which each bit depends on each of `number`: the finalizer of MurmurHash3, with the constants of
/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
