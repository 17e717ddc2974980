//! The memory use of a process and of the system, from `/proc`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{MemoryUse, SystemMemory};
use procfs::process::{MMapExtension, SmapsRollup, Stat};
use procfs::{FromRead, Meminfo, MemoryPressure, ProcError, ProcResult};

/// The memory that process `pid` uses, in bytes, from `smaps_rollup` below `root`, which stands for `/`.
///
/// The kernel walks the page tables of the process, which takes about 1 ms per GiB.
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn memory_use(root: &Path, pid: u32) -> ProcResult<MemoryUse> {
    let rollup: SmapsRollup = FromRead::from_file(root.join(format!("proc/{pid}/smaps_rollup")))?;
    // The file of a zombie is empty.
    let mapped = rollup.memory_map_rollup.0.first().ok_or(ProcError::NotFound(None))?;
    let MMapExtension { map, .. } = &mapped.extension;
    let bytes = |name| map.get(name).copied().unwrap_or_default();
    Ok(MemoryUse { resident: bytes("Rss"), proportional: bytes("Pss"), swapped: bytes("Swap") })
}

/// How many major page faults process `pid` has had since it started, from `stat` below `root`, which stands for `/`:
/// the faults of all its threads for which a page was read from a disk or from swap. It does not count its children.
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn major_faults(root: &Path, pid: u32) -> ProcResult<u64> {
    Ok(Stat::from_file(root.join(format!("proc/{pid}/stat")))?.majflt)
}

/// The memory of the system, in bytes, from `/proc/meminfo` below `root`, which stands for `/`.
///
/// # Errors
/// Fails if `/proc/meminfo` cannot be read. If the kernel has no pressure stall information, `stalled` is `None`.
pub fn system_memory(root: &Path) -> ProcResult<SystemMemory> {
    let info = Meminfo::from_file(root.join("proc/meminfo"))?;
    Ok(SystemMemory {
        total: info.mem_total,
        free: info.mem_free,
        available: info.mem_available.unwrap_or(info.mem_free),
        swap_total: info.swap_total,
        swap_free: info.swap_free,
        stalled: pressure(root).ok().map(|pressure| stall_time(&pressure)),
    })
}

/// How long tasks have waited for memory, in total and as a share of recent time.
///
/// To find out whether the kernel has this information, the file must be read: with `psi=0` it exists, but reading
/// fails.
pub(crate) fn pressure(root: &Path) -> ProcResult<MemoryPressure> {
    MemoryPressure::from_read(File::open(root.join(PRESSURE))?)
}

/// The path of the kernel's pressure stall information on memory, relative to `/`.
pub(crate) const PRESSURE: &str = "proc/pressure/memory";

/// How long at least one task has waited for memory since boot.
pub(crate) fn stall_time(pressure: &MemoryPressure) -> Duration {
    Duration::from_micros(pressure.some.total)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_use_grows_with_an_allocation_and_fails_without_a_process() {
        let root = Path::new("/");
        let before = memory_use(root, std::process::id()).unwrap();
        let memory = vec![1_u8; 64 * MIB as usize];
        let after = memory_use(root, std::process::id()).unwrap();
        drop(std::hint::black_box(memory));
        assert!(before.proportional <= before.resident);
        assert!(after.resident >= before.resident + 60 * MIB, "{before:?} {after:?}");
        memory_use(root, u32::MAX).unwrap_err();
    }

    #[test]
    fn major_faults_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (name, fields) = own.rsplit_once(") ").unwrap();
        // The fields after the name are those from the third on; the twelfth is the number of major faults.
        let mut fields: Vec<&str> = fields.split(' ').collect();
        fields[9] = "1234";
        std::fs::write(root.path().join("proc/7/stat"), format!("{name}) {}", fields.join(" "))).unwrap();
        assert_eq!(major_faults(root.path(), 7).unwrap(), 1234);
        major_faults(root.path(), 8).unwrap_err();
    }

    #[test]
    fn free_memory_does_not_exceed_total_memory() {
        let memory = system_memory(Path::new("/")).unwrap();
        assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
        assert!(memory.swap_free <= memory.swap_total, "{memory:?}");
    }

    #[test]
    fn system_memory_is_read_without_pressure_stall_information() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::copy("/proc/meminfo", root.path().join("proc/meminfo")).unwrap();
        let memory = system_memory(root.path()).unwrap();
        assert!(memory.total > 0);
        assert_eq!(memory.stalled, None);
    }
}
