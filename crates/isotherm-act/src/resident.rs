//! Counts the memory of a process that is resident, to find what a reclaim has really freed.

use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use isotherm_kernel::pages::{PageBuffer, Pagemap};

/// The bytes of each of `ranges`, which are sorted, that are resident in process `pid`.
///
/// # Errors
/// Returns the error of open(2) or read(2) on the pagemap of the process. `root` is the directory that stands for `/`.
pub(super) fn resident(root: &Path, pid: u32, ranges: &[AddrRange]) -> Result<Vec<u64>, Errno> {
    let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
    let mut buffer = PageBuffer::default();
    let of = |range: &AddrRange| {
        let mut bytes = 0;
        let count = |frame: Option<u64>| bytes += frame.map_or(0, |_| PAGE_SIZE);
        pagemap.frames(range.page_addresses(), &mut buffer, count).map_err(|error| error.errno())?;
        Ok(bytes)
    };
    ranges.iter().map(of).collect()
}
