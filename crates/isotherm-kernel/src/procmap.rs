//! Asks the kernel for the mappings in some ranges (`PROCMAP_QUERY`, since Linux 6.11; see the kernel's
//! `Documentation/filesystems/proc.rst`). The cost does not depend on the other mappings of the process, or on their
//! names.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use isotherm_core::AddrRange;
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

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
    /// No name is asked for.
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

/// The mapping at the address, or the next one above it.
const COVERING_OR_NEXT: u64 = 0x10;

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
            match next_mapping(maps, at) {
                Ok(mapping) if mapping.start() < range.end() => {
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

fn next_mapping(maps: &File, address: u64) -> Result<AddrRange, Errno> {
    let size = size_of::<Query>() as u64;
    let mut query = Query { size, flags: COVERING_OR_NEXT, address, ..Query::default() };
    // SAFETY: the kernel reads and writes a structure of this layout, whose size it is told. It writes nothing else,
    // because the structure has no address of a name or a build ID.
    unsafe { ioctl(maps, Updater::<{ opcode::read_write::<Query>(b'f', 17) }, Query>::new(&mut query)) }?;
    AddrRange::new(query.start, query.end).ok_or(Errno::INVAL)
}
