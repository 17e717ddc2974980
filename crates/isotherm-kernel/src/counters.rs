//! Counters of the whole system: faults, refaults, stalls, and what compressed swap takes.

use std::fs::{read_dir, read_to_string};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::usage::{meminfo, pressure, stall_time};

/// Counters since boot, and the memory of compressed swap as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCounters {
    /// Page faults for which a page was read from a disk or from swap (`pgmajfault` of `/proc/vmstat`).
    pub major_faults: u64,
    /// Anonymous pages that were reclaimed and came back soon (`workingset_refault_anon`).
    pub anonymous_refaults: u64,
    /// Pages of files that were reclaimed and came back soon (`workingset_refault_file`).
    pub file_refaults: u64,
    /// Pages that were written to swap (`pswpout`).
    pub swapped_out: u64,
    /// How long some task has waited for memory (PSI `some`). `None` if the kernel does not tell.
    pub some_stalled: Option<Duration>,
    /// How long all tasks have waited for memory at once (PSI `full`). `None` if the kernel does not tell.
    pub all_stalled: Option<Duration>,
    /// The bytes that all zram devices take, with what the allocator loses (`mem_used_total` of `mm_stat`).
    pub zram: u64,
}

/// Reads the counters below `root`, which stands for `/`. What the kernel does not count is 0.
///
/// # Errors
/// If `/proc/vmstat` cannot be read.
pub fn system_counters(root: &Path) -> io::Result<SystemCounters> {
    let text = read_to_string(root.join("proc/vmstat"))?;
    let count = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    };
    let pressure = pressure(root).ok();
    Ok(SystemCounters {
        major_faults: count("pgmajfault"),
        anonymous_refaults: count("workingset_refault_anon"),
        file_refaults: count("workingset_refault_file"),
        swapped_out: count("pswpout"),
        some_stalled: pressure.as_ref().map(stall_time),
        all_stalled: pressure.map(|pressure| Duration::from_micros(pressure.full.total)),
        zram: zram(root).unwrap_or(0),
    })
}

/// The bytes of memory that compressed swap takes below `root`: zram, with what its allocator loses, and zswap. `None`
/// if there is neither.
pub fn compressed_swap(root: &Path) -> Option<u64> {
    // The kernel has the line for zswap whether there is any or not.
    let zswap = meminfo(root).ok().and_then(|info| info.z_swap).filter(|&bytes| bytes > 0);
    zram(root).into_iter().chain(zswap).reduce(|sum, bytes| sum + bytes)
}

/// The bytes that all zram devices take. `None` without such a device.
fn zram(root: &Path) -> Option<u64> {
    let devices = read_dir(root.join("sys/block")).ok()?;
    let used = devices.filter_map(|device| {
        let device = device.ok().filter(|device| device.file_name().to_string_lossy().starts_with("zram"))?;
        let fields = read_to_string(device.path().join("mm_stat")).ok()?;
        fields.split_whitespace().nth(2)?.parse::<u64>().ok()
    });
    used.reduce(|sum: u64, bytes| sum + bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counters_are_read_and_those_that_a_kernel_does_not_have_are_zero() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(system_counters(root.path()).is_err() && compressed_swap(root.path()).is_none());
        file("proc/vmstat", "nr_free_pages 7\npgmajfault 11\npgmajfault_x 99\n");
        let found = system_counters(root.path()).unwrap();
        assert_eq!(found, SystemCounters { major_faults: 11, ..SystemCounters::default() });

        file("proc/vmstat", "workingset_refault_anon 3\nworkingset_refault_file 4\npgmajfault 12\npswpout 5\n");
        file(
            "proc/pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
        );
        file("sys/block/zram0/mm_stat", "  8192 100 4096 0 4096 0 0 0 0\n");
        file("sys/block/zram1/mm_stat", "0 0 1 0 0 0 0 0 0\n");
        file("sys/block/sda/mm_stat", "1 2 3\n");
        let found = system_counters(root.path()).unwrap();
        let refaults = (found.anonymous_refaults, found.file_refaults, found.swapped_out);
        assert_eq!((refaults, found.zram), ((3, 4, 5), 4097));
        assert_eq!(compressed_swap(root.path()), Some(4097));
        let stalled = (found.some_stalled, found.all_stalled);
        assert_eq!(stalled, (Some(Duration::from_millis(2)), Some(Duration::from_millis(1))));
    }
}
