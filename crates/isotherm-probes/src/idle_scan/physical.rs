//! The scan of all page frames by idle page tracking.
//!
//! A pass visits all memory once, piece by piece. For each piece it reads which pages are still idle, and marks the
//! others again. The interval of a page is therefore the time between two passes, however long a pass takes.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use isotherm_core::{FrameSet, IdleTally, NodeId, PAGE_SIZE, chain};

use super::findings::{CgroupIdle, IdleFindings, ScanMethod};
use super::frames::Frames;
use super::nodes::{NodeSums, Nodes};
use super::population::{Member, Population};
use super::processes::Pagemaps;
use super::wanted::Wanted;
use super::{Detail, Scan, ScanError, ScanPacer, Scope, tops};
use crate::idle::{BITMAP, IdleError, IdleProbe};
use crate::mark::Mark;
use isotherm_kernel::Glob;
use isotherm_kernel::cgroup::{CgroupPaths, Hierarchy};
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, Table};

/// The cgroup of each page frame, relative to the root directory.
const KPAGECGROUP: &str = "proc/kpagecgroup";

/// The number of frames of one word of the idle bitmap.
const WORD: u64 = 64;

/// The number of frames in a piece: 128 MiB. No compound page of user memory crosses a multiple of it.
const PIECE: u64 = 32768;

/// One call looks up the cgroups of frames that are at most this far apart.
const REACH: u64 = 64;

/// A scan of all page frames.
#[derive(Debug)]
pub struct PhysicalScan {
    bitmap: Table,
    flags: FlagTable,
    /// The cgroup of each frame, or `None` if this kernel does not provide it.
    charged: Option<Table>,
    hierarchy: Option<Hierarchy>,
    paths: CgroupPaths,
    population: Population,
    scope: Scope,
    detail: Detail,
    frames: Frames,
    nodes: Nodes,
    pagemaps: Pagemaps,
    notes: Vec<String>,
    buffer: PageBuffer,
    // The buffers below are kept between passes.
    words: Vec<u64>,
    page_flags: Vec<Flags>,
    pages: Vec<Page>,
    cgroups: Vec<u64>,
    marks: BTreeMap<u64, u64>,
}

/// A page of user memory: a single frame, or the frames of a compound page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Its first frame.
    head: u64,
    count: u64,
    flags: Flags,
}

/// The memory of a scan in sums.
#[derive(Debug, Default)]
struct Sums {
    /// By the inode number of the cgroup. 0 stands for no cgroup.
    cgroups: BTreeMap<u64, IdleTally>,
    /// Empty if nodes are not listed.
    nodes: NodeSums,
}

impl PhysicalScan {
    /// Opens the kernel's files, and checks that they can be used.
    ///
    /// # Errors
    /// If a file does not exist or cannot be used, or if a given process or cgroup does not exist.
    pub fn open(scope: Scope, detail: Detail) -> Result<Self, ScanError> {
        // The scan needs the same files as the probe.
        IdleProbe::open()?;
        Self::at(Path::new("/"), scope, detail)
    }

    /// Opens the files below `root`, without the checks of [`open`](Self::open). Tests use it on a made directory tree.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn at(root: &Path, scope: Scope, detail: Detail) -> Result<Self, ScanError> {
        let mut notes = Vec::new();
        let bitmap = Table::open(root, BITMAP, true).map_err(IdleError::bitmap)?;
        let flags = FlagTable::open(root).map_err(IdleError::flags)?;
        let charged = match Table::open(root, KPAGECGROUP, false) {
            Ok(table) => Some(table),
            Err(error) => {
                let fix = if error.source.kind() == ErrorKind::PermissionDenied {
                    "run isotherm as root"
                } else {
                    "use a kernel with CONFIG_MEMCG and CONFIG_PROC_PAGE_MONITOR"
                };
                notes.push(format!("memory is not split by cgroup ({fix}): {}", chain(&error)));
                None
            }
        };
        let hierarchy = match Hierarchy::find(root) {
            Ok(hierarchy) => Some(hierarchy),
            Err(e) if charged.is_some() => {
                notes.push(chain(&e));
                None
            }
            Err(_) => None,
        };
        let mut scan = Self {
            bitmap,
            flags,
            charged,
            population: Population::new(root, hierarchy.clone()),
            hierarchy,
            paths: CgroupPaths::default(),
            scope,
            detail,
            frames: Frames::default(),
            nodes: Nodes::new(root),
            pagemaps: Pagemaps::new(root),
            notes,
            buffer: PageBuffer::default(),
            words: Vec::new(),
            page_flags: Vec::new(),
            pages: Vec::new(),
            cgroups: Vec::new(),
            marks: BTreeMap::new(),
        };
        scan.population.check(&scan.scope)?;
        scan.read_paths()?;
        scan.check_cgroups()?;
        Ok(scan)
    }

    /// Only the memory of these nodes; all memory if `nodes` is empty.
    ///
    /// # Errors
    /// If one of the nodes has no memory.
    pub fn of_nodes(mut self, nodes: &[NodeId]) -> Result<Self, ScanError> {
        self.nodes.narrow_to(nodes)?;
        Ok(self)
    }

    /// Reads the paths of all cgroups. If they cannot be read, that is an error only if cgroups were given.
    fn read_paths(&mut self) -> Result<(), ScanError> {
        let Some(hierarchy) = &self.hierarchy else {
            return match &self.scope {
                Scope::Cgroups(_) => Err(ScanError::NoCgroups(self.notes.join("; "))),
                _ => Ok(()),
            };
        };
        let readable = self.paths.read(hierarchy);
        if !readable {
            let why = format!(
                "the cgroup hierarchy that accounts memory (version {}) is not mounted, or reading it is not permitted \
                 (`{}` mounts it)",
                hierarchy.version().number(),
                hierarchy.mount_command()
            );
            if let Scope::Cgroups(_) = self.scope {
                return Err(ScanError::NoCgroups(why));
            }
            let note = format!("cgroups are shown by inode number: {why}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(())
    }

    /// The patterns of the given cgroups.
    fn tops(&self, named: &[String]) -> Result<Vec<Glob>, ScanError> {
        tops(self.hierarchy.as_ref().ok_or_else(|| ScanError::NoCgroups(self.notes.join("; ")))?, named)
    }

    /// Checks that the given cgroups exist.
    fn check_cgroups(&self) -> Result<(), ScanError> {
        let Scope::Cgroups(named) = &self.scope else { return Ok(()) };
        if self.charged.is_none() {
            return Err(ScanError::NoCgroups(self.notes.join("; ")));
        }
        for (named, top) in named.iter().zip(&self.tops(named)?) {
            if self.paths.below(std::slice::from_ref(top)).next().is_none() {
                let directory =
                    self.hierarchy.as_ref().and_then(Hierarchy::directory).unwrap_or(Path::new("/sys/fs/cgroup"));
                let fix = format!("`find {} -type d` lists the cgroups", directory.display());
                return Err(ScanError::NoCgroup { named: named.clone(), fix });
            }
        }
        Ok(())
    }

    /// The pages to scan now, and the processes to list.
    fn wanted(&mut self) -> Result<(Wanted, Vec<Member>), ScanError> {
        self.read_paths()?;
        let listed = self.detail.any() || matches!(self.scope, Scope::Processes(_));
        let members = if listed { self.population.members(&self.scope, &mut self.notes)? } else { Vec::new() };
        let mut wanted = Wanted::default();
        if let Scope::Cgroups(named) = &self.scope {
            let tops = self.tops(named)?;
            for top in &tops {
                if !self.paths.below(std::slice::from_ref(top)).any(|inode| self.paths.is_there(inode)) {
                    self.notes
                        .push(format!("the cgroup {top} was removed; its memory is charged to the cgroup above it"));
                }
            }
            wanted.cgroups = Some(self.paths.below(&tops).collect());
        }
        if self.scope != Scope::All && listed {
            let mut set = FrameSet::default();
            for member in &members {
                self.pagemaps.each_frame(member, |frame| {
                    if self.frames.mark(frame).is_some() {
                        set.insert(frame);
                    }
                });
            }
            wanted.frames = Some(set);
        }
        Ok((wanted, members))
    }

    /// Updates the list of frames to the memory that exists now.
    fn update_memory(&mut self) -> Result<(), ScanError> {
        let went = self.frames.set_memory(&self.nodes.read()?);
        if went > 0 {
            self.notes.push(format!("{} MiB of memory went offline and are left out", (went * PAGE_SIZE) >> 20));
        }
        Ok(())
    }

    /// Visits all frames and marks them. Adds each page of user memory to `sums`, unless this is the `first` pass.
    fn pass(&mut self, first: bool, wanted: &Wanted, pacer: &mut ScanPacer, sums: &mut Sums) -> Result<(), ScanError> {
        let pieces = self.frames.pieces(PIECE);
        let wanted_in = |&(from, to): &(u64, u64)| match wanted {
            Wanted { cgroups: None, frames: Some(set) } => set.has_any(from, to - from),
            _ => true,
        };
        let pieces: Vec<_> = pieces.into_iter().filter(wanted_in).collect();
        pacer.begin(pieces.iter().map(|(from, to)| (to - from) * PAGE_SIZE).sum());
        for (from, to) in pieces {
            self.piece(first, wanted, from, to, sums)?;
            pacer.step((to - from) * PAGE_SIZE)?;
        }
        Ok(())
    }

    fn piece(&mut self, first: bool, wanted: &Wanted, from: u64, to: u64, sums: &mut Sums) -> Result<(), ScanError> {
        // The bitmap is read before the flags. A page that the flags show as user memory then either was user memory
        // when the bitmap was read, or it came later and was accessed.
        let first_word = from / WORD;
        let words = &mut self.words;
        words.clear();
        if !first {
            self.bitmap
                .entries(first_word..to.div_ceil(WORD), 1, &mut self.buffer, |bits| words.push(bits.unwrap_or(0)))?;
        }
        let page_flags = &mut self.page_flags;
        page_flags.clear();
        self.flags.each(from..to, &mut self.buffer, |flags| page_flags.push(flags))?;
        self.find_pages(from);
        self.look_up_cgroups()?;

        self.marks.clear();
        let by_node = self.nodes.are_listed();
        let marks = self.frames.marks_mut(from, to);
        let mut next = 0;
        for (page, &cgroup) in self.pages.iter().zip(&self.cgroups) {
            let start = (page.head - from) as usize;
            let end = start + page.count as usize;
            marks[next..start].fill(Mark::NOTHING);
            next = end;
            if !wanted.has(cgroup, page.head, page.count) {
                marks[start..end].fill(Mark::NOTHING);
                continue;
            }
            let bit = 1 << (page.head % WORD);
            let still_idle =
                self.words.get((page.head / WORD - first_word) as usize).is_some_and(|word| word & bit != 0);
            let mark = if first { Mark::at_first(page.flags) } else { marks[start].after(page.flags, still_idle) };
            marks[start..end].fill(mark);
            if let (false, Some(state)) = (first, mark.state())
                && wanted.counts(cgroup, page.head, page.count)
            {
                let bytes = page.count * PAGE_SIZE;
                sums.cgroups.entry(cgroup).or_default().add(state, bytes);
                if by_node {
                    sums.nodes.add(self.nodes.of(page.head), state, bytes);
                }
            }
            // A page that is still idle needs no new mark.
            if page.flags.is_listed() && !page.flags.is_unevictable() && !still_idle {
                *self.marks.entry(page.head / WORD).or_default() |= bit;
            }
        }
        marks[next..].fill(Mark::NOTHING);
        let words = self.marks.iter().map(|(&word, &bits)| (word, bits));
        Ok(self.bitmap.write(words, 4, &mut self.buffer)?)
    }

    /// Finds the pages of user memory among the flags of the frames from `from` on.
    fn find_pages(&mut self, from: u64) {
        self.pages.clear();
        let mut at = 0;
        while let Some(&flags) = self.page_flags.get(at) {
            let mut count = 1;
            if flags.is_head() {
                count += self.page_flags[at + 1..].iter().take_while(|flags| flags.is_tail()).count();
            }
            // A tail without a head belongs to a page that was made or freed while the flags were read.
            if !flags.is_tail() && flags.is_of_a_user() {
                self.pages.push(Page { head: from + at as u64, count: count as u64, flags });
            }
            at += count;
        }
    }

    /// Looks up the inode number of the cgroup of each page. 0 stands for no cgroup.
    fn look_up_cgroups(&mut self) -> Result<(), ScanError> {
        let cgroups = &mut self.cgroups;
        cgroups.clear();
        match &self.charged {
            Some(charged) => {
                let heads = self.pages.iter().map(|page| page.head);
                charged.entries(heads, REACH, &mut self.buffer, |inode| cgroups.push(inode.unwrap_or(0)))?;
            }
            None => cgroups.resize(self.pages.len(), 0),
        }
        Ok(())
    }

    /// Makes the findings from the sums.
    fn findings(&mut self, sums: Sums) -> Result<IdleFindings, ScanError> {
        // Cgroups may have been made during the pass.
        self.read_paths()?;
        let mut total = IdleTally::default();
        let mut unnamed = 0;
        let mut cgroups = Vec::new();
        for (inode, own) in sums.cgroups {
            total += &own;
            let path = self.paths.path(inode).map(str::to_owned);
            unnamed += u32::from(path.is_none() && inode != 0);
            cgroups.push(CgroupIdle { inode: (inode != 0 && path.is_none()).then_some(inode), path, own });
        }
        cgroups.sort_by(|a, b| a.path.cmp(&b.path));
        if unnamed > 0 && self.hierarchy.as_ref().is_some_and(|hierarchy| hierarchy.directory().is_some()) {
            self.notes.push(format!(
                "{unnamed} cgroups are shown by inode number: they were removed before their paths were read, or they \
                 are not in the mounted part of the hierarchy"
            ));
        }
        Ok(IdleFindings {
            method: ScanMethod::IdlePageTracking,
            cgroup_version: self.hierarchy.as_ref().map(Hierarchy::version),
            total,
            shared: None,
            nodes: sums.nodes.list(),
            cgroups: if self.charged.is_some() { cgroups } else { Vec::new() },
            processes: Vec::new(),
            notes: Vec::new(),
        })
    }
}

impl Scan for PhysicalScan {
    fn method(&self) -> ScanMethod {
        ScanMethod::IdlePageTracking
    }

    fn mark(&mut self, pacer: &mut ScanPacer) -> Result<(), ScanError> {
        self.update_memory()?;
        let (wanted, _) = self.wanted()?;
        self.pass(true, &wanted, pacer, &mut Sums::default())
    }

    fn read(&mut self, pacer: &mut ScanPacer) -> Result<IdleFindings, ScanError> {
        self.update_memory()?;
        let (wanted, members) = self.wanted()?;
        let mut sums = Sums::default();
        self.pass(false, &wanted, pacer, &mut sums)?;
        let mut findings = self.findings(sums)?;
        if self.detail.any() {
            for member in members {
                if let Some(process) = self.pagemaps.process(&member, &self.frames, &self.nodes, self.detail.mappings) {
                    findings.processes.push(process);
                } else {
                    self.population.note_ended(&member, &self.scope, &mut self.notes);
                }
            }
        }
        findings.notes = std::mem::take(&mut self.notes);
        Ok(findings)
    }
}
