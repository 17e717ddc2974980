//! A directory tree with copies of the kernel's files about pages, and functions that change them as a kernel would.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AccessProbe, AddrRange, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace};
use isotherm_probes::idle::IdleProbe;

pub const LRU: u64 = 1 << 5;
pub const BUDDY: u64 = 1 << 10;
pub const ANON: u64 = 1 << 12;
pub const HEAD: u64 = 1 << 15;
pub const TAIL: u64 = 1 << 16;
pub const HUGETLB: u64 = 1 << 17;
pub const ZERO_PAGE: u64 = 1 << 24;
pub const IDLE: u64 = 1 << 25;

pub const PRESENT: u64 = 1 << 63;
pub const EXCLUSIVE: u64 = 1 << 56;
pub const SWAPPED: u64 = 1 << 62;

pub const PHYSICAL: TargetId = TargetId::PhysicalMemory;
pub const PROCESS: TargetId = TargetId::process(7, Duration::ZERO);

const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";

pub struct Made {
    pub root: tempfile::TempDir,
}

impl Made {
    /// A machine with `frames` frames, a multiple of 64. All of them are on a reclaim list, and none is marked as idle.
    /// Process 7 has nothing mapped.
    pub fn new(frames: usize) -> Self {
        let made = Self { root: tempfile::tempdir().unwrap() };
        made.write("proc/kpageflags", &vec![LRU; frames]);
        made.write(BITMAP, &vec![0; frames / 64]);
        made.write("proc/7/pagemap", &[]);
        made
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, entries: &[u64]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect::<Vec<_>>()).unwrap();
    }

    fn set(&self, path: &str, place: u64, entry: u64) {
        let file = File::options().write(true).open(self.path(path)).unwrap();
        file.write_all_at(&entry.to_ne_bytes(), place * 8).unwrap();
    }

    pub fn set_flags(&self, frame: u64, flags: u64) {
        self.set("proc/kpageflags", frame, flags);
    }

    /// Sets the pagemap entry of page number `page` of process 7.
    pub fn set_page(&self, page: u64, entry: u64) {
        self.set("proc/7/pagemap", page, entry);
    }

    /// Has process 7 open a file with this name, and this information.
    pub fn open_file(&self, name: &str, info: &str) {
        for (directory, file) in [("fd", None), ("fdinfo", Some(info))] {
            let directory = self.path(&format!("proc/7/{directory}"));
            fs::create_dir_all(&directory).unwrap();
            match file {
                None => std::os::unix::fs::symlink(name, directory.join("3")).unwrap(),
                Some(info) => fs::write(directory.join("3"), info).unwrap(),
            }
        }
    }

    pub fn words(&self) -> Vec<u64> {
        let bytes = fs::read(self.path(BITMAP)).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect()
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
        // The file is written in place, because the probe has it open.
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        File::options().write(true).open(self.path(BITMAP)).unwrap().write_all_at(&bytes, 0).unwrap();
    }

    /// Shortens the bitmap to `frames` frames, as if the memory after them were removed.
    pub fn cut_bitmap(&self, frames: u64) {
        File::options().write(true).open(self.path(BITMAP)).unwrap().set_len(frames / 8).unwrap();
    }

    /// The probe with both targets. Pages 0 to `pages` of each are mapped.
    pub fn probe(&self, pages: u64) -> IdleProbe {
        let mut probe = IdleProbe::at(self.root.path()).unwrap();
        probe.update(&[space(PHYSICAL, pages), space(PROCESS, pages)]).unwrap();
        probe
    }
}

pub fn space(id: TargetId, pages: u64) -> TargetSpace {
    let range = AddrRange::new(0, pages * PAGE_SIZE).unwrap();
    let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(range)]);
    TargetSpace { id, layout: Layout::Ranges, mappings }
}

pub fn samples(target: TargetId, pages: impl IntoIterator<Item = u64>) -> Vec<Sample> {
    pages.into_iter().map(|page| Sample { target, addr: page * PAGE_SIZE }).collect()
}

/// One round. Calls `between` after the pages are marked and before they are read.
pub fn round(probe: &mut IdleProbe, samples: &[Sample], between: impl FnOnce()) -> Vec<Observation> {
    // The probe must overwrite every one of these values.
    let mut answers = vec![Observation::Accessed; samples.len()];
    probe.clear(samples).unwrap();
    between();
    probe.read(samples, &mut answers).unwrap();
    answers
}
