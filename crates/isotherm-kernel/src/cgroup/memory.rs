//! The memory of one cgroup of version 2: what the kernel counts of it, how long its tasks wait for memory, requests to
//! reclaim, and its limits (Linux `Documentation/admin-guide/cgroup-v2.rst`, "Memory", and `accounting/psi.rst`).

use std::io;

use isotherm_core::PAGE_SIZE;
use procfs::{FromRead, MemoryPressure, ProcResult};
use rustix::io::Errno;

use super::files::{CgroupDirectory, CgroupFiles};
use super::limit::{LimitFile, MemoryLimit};
use super::{CgroupVersion, Hierarchy, NoMemoryCgroup};

/// The file by which the kernel is asked to reclaim.
pub(super) const RECLAIM: &str = "memory.reclaim";

/// A kernel that takes no swappiness takes from the page cache alone only if it holds more of it for inactive than
/// this. It looks for 4,096 pages of it first (`DEF_PRIORITY` of Linux' mm/vmscan.c).
const PLENTY: u64 = 4096 * PAGE_SIZE;

/// One cgroup of version 2 that accounts memory.
#[derive(Debug)]
pub struct CgroupMemory<F: CgroupFiles = CgroupDirectory> {
    path: String,
    files: F,
}

/// What the kernel counts of the memory of a cgroup and of those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCounters {
    /// Bytes that came back after they were reclaimed, soon enough that the kernel remembered them
    /// (`workingset_refault_anon` and `workingset_refault_file`).
    pub refaulted: u64,
    /// Bytes that were reclaimed, by whomever (`pgsteal`).
    pub reclaimed: u64,
    /// Bytes of anonymous memory (`anon`).
    pub anonymous: u64,
    /// Bytes of the page cache, mapped or not (`file`).
    pub file: u64,
    /// The part of it that processes map (`file_mapped`).
    pub mapped: u64,
    /// Bytes of files that the kernel takes for inactive, and those that it takes for active, mapped or not
    /// (`inactive_file`, `active_file`). What was read once is inactive.
    pub inactive: u64,
    /// See [`inactive`](Self::inactive).
    pub active: u64,
    /// Bytes that were inactive and became active (`pgactivate`).
    pub activated: u64,
}

/// What became of a request to reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Bytes that were reclaimed, at most those that were asked for.
    pub bytes: u64,
    /// Why it is not all. `EAGAIN` means that the kernel found no more.
    pub ended: Option<Errno>,
    /// Whether the kernel does not take a swappiness, and has reclaimed with its own.
    pub without_swappiness: bool,
}

impl CgroupMemory {
    /// The cgroup that accounts the memory of the cgroup at `path`: that one, or the nearest above it whose controller
    /// `memory` is on.
    ///
    /// # Errors
    /// If there is none that isotherm can act on.
    pub fn open(hierarchy: &Hierarchy, path: &str) -> Result<Self, NoMemoryCgroup> {
        if hierarchy.version() == CgroupVersion::V1 {
            return Err(NoMemoryCgroup::Version1);
        }
        let mount = hierarchy.mount().ok_or(NoMemoryCgroup::NotMounted { command: hierarchy.mount_command() })?;
        let gone = || NoMemoryCgroup::Gone { path: path.into() };
        mount.directory_of(path).filter(|directory| directory.is_dir()).ok_or_else(gone)?;
        let mut at = path;
        while let Some((above, _)) = at.rsplit_once('/').filter(|_| at != "/") {
            let directory = mount.directory_of(at).ok_or_else(gone)?;
            // The root has no such file.
            if directory.join("memory.current").exists() {
                let files = CgroupDirectory::open(&directory).map_err(|_| gone())?;
                return Ok(Self { path: at.into(), files });
            }
            at = if above.is_empty() { "/" } else { above };
        }
        Err(NoMemoryCgroup::NoController { path: path.into() })
    }

    /// Checks that the hierarchy lets this process reclaim. Nothing is reclaimed.
    ///
    /// # Errors
    /// Why not.
    pub fn check(hierarchy: &Hierarchy) -> Result<(), NoMemoryCgroup> {
        if hierarchy.version() == CgroupVersion::V1 {
            return Err(NoMemoryCgroup::Version1);
        }
        let directory =
            hierarchy.directory().ok_or(NoMemoryCgroup::NotMounted { command: hierarchy.mount_command() })?;
        let refused = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => NoMemoryCgroup::NoReclaim { path: directory.join(RECLAIM) },
            _ => NoMemoryCgroup::NotWritable { path: directory.join(RECLAIM), source },
        };
        CgroupDirectory::open(directory).and_then(|directory| directory.can_write(RECLAIM)).map_err(refused)
    }
}

impl<F: CgroupFiles> CgroupMemory<F> {
    /// The cgroup at `path`, with files of a test, for example.
    pub fn with_files(path: &str, files: F) -> Self {
        Self { path: path.into(), files }
    }

    /// Its path from the root of the hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its files.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// What the kernel counts. What it does not count is 0.
    ///
    /// # Errors
    /// If `memory.stat` cannot be read.
    pub fn counters(&self) -> io::Result<CgroupCounters> {
        let text = self.files.read("memory.stat")?;
        let count = |name: &str| -> u64 {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
            value.unwrap_or(0)
        };
        let pages = |name: &str| count(name).saturating_mul(PAGE_SIZE);
        Ok(CgroupCounters {
            refaulted: pages("workingset_refault_anon").saturating_add(pages("workingset_refault_file")),
            reclaimed: pages("pgsteal"),
            anonymous: count("anon"),
            file: count("file"),
            mapped: count("file_mapped"),
            inactive: count("inactive_file"),
            active: count("active_file"),
            activated: pages("pgactivate"),
        })
    }

    /// How long its tasks have waited for memory.
    ///
    /// # Errors
    /// If `memory.pressure` cannot be read: the kernel has no pressure stall information, or the cgroup's is off.
    pub fn pressure(&self) -> ProcResult<MemoryPressure> {
        MemoryPressure::from_read(self.files.read("memory.pressure")?.as_bytes())
    }

    /// Whether its tasks are frozen. They cannot show that they miss what is reclaimed.
    pub fn is_frozen(&self) -> bool {
        let events = self.files.read("cgroup.events").unwrap_or_default();
        events.lines().any(|line| line == "frozen 1")
    }

    /// Whether it was removed, or its controller was turned off.
    pub fn is_gone(&self) -> bool {
        let is_gone = |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::NODEV | Errno::NOENT));
        self.files.read("memory.current").as_ref().is_err_and(is_gone)
    }

    /// The bytes that are charged to it and to those below it.
    ///
    /// # Errors
    /// If `memory.current` cannot be read, or holds no number.
    pub fn current(&self) -> io::Result<u64> {
        let text = self.files.read("memory.current")?;
        text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Its limit by this file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no limit.
    pub fn limit(&self, file: LimitFile) -> io::Result<MemoryLimit> {
        let text = self.files.read(file.name())?;
        let limit = text.trim().parse();
        limit.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Sets its limit by this file. The kernel keeps whole pages.
    ///
    /// # Errors
    /// If the file cannot be written to.
    pub fn set_limit(&self, file: LimitFile, limit: MemoryLimit) -> io::Result<()> {
        self.files.write(file.name(), &limit.to_string())
    }

    /// How often its tasks had to reclaim because it had more memory than `memory.high` (`high` in `memory.events`).
    /// `None` if that is not known: the file cannot be read, or says nothing of it.
    pub fn times_above_high(&self) -> Option<u64> {
        let events = self.files.read("memory.events").ok()?;
        events.lines().find_map(|line| line.strip_prefix("high ")?.trim().parse().ok())
    }

    /// Asks the kernel to reclaim `bytes`, with this swappiness (0 to 200) if it takes one. It takes what it finds to
    /// be the least used, of this cgroup and of those below it.
    pub fn reclaim(&self, bytes: u64, swappiness: Option<u8>) -> Reclaimed {
        let before = self.counters();
        let (written, without_swappiness) = self.ask(bytes, swappiness);
        Reclaimed { without_swappiness, ..self.reclaimed(bytes, &before, written) }
    }

    /// Asks the kernel to reclaim `bytes` of the page cache, and no memory that needs swap.
    ///
    /// A kernel that takes no swappiness (before 6.11) leaves other memory alone only as long as it holds more of the
    /// page cache for inactive than for active, and 16 MiB at least. It is asked for what is beyond that.
    pub fn reclaim_cache(&self, bytes: u64) -> Reclaimed {
        let before = self.counters();
        let written = self.files.write(RECLAIM, &format!("{bytes} swappiness=0"));
        if !is_invalid(&written) {
            return self.reclaimed(bytes, &before, written);
        }
        let beyond = |counters: &CgroupCounters| counters.inactive.saturating_sub(counters.active.max(PLENTY));
        let bytes = before.as_ref().map_or(0, beyond).min(bytes);
        let bytes = bytes - bytes % PAGE_SIZE;
        if bytes == 0 {
            return Reclaimed { without_swappiness: true, ..Reclaimed::default() };
        }
        let written = self.files.write(RECLAIM, &bytes.to_string());
        Reclaimed { without_swappiness: true, ..self.reclaimed(bytes, &before, written) }
    }

    /// What became of a request for `bytes`.
    fn reclaimed(&self, bytes: u64, before: &io::Result<CgroupCounters>, written: io::Result<()>) -> Reclaimed {
        let ended = written.err().map(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let freed = match (ended, before, self.counters()) {
            (None, ..) => bytes,
            // Others may have reclaimed as well.
            (Some(Errno::AGAIN | Errno::INTR), Ok(before), Ok(after)) => {
                after.reclaimed.saturating_sub(before.reclaimed).min(bytes)
            }
            (Some(_), ..) => 0,
        };
        Reclaimed { bytes: freed, ended, without_swappiness: false }
    }

    /// Writes the request. Returns whether the kernel does not take the swappiness.
    fn ask(&self, bytes: u64, swappiness: Option<u8>) -> (io::Result<()>, bool) {
        if let Some(swappiness) = swappiness {
            let written = self.files.write(RECLAIM, &format!("{bytes} swappiness={swappiness}"));
            // Older kernels take the number only.
            if !is_invalid(&written) {
                return (written, false);
            }
        }
        (self.files.write(RECLAIM, &bytes.to_string()), swappiness.is_some())
    }
}

fn is_invalid(written: &io::Result<()>) -> bool {
    written.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::INVAL))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::super::made::{mounted_at_cg, write};
    use super::*;

    /// Files that answer to a request to reclaim as a kernel does that has so much to reclaim.
    #[derive(Debug, Default)]
    struct Made {
        files: RefCell<HashMap<String, String>>,
        /// Pages that can be reclaimed.
        left: RefCell<u64>,
        takes_swappiness: bool,
        /// Bytes of files that are active.
        active: u64,
        /// The error of the next request.
        fails: RefCell<Option<Errno>>,
        asked: RefCell<Vec<String>>,
        stolen: RefCell<u64>,
    }

    impl CgroupFiles for Made {
        fn read(&self, name: &str) -> io::Result<String> {
            match name {
                "memory.stat" => Ok(format!(
                    "anon 1\npgsteal_kswapd 7\npgsteal {}\ninactive_file {}\nactive_file {}\n",
                    self.stolen.borrow(),
                    *self.left.borrow() * PAGE_SIZE,
                    self.active
                )),
                name => self.files.borrow().get(name).cloned().ok_or_else(|| Errno::NODEV.into()),
            }
        }

        fn write(&self, name: &str, text: &str) -> io::Result<()> {
            assert_eq!(name, RECLAIM);
            self.asked.borrow_mut().push(text.into());
            if let Some(errno) = self.fails.take() {
                return Err(errno.into());
            }
            let (bytes, rest) = text.split_once(' ').unwrap_or((text, ""));
            if !rest.is_empty() && !self.takes_swappiness {
                return Err(Errno::INVAL.into());
            }
            let pages = bytes.parse::<u64>().unwrap() / PAGE_SIZE;
            let taken = pages.min(*self.left.borrow());
            *self.left.borrow_mut() -= taken;
            *self.stolen.borrow_mut() += taken;
            if taken < pages { Err(Errno::AGAIN.into()) } else { Ok(()) }
        }

        fn inode(&self) -> io::Result<u64> {
            Ok(1)
        }
    }

    fn with_pages(left: u64) -> CgroupMemory<Made> {
        CgroupMemory::with_files("/a", Made { left: left.into(), ..Made::default() })
    }

    #[test]
    fn partial_success_is_what_the_kernel_has_counted() {
        let cgroup = with_pages(30);
        let all = Reclaimed { bytes: 20 * PAGE_SIZE, ..Reclaimed::default() };
        assert_eq!(cgroup.reclaim(20 * PAGE_SIZE, None), all);
        let part = Reclaimed { bytes: 10 * PAGE_SIZE, ended: Some(Errno::AGAIN), ..Reclaimed::default() };
        assert_eq!(cgroup.reclaim(20 * PAGE_SIZE, None), part);
        let nothing = Reclaimed { bytes: 0, ended: Some(Errno::AGAIN), ..Reclaimed::default() };
        assert_eq!(cgroup.reclaim(20 * PAGE_SIZE, None), nothing);
    }

    #[test]
    fn a_request_is_made_once_after_a_signal_and_fails_with_the_cgroup() {
        for errno in [Errno::INTR, Errno::NODEV, Errno::ACCESS] {
            let cgroup = with_pages(30);
            cgroup.files().fails.replace(Some(errno));
            let ended = Reclaimed { bytes: 0, ended: Some(errno), ..Reclaimed::default() };
            assert_eq!(cgroup.reclaim(PAGE_SIZE, None), ended);
            assert_eq!(*cgroup.files().asked.borrow(), ["4096"]);
        }
    }

    #[test]
    fn a_kernel_that_takes_no_swappiness_is_asked_without() {
        let mut cgroup = with_pages(30);
        let reclaimed = cgroup.reclaim(PAGE_SIZE, Some(10));
        assert_eq!((reclaimed.bytes, reclaimed.ended, reclaimed.without_swappiness), (PAGE_SIZE, None, true));
        assert_eq!(*cgroup.files().asked.borrow(), ["4096 swappiness=10", "4096"]);
        cgroup.files.takes_swappiness = true;
        assert!(!cgroup.reclaim(PAGE_SIZE, Some(0)).without_swappiness);
        assert_eq!(cgroup.files().asked.borrow().last().unwrap(), "4096 swappiness=0");
    }

    #[test]
    fn of_the_page_cache_an_older_kernel_is_asked_only_for_what_it_has_plenty_of() {
        let plenty = PLENTY / PAGE_SIZE;
        let mut cgroup = with_pages(plenty + 10);
        assert_eq!(cgroup.reclaim_cache(4 * PAGE_SIZE).bytes, 4 * PAGE_SIZE);
        assert_eq!(*cgroup.files().asked.borrow(), ["16384 swappiness=0", "16384"]);
        let rest = cgroup.reclaim_cache(20 * PAGE_SIZE);
        assert_eq!((rest.bytes, rest.without_swappiness), (6 * PAGE_SIZE, true));
        cgroup.files().asked.borrow_mut().clear();
        assert_eq!(cgroup.reclaim_cache(PAGE_SIZE).bytes, 0);
        assert_eq!(*cgroup.files().asked.borrow(), ["4096 swappiness=0"], "it has no more than that");
        *cgroup.files.left.get_mut() = plenty * 2;
        cgroup.files.active = (plenty * 2 - 1) * PAGE_SIZE;
        assert_eq!(cgroup.reclaim_cache(2 * PAGE_SIZE).bytes, PAGE_SIZE, "as much is active");
        cgroup.files.takes_swappiness = true;
        assert_eq!(cgroup.reclaim_cache(20 * PAGE_SIZE).bytes, 20 * PAGE_SIZE);
        assert_eq!(cgroup.files().asked.borrow().last().unwrap(), "81920 swappiness=0");
    }

    #[test]
    fn figures_are_read_from_the_files_of_the_cgroup() {
        let root = mounted_at_cg();
        let file = |name: &str, text: &str| write(root.path(), &format!("cg/a/{name}"), text);
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        file("memory.current", "4096\n");
        let cgroup = CgroupMemory::open(&hierarchy, "/a").unwrap();
        assert!(!cgroup.is_frozen() && cgroup.pressure().is_err() && cgroup.counters().is_err() && !cgroup.is_gone());
        file("memory.stat", "anon 10\nfile 20\nworkingset_refault_anon 3\nworkingset_refault_file 4\npgsteal 5\n");
        let pages = |pages| pages * PAGE_SIZE;
        let (refaulted, reclaimed) = (pages(7), pages(5));
        let counters = CgroupCounters { refaulted, reclaimed, anonymous: 10, file: 20, ..CgroupCounters::default() };
        assert_eq!(cgroup.counters().unwrap(), counters);
        file(
            "memory.pressure",
            "some avg10=1.50 avg60=0.50 avg300=0.00 total=2500000\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=7\n",
        );
        let MemoryPressure { some, full } = cgroup.pressure().unwrap();
        assert_eq!((some.avg10, some.avg60, some.total), (1.5, 0.5, 2_500_000));
        assert_eq!((full.avg10, full.total), (0.25, 7));
        file("memory.pressure", "some\n");
        assert!(cgroup.pressure().is_err());
        file("cgroup.events", "populated 1\nfrozen 1\n");
        assert!(cgroup.is_frozen());
    }

    #[test]
    fn a_limit_is_read_and_set_and_what_cannot_be_read_is_not_known() {
        let root = mounted_at_cg();
        let file = |name: &str, text: &str| write(root.path(), &format!("cg/a/{name}"), text);
        file("memory.current", "4096\n");
        let cgroup = CgroupMemory::open(&Hierarchy::find(root.path()).unwrap(), "/a").unwrap();
        assert_eq!(cgroup.current().unwrap(), 4096);
        assert!(cgroup.limit(LimitFile::High).is_err() && cgroup.times_above_high().is_none());
        file("memory.high", "max\n");
        file("memory.events", "low 1\nhigh 7\nmax 0\n");
        assert_eq!(cgroup.limit(LimitFile::High).unwrap(), MemoryLimit::Max);
        assert_eq!(cgroup.times_above_high(), Some(7));
        cgroup.set_limit(LimitFile::High, MemoryLimit::Bytes(8192)).unwrap();
        assert_eq!(cgroup.limit(LimitFile::High).unwrap(), MemoryLimit::Bytes(8192));
        file("memory.events", "low 1\n");
        file("memory.high", "much\n");
        assert!(cgroup.limit(LimitFile::High).is_err() && cgroup.times_above_high().is_none());
        let other = CgroupDirectory::open(&root.path().join("cg")).unwrap();
        assert_ne!(cgroup.files().inode().unwrap(), other.inode().unwrap());
    }

    #[test]
    fn the_memory_of_a_cgroup_without_the_controller_is_that_of_the_one_above() {
        let root = mounted_at_cg();
        write(root.path(), "cg/a/memory.current", "1");
        write(root.path(), "cg/a/b/c/cgroup.procs", "");
        write(root.path(), "cg/other/cgroup.procs", "");
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let found = |path: &str| CgroupMemory::open(&hierarchy, path).map(|cgroup| cgroup.path);
        assert_eq!(found("/a/b/c").unwrap(), "/a");
        assert!(matches!(found("/other"), Err(NoMemoryCgroup::NoController { .. })));
        assert!(matches!(found("/"), Err(NoMemoryCgroup::NoController { .. })), "the root is the whole machine");
        assert!(matches!(found("/gone"), Err(NoMemoryCgroup::Gone { .. })));
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let root = mounted_at_cg();
        let check = |root: &std::path::Path| CgroupMemory::check(&Hierarchy::find(root).unwrap());
        std::fs::create_dir_all(root.path().join("cg")).unwrap();
        let refused = check(root.path()).unwrap_err();
        assert!(refused.to_string().contains("Linux 5.19"), "{refused}");
        write(root.path(), "cg/memory.reclaim", "");
        check(root.path()).unwrap();
        assert_eq!(std::fs::read_to_string(root.path().join("cg/memory.reclaim")).unwrap(), "");
        write(root.path(), "proc/self/cgroup", "4:memory:/\n0::/\n");
        let refused = check(root.path()).unwrap_err().to_string();
        for part in ["version 1", "pageout", "cgroup_no_v1=memory"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(matches!(
            CgroupMemory::open(&Hierarchy::find(root.path()).unwrap(), "/a"),
            Err(NoMemoryCgroup::Version1)
        ));
    }
}
