//! Finds the large folios of a block, so that none is split.
//!
//! `MADV_COLD` on a part of a large folio splits it. The flags of page frames tell which pages belong to a large folio,
//! but reading them costs more than clearing. They are read only where a large folio can be:
//!
//! - in files and shared memory, and in anonymous memory if a size of transparent huge pages other than 2 MiB is
//!   enabled: the flags of all pages of the block;
//! - in other anonymous memory, a folio has 512 pages or one, and one with 512 pages begins at a multiple of 512
//!   frames. One frame of each such group of frames is read, and the result is kept until the kernel has split the
//!   mapping of a huge page: only such a split maps a huge page by small entries.

use std::fs;
use std::ops::Range;
use std::path::Path;

use isotherm_core::survey::{BLOCK_PAGES, PageBits};
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, TableError};
use isotherm_kernel::scheduling::pause;

use crate::bpf::BpfError;
use crate::bpf::entries::{Entries, PAGES};
use crate::bpf::folio::Folios;

const SETTINGS: &str = "sys/kernel/mm/transparent_hugepage";

/// The number of frames of a huge page.
const HUGE_FRAMES: u64 = BLOCK_PAGES as u64;

/// The huge zero page: present where a process has only read. It is no memory of the process.
#[derive(Debug, Default)]
pub(super) struct Zeros(Vec<u64>);

impl Zeros {
    /// Whether `frame` is the first frame of a huge zero page that was found before.
    pub(super) fn contains(&self, frame: u64) -> bool {
        self.0.contains(&frame)
    }

    /// Notes the first frame of a huge zero page. The kernel may free the page and make another one.
    pub(super) fn note(&mut self, frame: u64) {
        self.0.push(frame);
        if self.0.len() > 4 {
            self.0.remove(0);
        }
    }

    /// Forgets all frames: one may be of an ordinary page now.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// What is known about 512 frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Unknown,
    /// No huge page.
    Small,
    /// A huge page.
    Huge,
}

/// The large folios of a part of a block.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The folios that can be cleared as a whole.
    pub(super) whole: Vec<Range<usize>>,
    /// The pages that can only be cleared by splitting a folio.
    pub(super) barred: PageBits,
}

/// Finds large folios, and remembers where there are none.
#[derive(Debug, Default)]
pub(super) struct LargeFolios {
    /// Whether anonymous memory can have folios of sizes between a page and a huge page.
    small_sizes: bool,
    groups: Vec<Group>,
    /// How many mappings of huge pages the kernel had split when `groups` was begun.
    splits: Option<u64>,
    frames: Vec<(u64, usize)>,
    room: PageBuffer,
}

impl LargeFolios {
    /// Begins a survey.
    pub(super) fn begin(&mut self) {
        self.small_sizes = small_sizes(Path::new("/"));
        let splits = splits(Path::new("/"));
        if splits.is_none() || splits != self.splits {
            self.groups.clear();
            self.splits = splits;
        }
    }

    /// Finds the large folios among the pages that `block` is limited to, all of one mapping.
    pub(super) fn look(
        &mut self,
        folios: &Folios,
        block: &Entries,
        of_a_file: bool,
        layout: &mut Layout,
    ) -> Result<(), BpfError> {
        layout.whole.clear();
        layout.barred = PageBits::NONE;
        if of_a_file || self.small_sizes || self.has_huge(folios.table(), block)? {
            self.look_at_all(folios, block, layout)?;
        }
        Ok(())
    }

    /// Calls `tell` with the flags of the `pages` of a block that have an entry of their own.
    pub(super) fn flags(
        &mut self,
        folios: &Folios,
        block: &Entries,
        pages: PageBits,
        mut tell: impl FnMut(usize, Flags),
    ) -> Result<(), BpfError> {
        self.frames.clear();
        self.frames.extend(pages.iter().filter_map(|page| Some((block.frame(page)?, page))));
        self.frames.sort_unstable();
        let mut pages = self.frames.iter().map(|&(_, page)| page);
        let frames = self.frames.iter().map(|&(frame, _)| frame);
        let read = folios.table().each(frames, &mut self.room, |flags| {
            pages.next().into_iter().for_each(|page| tell(page, flags));
        });
        pause();
        read.map_err(unreadable)
    }

    /// Whether a frame of the block is a part of a huge page.
    fn has_huge(&mut self, table: &FlagTable, block: &Entries) -> Result<bool, BpfError> {
        let mut last = u64::MAX;
        for frame in block.pages().filter_map(|page| block.frame(page)) {
            let group = frame / HUGE_FRAMES;
            if group == last {
                continue;
            }
            last = group;
            if self.group(table, group).map_err(unreadable)? == Group::Huge {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn group(&mut self, table: &FlagTable, group: u64) -> Result<Group, TableError> {
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize(index + 1, Group::Unknown);
        }
        if self.groups[index] == Group::Unknown {
            let is_huge = table.is_huge_page(group * HUGE_FRAMES)?;
            self.groups[index] = if is_huge { Group::Huge } else { Group::Small };
        }
        Ok(self.groups[index])
    }

    fn look_at_all(&mut self, folios: &Folios, block: &Entries, layout: &mut Layout) -> Result<(), BpfError> {
        let mut flags = [Flags::default(); PAGES];
        let pages = PageBits::of(block.pages());
        self.flags(folios, block, pages, |page, found| flags[page] = found)?;
        let mut page = block.pages().start;
        while page < block.pages().end {
            if !flags[page].is_compound() {
                page += 1;
                continue;
            }
            // A tail here has a head that is not mapped directly before it.
            let next = if flags[page].is_head() { page + parts(block, &flags, page) } else { page + 1 };
            let whole = flags[page].is_head()
                && folios.stay_whole()
                && is_whole(block, folios.table(), page, next - page).map_err(unreadable)?;
            if whole {
                layout.whole.push(page..next);
            } else {
                layout.barred |= PageBits::of(page..next);
            }
            page = next;
        }
        Ok(())
    }
}

/// The number of pages of a folio that are mapped consecutively, from its head on.
fn parts(block: &Entries, flags: &[Flags; PAGES], head: usize) -> usize {
    let frame = block.frame(head);
    let follows =
        |page: &usize| flags[*page].is_tail() && block.frame(*page) == frame.map(|frame| frame + (*page - head) as u64);
    1 + (head + 1..block.pages().end).take_while(follows).count()
}

/// Whether the `count` pages from `head` on are the whole folio.
fn is_whole(block: &Entries, table: &FlagTable, head: usize, count: usize) -> Result<bool, TableError> {
    let Some(frame) = block.frame(head) else { return Ok(false) };
    let after = table.flags(frame + count as u64)?;
    Ok(count.is_power_of_two() && !after.is_some_and(Flags::is_tail))
}

/// Whether a size of transparent huge pages other than that of a huge page is enabled for anonymous memory. Linux has
/// such sizes since 6.8 (Documentation/admin-guide/mm/transhuge.rst).
fn small_sizes(root: &Path) -> bool {
    let root = root.join(SETTINGS);
    let chosen = |text: String| text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0.to_owned()));
    let setting = |path| fs::read_to_string(path).ok().and_then(chosen);
    let all = setting(root.join("enabled"));
    let Ok(sizes) = fs::read_dir(&root) else { return false };
    sizes.flatten().any(|size| {
        let name = size.file_name();
        let kib = name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let is_small = kib.and_then(|kib| kib.parse::<u64>().ok()).is_some_and(|kib| kib < HUGE_FRAMES * 4);
        let chosen = || setting(size.path().join("enabled"));
        is_small
            && match chosen().as_deref() {
                None | Some("never") => false,
                Some("inherit") => all.as_deref() != Some("never"),
                Some(_) => true,
            }
    })
}

/// How many mappings of huge pages the kernel has split into mappings of pages, if `/proc/vmstat` shows it.
fn splits(root: &Path) -> Option<u64> {
    let counters = fs::read_to_string(root.join("proc/vmstat")).ok()?;
    counters.lines().find_map(|line| line.strip_prefix("thp_split_pmd ")?.parse().ok())
}

fn unreadable(e: TableError) -> BpfError {
    BpfError::File {
        path: e.path.display().to_string(),
        source: e.source,
        fix: "does a security module forbid access to it?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_are_found_in_the_settings() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let directory = root.path().join(SETTINGS).join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("enabled"), text).unwrap();
        };
        assert!(!small_sizes(root.path()));
        put("", "always [madvise] never\n");
        put("hugepages-2048kB", "[always] inherit madvise never\n");
        put("hugepages-64kB", "always inherit madvise [never]\n");
        assert!(!small_sizes(root.path()));
        for (chosen, expected) in [("[inherit]", true), ("[madvise]", true), ("[never]", false)] {
            put("hugepages-64kB", chosen);
            assert_eq!(small_sizes(root.path()), expected, "{chosen}");
        }
        put("", "always madvise [never]\n");
        put("hugepages-64kB", "[inherit]");
        assert!(!small_sizes(root.path()));
    }
}
