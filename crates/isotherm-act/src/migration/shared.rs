//! Pages that are mapped several times, and that are idle at each place.

use std::path::{Path, PathBuf};

use isotherm_core::TargetId;
use isotherm_core::scheme::{Elsewhere, IdlePlace};
use isotherm_kernel::pages::{PageBuffer, Pagemap, TableError};
use rustix::io::Errno;

use crate::frames::add_page;
use crate::map_counts::MapCounts;

/// Finds pages that are mapped several times and are idle at each place.
#[derive(Debug)]
pub(super) struct SharedPages {
    root: PathBuf,
    mapped: MapCounts,
    buffer: PageBuffer,
}

/// A page that is mapped several times.
#[derive(Debug)]
struct SharedPage {
    addr: u64,
    frame: u64,
    /// At how many places it was found: here, and where it is idle.
    places: u64,
}

impl SharedPages {
    /// Opens the kernel's table. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(root: &Path) -> Result<Self, TableError> {
        Ok(Self { root: root.into(), mapped: MapCounts::open(root)?, buffer: PageBuffer::default() })
    }

    /// Those of the small pages at `addresses` of a process, which are sorted, that are mapped several times and are
    /// idle at each of the other places; in the order of addresses. A page that is mapped by anyone else is not among
    /// them: the kernel tells how often its frame is mapped.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(super) fn idle_everywhere(
        &mut self,
        (pid, target): (u32, TargetId),
        addresses: &[u64],
        elsewhere: &Elsewhere<'_>,
    ) -> Result<Vec<u64>, Errno> {
        let mut pages = self.shared(pid, addresses)?;
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let mut ranges = Vec::new();
        pages.iter().for_each(|page| add_page(&mut ranges, page.addr));
        let mut places = elsewhere.idle_places(target, &ranges);
        places.sort_unstable_by_key(|place| (place.target, place.range));
        for of_one in places.chunk_by(|a, b| a.target == b.target) {
            // A process that has ended maps nothing.
            let Some(pid) = of_one[0].target.pid() else { continue };
            let Ok(pagemap) = Pagemap::open(&self.root, &pid.to_string()) else { continue };
            of_one.iter().for_each(|place| self.count(&pagemap, place, &mut pages));
        }
        pages.retain(|page| page.places > 1);
        pages.sort_unstable_by_key(|page| page.frame);
        let mut times = Vec::with_capacity(pages.len());
        let frames = pages.iter().map(|page| page.frame);
        self.mapped.each(frames, &mut self.buffer, |count| times.push(count))?;
        let known = pages.iter().zip(times).filter(|(page, times)| *times == Some(page.places));
        let mut idle: Vec<u64> = known.map(|(page, _)| page.addr).collect();
        idle.sort_unstable();
        Ok(idle)
    }

    /// The pages at these addresses of a process that are mapped several times.
    fn shared(&mut self, pid: u32, addresses: &[u64]) -> Result<Vec<SharedPage>, Errno> {
        let mut pages = Vec::new();
        let pagemap = Pagemap::open(&self.root, &pid.to_string()).map_err(|error| error.errno())?;
        let mut next = addresses.iter().copied();
        let read = pagemap.each(addresses.iter().copied(), &mut self.buffer, |entry| {
            let (addr, entry) = (next.next(), entry.filter(|entry| !entry.is_exclusive()));
            if let (Some(addr), Some(frame)) = (addr, entry.and_then(|entry| entry.frame())) {
                pages.push(SharedPage { addr, frame, places: 1 });
            }
        });
        read.map(|()| pages).map_err(|error| error.errno())
    }

    /// Counts the pages at a place that have the same frame as one of `pages`. What cannot be read does not count.
    fn count(&mut self, pagemap: &Pagemap, place: &IdlePlace, pages: &mut [SharedPage]) {
        let mut here = place.range.page_addresses().map(|addr| addr.wrapping_add(place.shift));
        let _ = pagemap.frames(place.range.page_addresses(), &mut self.buffer, |frame| {
            let (Some(here), Some(frame)) = (here.next(), frame) else { return };
            if let Ok(nth) = pages.binary_search_by_key(&here, |page| page.addr)
                && pages[nth].frame == frame
            {
                pages[nth].places += 1;
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::survey::{BlockPages, ClearPages, PageBits, PageHistory};
    use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, Snapshot, TargetSnapshot};

    use super::*;

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;

    #[test]
    fn a_page_is_found_if_all_that_map_it_are_targets_and_have_it_idle() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        // Two processes map the frames 10 to 12, the second one has accessed page 1, and a third maps frame 12, too.
        // Page 3 is of one process, and page 4 is a copy in each.
        write("proc/1/pagemap", &[10, 11, 12, EXCLUSIVE | 13, 14].map(|entry| PRESENT | entry));
        write("proc/2/pagemap", &[PRESENT | 10, PRESENT | 11, PRESENT | 12, 0, PRESENT | 15]);
        let mut counts = [0; 20];
        counts[10..16].copy_from_slice(&[2, 2, 3, 1, 2, 2]);
        write("proc/kpagecount", &counts);

        let target = |pid| TargetId::process(pid, Duration::ZERO);
        let memory: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(0, 5 * PAGE_SIZE).unwrap())].into();
        let history = |accessed| {
            let mut history = PageHistory::default();
            for second in 0..5 {
                let found = BlockPages { present: PageBits::of(0..5), accessed, ..BlockPages::default() };
                history.take(&[found], Duration::from_secs(second));
                history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
            }
            Arc::new(history)
        };
        let of = |pid| TargetSnapshot { id: target(pid), regions: Vec::new(), mappings: Arc::clone(&memory) };
        let histories = vec![(target(1), history(PageBits::NONE)), (target(2), history(PageBits::of(1..2)))];
        let snapshot = Snapshot { targets: vec![of(1), of(2)], histories, ..Snapshot::default() };

        let mut shared = SharedPages::open(root.path()).unwrap();
        let addresses = [0, 1, 2, 3, 4].map(|page| page * PAGE_SIZE);
        let mut found = |age| {
            let elsewhere = Elsewhere::new(&snapshot, Duration::from_secs(age));
            shared.idle_everywhere((1, target(1)), &addresses, &elsewhere).unwrap()
        };
        assert_eq!(found(3), [0]);
        assert_eq!(found(60), [0; 0], "nobody knows what was a minute ago");
    }
}
