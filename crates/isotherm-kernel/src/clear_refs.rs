//! Clears the accessed bits of a process by its file `/proc/PID/clear_refs` (`proc(5)`).

use std::fs::File;
use std::io::Write;
use std::path::Path;

use isotherm_core::PAGE_SIZE;
use rustix::io::Errno;

use crate::hold::held;
use crate::names::memory_id;
use crate::{Pidfd, Scratch, monitor_cpu_time};

/// The memory that [`price`] touches, in bytes. Its page descriptors do not fit into the first cache of a processor.
const MEASURED: u64 = 32 << 20;

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

/// Clears the accessed bits and referenced marks of these pages of the process with this ID, which `process` refers to.
/// `root` stands for `/`.
///
/// Pages of hugetlbfs and of devices are left. The kernel does not flush the TLB: an access by a translation that is
/// cached does not set the bit. The kernel holds the lock of the process's memory map for writing meanwhile, so that
/// its page faults wait. The call cannot be split.
///
/// # Errors
/// `ESRCH` if the process has ended. Other errors of open(2) and write(2).
#[allow(clippy::disallowed_methods, reason = "writes to /proc/PID/clear_refs")]
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

/// The CPU time that [`clear_refs`] takes on this machine now, in seconds for each byte in memory. It is measured on 32
/// MiB of private memory of this process, which are touched before each call, in 5 to 20 ms: the median of three calls,
/// without what a call takes for the other memory of this process. The first call takes up to twice as long as the
/// others. `None` if that does not work here.
pub fn price() -> Option<f64> {
    let own = std::process::id();
    let process = Pidfd::open(own).ok()?;
    let call = || {
        let began = monitor_cpu_time();
        clear_refs(Path::new("/"), own, &process, Refs::Anonymous).ok()?;
        Some(monitor_cpu_time().saturating_sub(began).as_secs_f64())
    };
    let median = |mut calls: [f64; 3]| {
        calls.sort_by(f64::total_cmp);
        calls[1]
    };
    let other = median([call()?, call()?, call()?]);
    let memory = Scratch::new(MEASURED).ok()?;
    memory.huge(false).ok()?;
    let touched = || {
        (0..MEASURED).step_by(PAGE_SIZE as usize).for_each(|at| memory.touch(at));
        call()
    };
    let all = median([touched()?, touched()?, touched()?]);
    Some((all - other).max(0.0) / MEASURED as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_that_of_a_walk_of_page_tables() {
        let found = isotherm_testing::or_skip!(price().ok_or("/proc/PID/clear_refs does not work here"));
        let of_a_gib = found * (1_u64 << 30) as f64;
        assert!(of_a_gib > 1e-4 && of_a_gib < 10.0, "{of_a_gib} s for 1 GiB");
    }
}
