//! Collects what a call inside a process needs: its files, its stack and the instruction sequences in its code.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_core::{AddrRange, Mapping};
use isotherm_kernel::hold::held;
use isotherm_kernel::{Pidfd, Unreadable, mappings_of, memory_id, stat_field};

use super::InsideError;
use super::gadget::{self, Gadgets};
use super::helper::Files;

/// The class of 64-bit programs: the fifth byte of an ELF file.
const ELF_CLASS_64: u8 = 2;

/// A process that is prepared for calls inside it. It is valid for one address space: until the process calls exec.
#[derive(Debug)]
pub(super) struct Prepared {
    /// `/proc/PID/mem`. It refers to the address space. After an exec of the process, it reads as empty.
    memory: File,
    /// `/proc/PID/status`.
    status: File,
    /// The stack of the main thread.
    pub stack: AddrRange,
    /// The addresses of the instruction sequences.
    pub gadgets: Gadgets,
}

impl Prepared {
    /// Prepares process `pid`.
    ///
    /// # Errors
    /// Fails if the process has ended, access to its files is not permitted, or no call can be made inside it.
    #[allow(clippy::disallowed_methods, reason = "opens /proc/PID/mem for a call inside the target")]
    pub(super) fn new(pid: u32) -> Result<Self, InsideError> {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            File::options().read(true).write(name == "mem").open(&path).map_err(|source| cannot_open(pid, path, source))
        };
        if memory_id(Path::new("/"), pid) != pid {
            return Err(InsideError::MainThreadEnded(pid));
        }
        // This file is opened first. If the process calls exec meanwhile, the file reads as empty.
        let memory = open("mem")?;
        let status = open("status")?;
        let mut start = [0; 5];
        let read = open("exe").map(|mut program| program.read_exact(&mut start).is_ok());
        if !read? || start[4] != ELF_CLASS_64 {
            return Err(InsideError::NotX64(pid));
        }
        if shares_memory_with_parent(pid) {
            return Err(InsideError::SharesMemory(pid));
        }
        let process = Pidfd::open(pid).map_err(|errno| cannot_open(pid, format!("/proc/{pid}"), errno.into()))?;
        let maps = mappings_of(pid, &process).map_err(|unreadable| match unreadable {
            Unreadable::Ended => InsideError::Gone(pid),
            Unreadable::ForNow(source) | Unreadable::ForGood(source) => {
                InsideError::File { path: format!("/proc/{pid}/maps"), source }
            }
        })?;
        // An address space that has gone has no mapping that can be read, whatever was read of its mappings before.
        let read = |at, buffer: &mut [u8]| held(|| memory.read_at(buffer, at)).0;
        let is_there = |map: &Mapping| matches!(read(map.range.start(), &mut [0]), Ok(1));
        let stack = maps.iter().find(|map| &*map.name == "[stack]").ok_or_else(|| match maps.iter().any(is_there) {
            true => InsideError::OtherStack(pid),
            false => InsideError::Gone(pid),
        });
        let stack = stack?.range;
        let mut code: Vec<&Mapping> = maps.iter().filter(|map| map.permissions.execute).collect();
        // The C library contains both sequences. Its addresses are high, so it is moved to the front.
        code.sort_by_key(|map| !map.name.contains("libc"));
        let gadgets = gadget::find(code.into_iter().map(|map| map.range), read).ok_or_else(|| {
            // The last page of a stack can always be read, unless the address space has gone.
            match read(stack.end() - 1, &mut [0]) {
                Ok(1) => InsideError::NoPlace(pid),
                _ => InsideError::Gone(pid),
            }
        })?;
        Ok(Self { memory, status, stack, gadgets })
    }

    /// The files that a request needs.
    pub(super) fn files(&self) -> Files<'_> {
        Files { memory: self.memory.as_fd(), status: self.status.as_fd() }
    }
}

fn cannot_open(pid: u32, path: String, source: io::Error) -> InsideError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => InsideError::Gone(pid),
        _ => InsideError::File { path, source },
    }
}

/// Whether `pid` is a child that has not called exec since vfork, and so shares the memory of its parent.
fn shares_memory_with_parent(pid: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    const PARENT: usize = 4;
    let parent = stat_field(Path::new("/proc"), pid, PARENT).and_then(|parent| parent.parse::<i32>().ok());
    let Some(parent) = parent.filter(|parent| *parent > 0) else {
        return false;
    };
    // A kernel without kcmp(2) returns an error. Then the answer is unknown, and counts as no.
    // SAFETY: all arguments are numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0 }
}
