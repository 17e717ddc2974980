//! What must be known of a process before a call is made inside it.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use isotherm_core::AddrRange;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::InsideError;
use super::gadget::{self, Gadgets};
use super::tracer::Files;

/// The class of 64-bit programs, in the fifth byte of an ELF file.
const ELF_CLASS_64: u8 = 2;

/// Of one address space of one process.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Holds on to the address space: after an exec it reads as empty.
    memory: File,
    status: File,
    pub stack: AddrRange,
    pub gadgets: Gadgets,
}

impl Prepared {
    /// Looks at a process.
    pub(super) fn new(pid: u32) -> Result<Self, InsideError> {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            File::options().read(true).write(name == "mem").open(&path).map_err(|source| cannot_read(pid, path, source))
        };
        // First, so that all the rest is of this address space or a later one.
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
        let maps = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.maps());
        let maps = maps.map_err(|_| InsideError::Gone(pid))?;
        let range = |map: &MemoryMap| AddrRange::new(map.address.0, map.address.1);
        let stack = maps.iter().find(|map| map.pathname == MMapPath::Stack).and_then(range);
        let stack = match stack {
            Some(stack) => stack,
            // Memory that is let go has no mappings.
            None if maps.0.is_empty() => return Err(InsideError::Gone(pid)),
            None => return Err(InsideError::OtherStack(pid)),
        };
        let mut code: Vec<&MemoryMap> =
            maps.iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE) && map.address.0 >> 63 == 0).collect();
        // The C library has both, and comes last in the order of addresses.
        code.sort_by_key(
            |map| !matches!(&map.pathname, MMapPath::Path(path) if path.to_string_lossy().contains("libc")),
        );
        let read = |at, room: &mut [u8]| memory.read_at(room, at);
        let gadgets = gadget::find(code.into_iter().filter_map(range), read).ok_or_else(|| {
            // The last page of a stack is always there, unless all of the memory has gone.
            match memory.read_at(&mut [0], stack.end() - 1) {
                Ok(1) => InsideError::NoPlace(pid),
                _ => InsideError::Gone(pid),
            }
        })?;
        Ok(Self { memory, status, stack, gadgets })
    }

    pub(super) fn files(&self) -> Files<'_> {
        Files { memory: self.memory.as_fd(), status: self.status.as_fd() }
    }
}

fn cannot_read(pid: u32, path: String, source: io::Error) -> InsideError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => InsideError::Gone(pid),
        _ => InsideError::File { path, source },
    }
}

/// Whether `pid` is a child that has not called exec since vfork: its memory is its parent's.
fn shares_memory_with_parent(pid: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it is in brackets, and may have any letters in it.
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse::<i32>().ok());
    let Some(parent) = parent.filter(|parent| *parent > 0) else {
        return false;
    };
    // SAFETY: takes numbers only. Kernels without it say so, and then nothing is known.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0 }
}
