//! The memory use of a process and of the system, from `/proc`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{MemoryUse, PAGE_SIZE, SystemMemory};
use procfs::process::{Stat, StatM};
use procfs::{FromRead, Meminfo, MemoryPressure, ProcError, ProcResult};

use crate::maps::{MappingNames, read_mappings};
use crate::names::{memory_id, status_fields};
use crate::pages::Pagemap;

/// The memory that process `pid` uses, in bytes, from `status` below `root`, which stands for `/`.
///
/// The kernel adds up counters that it keeps, and takes no lock of the process. `smaps_rollup`, which also has the
/// proportional size (PSS), is not read: the kernel walks all page tables of the process for it, and `mmap`, `munmap`
/// and some page faults of the process wait for 20 ms for each GiB.
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn memory_use(root: &Path, pid: u32) -> ProcResult<MemoryUse> {
    let [resident, swapped] = status_bytes(root, pid, ["VmRSS", "VmSwap"])?;
    Ok(MemoryUse { resident, proportional: None, swapped })
}

/// The resident anonymous memory of process `pid`, in bytes, from `status` below `root`, which stands for `/`.
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn anonymous_bytes(root: &Path, pid: u32) -> ProcResult<u64> {
    status_bytes(root, pid, ["RssAnon"]).map(|[bytes]| bytes)
}

/// The bytes of anonymous memory of process `pid` in transparent huge pages, from [`Pagemap::huge`] below `root`, which
/// stands for `/`. `None` if the kernel does not tell (Linux 6.7 and later do).
pub fn huge_bytes(root: &Path, pid: u32) -> Option<u64> {
    let maps = File::open(root.join(format!("proc/{}/maps", memory_id(root, pid)))).ok()?;
    let mappings = read_mappings(maps, &mut MappingNames::default(), None).ok()?;
    let pagemap = Pagemap::open(root, &pid.to_string()).ok()?;
    let anonymous = mappings.iter().filter(|mapping| !mapping.name.starts_with('/'));
    anonymous.map(|mapping| pagemap.huge(mapping.range)).sum::<Result<u64, _>>().ok()
}

/// Fields of `status` that the kernel gives in kB, in bytes.
fn status_bytes<const N: usize>(root: &Path, pid: u32, names: [&str; N]) -> ProcResult<[u64; N]> {
    // A zombie has no such fields.
    let fields = status_fields(&root.join("proc"), memory_id(root, pid), names).ok_or(ProcError::NotFound(None))?;
    let mut found = [0; N];
    for (found, field) in found.iter_mut().zip(fields) {
        let kb = field.trim().strip_suffix(" kB").and_then(|kb| kb.parse::<u64>().ok());
        *found = kb.and_then(|kb| kb.checked_mul(1024)).ok_or(ProcError::Incomplete(None))?;
    }
    Ok(found)
}

/// The setting of transparent huge pages below `root`, which stands for `/`: `always`, `madvise` or `never`. `None` if
/// the kernel has none (Linux `Documentation/admin-guide/mm/transhuge.rst`).
pub fn transparent_huge_pages(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled")).ok()?;
    // The kernel marks the setting in force: `always [madvise] never`.
    let (setting, _) = text.split_once('[')?.1.split_once(']')?;
    Some(setting.to_owned())
}

/// How many major page faults process `pid` has had since it started, from `stat` below `root`, which stands for `/`:
/// the faults of all its threads for which a page was read from a disk or from swap. It does not count its children.
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn major_faults(root: &Path, pid: u32) -> ProcResult<u64> {
    Ok(Stat::from_file(root.join(format!("proc/{pid}/stat")))?.majflt)
}

/// How many page faults process `pid` has had since it started, minor and major ones: as [`major_faults`].
///
/// # Errors
/// Fails if the process has ended or the file may not be read.
pub fn page_faults(root: &Path, pid: u32) -> ProcResult<u64> {
    let stat = Stat::from_file(root.join(format!("proc/{pid}/stat")))?;
    Ok(stat.minflt + stat.majflt)
}

/// The bytes of a process that are in memory, from `/proc/PID/statm` below `root`: the counters of `status`, which are
/// not exact, at less than half its cost.
///
/// # Errors
/// Fails if the process has ended.
pub fn resident(root: &Path, pid: u32) -> ProcResult<u64> {
    let id = memory_id(root, pid);
    Ok(StatM::from_file(root.join(format!("proc/{id}/statm")))?.resident * PAGE_SIZE)
}

/// The bytes of a process that are locked, or will be when they become resident (`VmLck` in `proc_pid_status(5)`).
///
/// # Errors
/// Fails if the process has ended.
pub fn locked(root: &Path, pid: u32) -> ProcResult<u64> {
    Ok(status_bytes(root, pid, ["VmLck"])?[0])
}

/// The memory of the system, in bytes, from `/proc/meminfo` below `root`, which stands for `/`.
///
/// # Errors
/// Fails if `/proc/meminfo` cannot be read. If the kernel has no pressure stall information, `stalled` is `None`.
pub fn system_memory(root: &Path) -> ProcResult<SystemMemory> {
    let info = meminfo(root)?;
    Ok(SystemMemory {
        total: info.mem_total,
        free: info.mem_free,
        available: info.mem_available.unwrap_or(info.mem_free),
        swap_total: info.swap_total,
        swap_free: info.swap_free,
        stalled: pressure(root).ok().map(|pressure| stall_time(&pressure)),
    })
}

/// `/proc/meminfo` below `root`, which stands for `/`.
///
/// # Errors
/// Fails if it cannot be read, or is not what the kernel writes.
pub fn meminfo(root: &Path) -> ProcResult<Meminfo> {
    let text = std::fs::read(root.join("proc/meminfo"))?;
    // The parser cuts the lines at bytes, and panics within a character of several bytes.
    if !text.is_ascii() {
        return Err(ProcError::Other("/proc/meminfo is not ASCII".into()));
    }
    Meminfo::from_read(&text[..])
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
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use isotherm_testing::installed_or_skip;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_use_is_read_from_status_alone() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let status = "Name:\tVmRSS:\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\nVmSwap:\t      4 kB\n";
        std::fs::write(process.join("status"), status).unwrap();
        let used = MemoryUse { resident: 2 * MIB, proportional: None, swapped: 4096 };
        assert_eq!(memory_use(root.path(), 7).unwrap(), used);
        assert_eq!((anonymous_bytes(root.path(), 7).unwrap(), huge_bytes(root.path(), 7)), (MIB, None));
        std::fs::write(process.join("status"), "Name:\tzombie\nState:\tZ\n").unwrap();
        memory_use(root.path(), 7).unwrap_err();
    }

    #[test]
    fn memory_use_grows_with_an_allocation_and_fails_without_a_process() {
        let root = Path::new("/");
        // Other tests of this process allocate and free memory.
        let script = "print(flush=True); input(); memory = b'x' * (64 << 20); print(flush=True); input()";
        let mut python = Command::new("python3");
        python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = installed_or_skip!(python.spawn().map_err(|error| error.to_string()));
        let pid = python.id();
        let mut lines = BufReader::new(python.stdout.take().unwrap());
        let mut now = || {
            lines.read_line(&mut String::new()).unwrap();
            memory_use(root, pid).unwrap()
        };
        let before = now();
        python.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let after = now();
        python.kill().unwrap();
        python.wait().unwrap();
        assert!(after.resident >= before.resident + 60 * MIB, "{before:?} {after:?}");
        memory_use(root, u32::MAX).unwrap_err();
    }

    #[test]
    fn anonymous_memory_is_a_part_of_what_is_resident() {
        let memory = vec![1_u8; 8 * MIB as usize];
        let (root, own) = (Path::new("/"), std::process::id());
        let (all, anonymous, huge) = (memory_use(root, own), anonymous_bytes(root, own), huge_bytes(root, own));
        drop(std::hint::black_box(memory));
        let (all, anonymous) = (all.unwrap(), anonymous.unwrap());
        assert!(anonymous >= 8 * MIB && huge <= Some(anonymous), "{anonymous} {huge:?}");
        assert!(anonymous <= all.resident + MIB, "{all:?} {anonymous}");
        anonymous_bytes(root, u32::MAX).unwrap_err();
    }

    #[test]
    fn the_setting_of_huge_pages_is_the_one_in_brackets() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(transparent_huge_pages(root.path()), None);
        let directory = root.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("enabled"), "always [madvise] never\n").unwrap();
        assert_eq!(transparent_huge_pages(root.path()).as_deref(), Some("madvise"));
    }

    #[test]
    fn page_faults_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (name, fields) = own.rsplit_once(") ").unwrap();
        // The fields after the name are those from the third on; the tenth and the twelfth are the numbers of faults.
        let mut fields: Vec<&str> = fields.split(' ').collect();
        (fields[7], fields[9]) = ("100", "1234");
        std::fs::write(root.path().join("proc/7/stat"), format!("{name}) {}", fields.join(" "))).unwrap();
        assert_eq!(major_faults(root.path(), 7).unwrap(), 1234);
        assert_eq!(page_faults(root.path(), 7).unwrap(), 1334);
        major_faults(root.path(), 8).unwrap_err();
        page_faults(root.path(), 8).unwrap_err();
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
