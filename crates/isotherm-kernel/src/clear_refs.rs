//! Clears the accessed bits of a process by its file `/proc/PID/clear_refs` (`proc(5)`).

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::io::Errno;

use crate::Pidfd;
use crate::hold::held;
use crate::names::memory_id;

/// Which pages are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refs {
    /// All pages of the process.
    All,
    /// The pages of private memory that maps no file.
    Anonymous,
    /// The pages of mapped files and of shared memory.
    Mapped,
}

/// Clears the accessed bits and referenced marks of these pages of the process with this ID, which `process` refers to. `root` stands for `/`.
///
/// Pages of hugetlbfs and of devices are left. The kernel does not flush the TLB: an access by a translation that is
/// cached does not set the bit. The kernel holds the lock of the process's memory map for writing meanwhile, so that
/// its page faults wait. The call cannot be split.
///
/// # Errors
/// `ESRCH` if the process has ended. Other errors of open(2) and write(2).
pub fn clear_refs(root: &Path, pid: u32, process: &Pidfd, refs: Refs) -> Result<(), Errno> {
    let failed = |e: std::io::Error| match Errno::from_io_error(&e) {
        Some(Errno::NOENT) => Errno::SRCH,
        errno => errno.unwrap_or(Errno::IO),
    };
    let path = root.join(format!("proc/{}/clear_refs", memory_id(root, pid)));
    let mut file = File::options().write(true).open(path).map_err(failed)?;
    // If the process is alive now, then the ID was its own when the file was opened.
    if process.has_ended() {
        return Err(Errno::SRCH);
    }
    let value: &[u8] = match refs {
        Refs::All => b"1",
        Refs::Anonymous => b"2",
        Refs::Mapped => b"3",
    };
    held(|| file.write_all(value)).0.map_err(failed)
}
