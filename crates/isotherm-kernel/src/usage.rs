//! Memory in use: what `/proc` says of a process, and of the system.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{MemoryUse, SystemMemory};
use procfs::process::{MMapExtension, SmapsRollup};
use procfs::{FromRead, Meminfo, MemoryPressure, ProcError, ProcResult};

/// The memory that process `pid` uses, below the directory that stands for `/`. The kernel walks its page tables for it, about a
/// millisecond for 1 GiB.
///
/// # Errors
/// If it has ended, or its memory may not be looked at.
pub fn memory_use(root: &Path, pid: u32) -> ProcResult<MemoryUse> {
    let rollup: SmapsRollup = FromRead::from_file(root.join(format!("proc/{pid}/smaps_rollup")))?;
    // A process that has ended but was not waited for has the file, and nothing in it.
    let mapped = rollup.memory_map_rollup.0.first().ok_or(ProcError::NotFound(None))?;
    let MMapExtension { map, .. } = &mapped.extension;
    let bytes = |name| map.get(name).copied().unwrap_or_default();
    Ok(MemoryUse { resident: bytes("Rss"), proportional: bytes("Pss"), swapped: bytes("Swap") })
}

/// The memory of the system, below the directory that stands for `/`.
///
/// # Errors
/// If `/proc/meminfo` cannot be read. A kernel without pressure stall information is no error.
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

/// How long, and in which share of late, tasks have waited for memory. Opening the file is not enough: without PSI at boot
/// (`psi=0`) it is there, and reading it fails.
pub(crate) fn pressure(root: &Path) -> ProcResult<MemoryPressure> {
    MemoryPressure::from_read(File::open(root.join(PRESSURE))?)
}

/// The kernel's pressure stall information of memory, below the directory that stands for `/`.
pub(crate) const PRESSURE: &str = "proc/pressure/memory";

/// For how long some task has waited for memory, since the machine's start.
pub(crate) fn stall_time(pressure: &MemoryPressure) -> Duration {
    Duration::from_micros(pressure.some.total)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn this_process_uses_memory_and_what_is_not_there_none() {
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
    fn the_system_has_no_more_free_than_there_is() {
        let memory = system_memory(Path::new("/")).unwrap();
        assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
        assert!(memory.swap_free <= memory.swap_total, "{memory:?}");
    }

    #[test]
    fn a_kernel_without_pressure_stall_information_tells_the_rest() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::copy("/proc/meminfo", root.path().join("proc/meminfo")).unwrap();
        let memory = system_memory(root.path()).unwrap();
        assert!(memory.total > 0);
        assert_eq!(memory.stalled, None);
    }
}
