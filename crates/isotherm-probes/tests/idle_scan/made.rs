//! A directory tree with copies of the kernel's files about pages, cgroups and processes, and functions that change
//! them as a kernel would.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use isotherm_core::PAGE_SIZE;
use isotherm_kernel::Stop;
use isotherm_probes::idle_scan::{Detail, IdleFindings, PhysicalScan, Scan, ScanError, ScanPacer, Scope};

pub const LRU: u64 = 1 << 5;
pub const BUDDY: u64 = 1 << 10;
pub const ANON: u64 = 1 << 12;
pub const HEAD: u64 = 1 << 15;
pub const TAIL: u64 = 1 << 16;
pub const HUGETLB: u64 = 1 << 17;
pub const UNEVICTABLE: u64 = 1 << 18;
pub const PRESENT: u64 = 1 << 63;

pub const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";
pub const V2: &str = "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

pub struct Made {
    pub root: tempfile::TempDir,
}

impl Made {
    /// A machine with `frames` frames, a multiple of 64, all of them free. A cgroup hierarchy of version 2 is mounted
    /// in the usual place.
    pub fn new(frames: usize) -> Self {
        let made = Self { root: tempfile::tempdir().unwrap() };
        made.table("proc/kpageflags", &vec![BUDDY; frames]);
        made.table("proc/kpagecgroup", &vec![0; frames]);
        made.table(BITMAP, &vec![0; frames / 64]);
        made.write("proc/iomem", &format!("00000000-{:08x} : System RAM\n", frames as u64 * PAGE_SIZE - 1));
        made.write("proc/self/cgroup", "0::/\n");
        made.write("proc/self/mountinfo", V2);
        made.cgroup("sys/fs/cgroup");
        made
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn table(&self, path: &str, entries: &[u64]) {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), bytes).unwrap();
    }

    /// Makes the directory of a cgroup and returns its inode number.
    pub fn cgroup(&self, path: &str) -> u64 {
        fs::create_dir_all(self.path(path)).unwrap();
        fs::metadata(self.path(path)).unwrap().ino()
    }

    /// Divides the memory among nodes: `of[i]` is the node of the `i`th block of `frames` frames.
    pub fn nodes(&self, frames: u64, of: &[u32]) {
        let memory = "sys/devices/system/memory";
        self.write(&format!("{memory}/block_size_bytes"), &format!("{:x}\n", frames * PAGE_SIZE));
        self.write("proc/meminfo", "MemTotal: 1024 kB\n");
        for (block, node) in of.iter().enumerate() {
            self.write(&format!("{memory}/memory{block}/state"), "online\n");
            fs::create_dir(self.path(&format!("{memory}/memory{block}/node{node}"))).unwrap();
        }
    }

    fn set(&self, path: &str, place: u64, entry: u64) {
        let file = File::options().write(true).open(self.path(path)).unwrap();
        file.write_all_at(&entry.to_ne_bytes(), place * 8).unwrap();
    }

    /// Sets the flags of `frames`, and charges them to `cgroup`.
    pub fn page(&self, frames: impl IntoIterator<Item = u64>, flags: u64, cgroup: u64) {
        for frame in frames {
            self.set("proc/kpageflags", frame, flags);
            self.set("proc/kpagecgroup", frame, cgroup);
        }
    }

    /// Makes a compound page. Only its head is charged.
    pub fn compound(&self, head: u64, count: u64, flags: u64, cgroup: u64) {
        self.page([head], flags | HEAD, cgroup);
        self.page(head + 1..head + count, TAIL, 0);
    }

    /// Makes a process that maps `frames` from address 0x10000 on. Frame 0 stands for a page that is not present.
    pub fn process(&self, pid: u32, cgroup: &str, frames: &[u64]) {
        let end = 0x10000 + frames.len() as u64 * PAGE_SIZE;
        self.write(&format!("proc/{pid}/maps"), &format!("10000-{end:x} rw-p 00000000 00:00 0 \n"));
        self.write(&format!("proc/{pid}/cmdline"), &format!("worker\0{pid}\0"));
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
        self.write(&format!("proc/{pid}/statm"), "100 50 0 0 0 0 0\n");
        let entries = frames.iter().map(|&frame| if frame == 0 { 0 } else { PRESENT | frame });
        self.table(&format!("proc/{pid}/pagemap"), &std::iter::repeat_n(0, 16).chain(entries).collect::<Vec<_>>());
    }

    pub fn words(&self) -> Vec<u64> {
        let bytes = fs::read(self.path(BITMAP)).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect()
    }

    /// Writes the file in place, because the scan has it open.
    fn set_words(&self, words: &[u64]) {
        words.iter().enumerate().for_each(|(place, &word)| self.set(BITMAP, place as u64, word));
    }

    /// The frames that are marked as idle.
    pub fn idle(&self) -> Vec<u64> {
        let words = self.words();
        (0..words.len() as u64 * 64).filter(|frame| words[*frame as usize / 64] >> (frame % 64) & 1 == 1).collect()
    }

    /// Clears the idle bits of `frames`, as the kernel does when they are accessed.
    pub fn access(&self, frames: impl IntoIterator<Item = u64>) {
        let mut words = self.words();
        frames.into_iter().for_each(|frame| words[frame as usize / 64] &= !(1 << (frame % 64)));
        self.set_words(&words);
    }

    pub fn scan(&self, scope: Scope, detail: Detail) -> Result<PhysicalScan, ScanError> {
        PhysicalScan::at(self.root.path(), scope, detail)
    }

    /// A scan of all memory by cgroup that has been marked.
    pub fn marked(&self) -> PhysicalScan {
        let mut scan = self.scan(Scope::All, Detail::default()).unwrap();
        scan.mark(&mut pacer()).unwrap();
        scan
    }

    /// Reads the scan. As in a kernel, a zero written to the idle bitmap changes nothing, so marks stay set.
    pub fn read(&self, scan: &mut PhysicalScan) -> IdleFindings {
        let before = self.words();
        let findings = scan.read(&mut pacer()).unwrap();
        let after: Vec<u64> = before.iter().zip(self.words()).map(|(before, after)| before | after).collect();
        self.set_words(&after);
        findings
    }
}

pub fn pacer() -> ScanPacer {
    ScanPacer::new(None, Stop::new().unwrap(), |_, _| ())
}

/// The idle, accessed, unobservable and unevictable pages of a cgroup.
pub fn of(findings: &IdleFindings, path: &str) -> Option<[u64; 4]> {
    let own = &findings.cgroups.iter().find(|cgroup| cgroup.path.as_deref() == Some(path))?.own;
    Some([own.idle, own.accessed, own.unobservable, own.unevictable].map(|bytes| bytes / PAGE_SIZE))
}
