//! Asks the kernel for single mappings (`PROCMAP_QUERY`, since Linux 6.11; see the kernel's
//! `Documentation/filesystems/proc.rst`). The cost does not depend on the other mappings of the process, nor on names
//! that are not asked for.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use isotherm_core::{AddrRange, FileId, Permissions};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

use crate::maps::{Origin, Vma};

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// The size of the buffer for the name, then that of the name with a zero byte at its end. 0: no name is asked for.
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

/// The mapping at the address, or the next one above it.
const COVERING_OR_NEXT: u64 = 0x10;

/// Flags of mappings.
const READ: u64 = 1;
const WRITE: u64 = 2;
const EXECUTE: u64 = 4;
const SHARED: u64 = 8;

/// The mapping at `address` in `maps`, which is `/proc/PID/maps`, or the next one above it.
///
/// # Errors
/// The error of ioctl(2): `NOENT` if nothing is found, `SRCH` if the process has no memory any longer, `NOTTY` if the
/// kernel does not answer such questions.
pub(crate) fn next(maps: &File, address: u64) -> Result<Vma, Errno> {
    Query { flags: COVERING_OR_NEXT, address, ..Query::new() }.ask(maps, &mut [])
}

/// The name of a mapping in `maps`, as the kernel writes it there. `None` if another mapping is at its address now.
///
/// # Errors
/// As [`next`]; `NAMETOOLONG` if the name does not fit into `buffer`.
pub(crate) fn name(maps: &File, of: &Vma, buffer: &mut [u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut query = Query { address: of.range.start(), ..Query::new() };
    let now = query.ask(maps, buffer)?;
    if now.origin.file != of.origin.file {
        return Ok(None);
    }
    let length = (query.name_size as usize).saturating_sub(1).min(buffer.len());
    let mut name = Vec::with_capacity(length);
    for &byte in &buffer[..length] {
        if byte == b'\n' { name.extend(b"\\012") } else { name.push(byte) }
    }
    Ok(Some(name))
}

/// The mappings in `maps`, which is `/proc/PID/maps`, that have a part of `ranges`: sorted, and whole. `None` if the
/// kernel does not answer such questions.
///
/// # Errors
/// The error of ioctl(2). `ESRCH` if the process has no memory any longer.
pub(crate) fn mapped_within(maps: &File, ranges: &[AddrRange]) -> io::Result<Option<Vec<AddrRange>>> {
    let mut mapped = Vec::new();
    for range in ranges {
        let mut at = range.start();
        while at < range.end() {
            match next(maps, at) {
                Ok(Vma { range: mapping, .. }) if mapping.start() < range.end() => {
                    at = mapping.end();
                    mapped.push(mapping);
                }
                // No mapping lies above the address, or the next one is beyond the range.
                Ok(_) | Err(Errno::NOENT) => break,
                Err(Errno::NOTTY) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    mapped.sort_unstable();
    mapped.dedup();
    Ok(Some(mapped))
}

impl Query {
    fn new() -> Self {
        Self { size: size_of::<Self>() as u64, ..Self::default() }
    }

    /// Asks for a mapping, and for its name if there is room in `name`.
    fn ask(&mut self, maps: &File, name: &mut [u8]) -> Result<Vma, Errno> {
        self.name_size = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.name_address = if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 };
        // SAFETY: the kernel reads and writes a structure of this layout, whose size it is told. It writes nothing else
        // but the name, into a buffer that nobody else uses meanwhile and whose size it is told.
        unsafe { ioctl(maps, Updater::<{ opcode::read_write::<Query>(b'f', 17) }, Query>::new(self)) }?;
        let has = |flag: u64| self.vma_flags & flag != 0;
        let permissions =
            Permissions { read: has(READ), write: has(WRITE), execute: has(EXECUTE), shared: has(SHARED) };
        let [major, minor] = self.device;
        let file = FileId { device: (major, minor), inode: self.inode };
        let range = AddrRange::new(self.start, self.end).ok_or(Errno::INVAL)?;
        Ok(Vma { range, permissions, origin: Origin { offset: self.offset, file } })
    }
}
