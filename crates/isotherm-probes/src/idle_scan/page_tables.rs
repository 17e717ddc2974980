//! The scan of the page tables of processes, for kernels without idle page tracking.
//!
//! It surveys processes as `record` does, with two differences. Every page that is found accessed is cleared, so that
//! hot memory is known to the page as well. And each page frame counts once, however many processes map it.
//!
//! A pass reads and clears one process after the other. The interval of a page is therefore the time between two
//! passes, however long a pass takes.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, PageHistory, Survey, SurveyPart};
use isotherm_core::{AddrRange, BoxError, IdleTally, NodeId, PAGE_SIZE, PageState, TargetId, chain};

use super::findings::{CgroupIdle, IdleFindings, MappingIdle, ProcessIdle, ScanMethod};
use super::nodes::{NodeSums, Nodes};
use super::population::{Member, Population};
use super::sharing::Sharing;
use super::{Detail, Scan, ScanError, ScanPacer, Scope};
use crate::bpf::{BpfError, BpfProbe, NO_FRAME, SharedLeftOut, SharedLimits, SharedMemory};
use crate::left_out;
use isotherm_kernel::cgroup::Hierarchy;
use isotherm_kernel::pages::{FlagTable, Flags};

/// A scan of the page tables of processes.
#[derive(Debug)]
pub struct PageTableScan {
    probe: BpfProbe,
    flags: FlagTable,
    population: Population,
    scope: Scope,
    detail: Detail,
    known: BTreeMap<TargetId, Scanned>,
    sharing: Sharing,
    nodes: Nodes,
    began: Instant,
    /// The time of the last pass, since the scan was opened.
    last: Duration,
    /// The shared memory that the last pass has not cleared.
    left_out: Option<SharedLeftOut>,
    notes: Vec<String>,
    blocks: Vec<BlockPages>,
}

/// What is known of a process after a pass.
#[derive(Debug)]
struct Scanned {
    /// The identity of its address space, which changes when it calls exec.
    space: u64,
    history: PageHistory,
}

/// A process in a pass.
#[derive(Debug)]
struct Visited {
    member: Member,
    known: Scanned,
    /// The ranges that are locked in memory.
    locked: Vec<AddrRange>,
    /// The pages of each block that lie on the scanned nodes; `None` if all nodes are scanned.
    scanned: Option<BTreeMap<u64, PageBits>>,
    /// The pages that the pass has cleared.
    cleared: Vec<ClearPages>,
}

impl PageTableScan {
    /// Loads the eBPF program and tests it on this process's own memory. `shared` says how memory is observed that
    /// several processes map, within `limits`.
    ///
    /// # Errors
    /// If the program does not work here, or if a given process or cgroup does not exist.
    pub fn open(scope: Scope, detail: Detail, shared: SharedMemory, limits: SharedLimits) -> Result<Self, ScanError> {
        let root = Path::new("/");
        let hierarchy = Hierarchy::find(root);
        let mut notes = Vec::new();
        if let Err(e) = &hierarchy {
            notes.push(chain(e));
        }
        let population = Population::new(root, hierarchy.ok());
        population.check(&scope)?;
        let mut probe = BpfProbe::open()?.with_sweeps(false);
        // Intervals are long enough that the processes that map the same memory need not take turns.
        probe.set_shared_memory(shared, SharedLimits { together: Duration::MAX, ..limits });
        let mut scan = Self {
            probe,
            flags: FlagTable::open(root).map_err(BpfError::Table)?,
            population,
            scope,
            detail,
            known: BTreeMap::new(),
            sharing: Sharing::default(),
            nodes: Nodes::new(root),
            began: Instant::now(),
            last: Duration::ZERO,
            left_out: None,
            notes,
            blocks: Vec::new(),
        };
        scan.check_cgroups()?;
        Ok(scan)
    }

    /// Only the memory of these nodes; all memory if `nodes` is empty.
    ///
    /// # Errors
    /// If the ranges of System RAM cannot be read, or one of the nodes has none.
    pub fn of_nodes(mut self, nodes: &[NodeId]) -> Result<Self, ScanError> {
        self.nodes.narrow_to(nodes)?;
        Ok(self)
    }

    /// Checks that the given cgroups have processes.
    fn check_cgroups(&mut self) -> Result<(), ScanError> {
        let Scope::Cgroups(named) = &self.scope else { return Ok(()) };
        let hierarchy = self.population.hierarchy().ok_or_else(|| ScanError::NoCgroups(self.notes.join("; ")))?;
        let mut notes = Vec::new();
        for named in named {
            let one = Scope::Cgroups(vec![named.clone()]);
            if self.population.members(&one, &mut notes)?.is_empty() {
                let fix = match hierarchy.directory() {
                    Some(directory) => {
                        format!("`systemd-cgls` and the directories below {} show the cgroups", directory.display())
                    }
                    None => "/proc/PID/cgroup shows the cgroup of a process".into(),
                };
                return Err(ScanError::NoProcessInCgroup { named: named.clone(), fix });
            }
        }
        self.notes.append(&mut notes);
        Ok(())
    }

    /// Reads all processes, and clears what was accessed in each directly afterwards. `first` says that there was no
    /// pass before.
    fn pass(&mut self, first: bool, pacer: &mut ScanPacer) -> Result<Vec<Visited>, ScanError> {
        let members = self.population.members(&self.scope, &mut self.notes)?;
        let spaces: Vec<_> = members.iter().map(Member::space).collect();
        let refused: BTreeMap<_, _> = self.probe.hold(&spaces)?.into_iter().collect();
        self.probe.begin().map_err(failed)?;
        if let Err(error) = self.nodes.read()
            && self.nodes.are_narrowed()
        {
            return Err(error.into());
        }
        self.sharing.begin();
        let several = members.len() > 1;
        let now = self.began.elapsed();
        pacer.begin(members.iter().map(|member| member.resident).sum());
        let mut known = std::mem::take(&mut self.known);
        let mut visited = Vec::with_capacity(members.len());
        let mut identities = HashSet::new();
        for (member, space) in members.into_iter().zip(spaces) {
            if let Some(e) = refused.get(&space.id) {
                self.notes.push(format!("process {} is left out: access to it is not permitted ({e})", member.pid));
                continue;
            }
            let Some(identity) = self.probe.address_space(space.id) else {
                self.population.note_ended(&member, &self.scope, &mut self.notes);
                continue;
            };
            // Another process that shares the address space was read before, and its memory is that of both.
            if !identities.insert(identity) {
                continue;
            }
            let mut history = match known.remove(&space.id).filter(|known| known.space == identity) {
                Some(known) => known.history,
                // If there was a pass, all memory of the process is new.
                None => PageHistory::since((!first).then_some(self.last)),
            };
            self.blocks.clear();
            Survey::read(&mut self.probe, &space, SurveyPart::ALL, &mut self.blocks).map_err(failed)?;
            if several && !first {
                let (sharing, blocks) = (&mut self.sharing, &self.blocks);
                self.probe.frames(space.id, |start, frames| {
                    // Of frames that the process maps several times, only the first view is present.
                    let block = blocks.binary_search_by_key(&start, |block| block.start);
                    let present = block.map_or(PageBits::NONE, |index| blocks[index].present);
                    let of_page = |(page, frame): (usize, &u64)| present.contains(page).then_some(*frame);
                    sharing.see(frames.iter().enumerate().filter_map(of_page).filter(|&frame| frame != NO_FRAME));
                })?;
            }
            history.take(&self.blocks, now);
            let locked = self.locked(&member)?;
            let scanned = self.on_scanned_nodes(space.id)?;
            let mut cleared = without(history.accessed(), &locked);
            if let Some(scanned) = &scanned {
                keep_pages(&mut cleared, |start| scanned.get(&start).copied().unwrap_or_default());
            }
            Survey::clear(&mut self.probe, space.id, &mut cleared).map_err(failed)?;
            if self.probe.address_space(space.id).is_none() {
                self.population.note_ended(&member, &self.scope, &mut self.notes);
            }
            pacer.step(history.present() * PAGE_SIZE)?;
            visited.push(Visited { member, known: Scanned { space: identity, history }, locked, scanned, cleared });
        }
        self.last = now;
        Ok(visited)
    }

    /// The mappings that a process has locked in memory (mlock(2)): a page of theirs is unevictable. `smaps` names
    /// them, but the process could not map memory while the kernel walks all pages of one.
    fn locked(&mut self, member: &Member) -> Result<Vec<AddrRange>, ScanError> {
        if !self.population.has_locked(member) {
            return Ok(Vec::new());
        }
        let ranges: Vec<AddrRange> = member.mappings.iter().map(|mapping| mapping.range).collect();
        let mut first = vec![None; ranges.len()];
        self.probe.frames(member.id(), |start, frames| {
            let index = ranges.partition_point(|range| range.end() <= start);
            for (range, first) in ranges.iter().zip(&mut first).skip(index) {
                if range.start() >= start + BLOCK_SIZE {
                    break;
                }
                if first.is_none() {
                    let pages = PageBits::within(start, *range);
                    let mut frames = frames.iter().enumerate().filter(|(page, _)| pages.contains(*page));
                    *first = frames.find_map(|(_, &frame)| (frame != NO_FRAME).then_some(frame));
                }
            }
        })?;
        let is_locked = |frame: u64| self.flags.flags(frame).ok().flatten().is_some_and(Flags::is_unevictable);
        let locked = ranges.into_iter().zip(first).filter(|(_, first)| first.is_some_and(is_locked));
        Ok(locked.map(|(range, _)| range).collect())
    }

    /// The pages of a process that lie on the scanned nodes, by block; `None` if all nodes are scanned.
    fn on_scanned_nodes(&mut self, process: TargetId) -> Result<Option<BTreeMap<u64, PageBits>>, ScanError> {
        if !self.nodes.are_narrowed() {
            return Ok(None);
        }
        let mut scanned = BTreeMap::new();
        let nodes = &self.nodes;
        self.probe.frames(process, |start, frames| {
            scanned.insert(start, PageBits::from_fn(|page| nodes.is_scanned(nodes.of(frames[page]))));
        })?;
        Ok(Some(scanned))
    }

    /// Ends a pass: what it has cleared counts from the next interval on.
    fn keep(&mut self, visited: Vec<Visited>) {
        for mut process in visited {
            process.known.history.cleared(&process.cleared);
            self.known.insert(process.member.id(), process.known);
        }
        self.left_out = self.probe.shared_left_out();
    }

    /// Sums up what a pass has found.
    fn findings(&mut self, visited: &[Visited]) -> Result<IdleFindings, ScanError> {
        let mut cgroups: BTreeMap<Option<String>, IdleTally> = BTreeMap::new();
        let mut nodes = NodeSums::default();
        let mut processes = Vec::new();
        for process in visited {
            let shared = self.match_frames(process, visited.len() > 1, &mut nodes)?;
            let (found, alone) = process.sums(&shared, self.detail.mappings);
            *cgroups.entry(found.cgroup.clone()).or_default() += &alone;
            if !found.total.is_empty() {
                processes.push(found);
            }
        }
        let mut shared = IdleTally::default();
        self.sharing.each(|frame, state, path| {
            shared.add(state, PAGE_SIZE);
            cgroups.entry(path.map(str::to_owned)).or_default().add(state, PAGE_SIZE);
            if self.nodes.are_listed() {
                nodes.add(self.nodes.of(frame), state, PAGE_SIZE);
            }
        });
        let mut total = IdleTally::default();
        cgroups.values().for_each(|own| total += own);
        if !self.detail.any() {
            processes.clear();
        }
        let known = self.population.hierarchy().is_some();
        let cgroups = cgroups.into_iter().filter(|(_, own)| !own.is_empty());
        let cgroups = cgroups.map(|(path, own)| CgroupIdle { path, inode: None, own });
        Ok(IdleFindings {
            method: ScanMethod::PageTables,
            cgroup_version: self.population.hierarchy().map(Hierarchy::version),
            total,
            shared: Some(shared),
            nodes: nodes.list(),
            cgroups: if known { cgroups.collect() } else { Vec::new() },
            processes,
            notes: Vec::new(),
        })
    }

    /// Finds the pages of a process that others map, too, and adds the others to the sums of their memory nodes.
    /// Returns the shared pages by block.
    fn match_frames(
        &mut self,
        process: &Visited,
        several: bool,
        nodes: &mut NodeSums,
    ) -> Result<BTreeMap<u64, PageBits>, ScanError> {
        let mut shared = BTreeMap::new();
        let by_node = self.nodes.are_listed();
        if !several && !by_node {
            return Ok(shared);
        }
        let (sharing, nodes_of) = (&mut self.sharing, &self.nodes);
        let cgroup = sharing.cgroup(process.member.cgroup.as_deref());
        self.probe.frames(process.member.id(), |start, frames| {
            let Some(states) = process.known.history.states_at(start) else { return };
            let locked = pages_in(start, &process.locked);
            let scanned = process.scanned(start);
            let mut of_block = PageBits::NONE;
            for (page, &frame) in frames.iter().enumerate().filter(|(_, frame)| **frame != NO_FRAME) {
                let is_shared = sharing.is_shared(frame);
                if !is_shared && !by_node || !scanned.contains(page) {
                    continue;
                }
                let Some(state) = states.state(page) else { continue };
                let state = if locked.contains(page) { PageState::Unevictable } else { state };
                if is_shared {
                    sharing.merge(frame, state, cgroup);
                    of_block.insert(page);
                } else {
                    nodes.add(nodes_of.of(frame), state, PAGE_SIZE);
                }
            }
            if !of_block.is_empty() {
                shared.insert(start, of_block);
            }
        })?;
        Ok(shared)
    }
}

impl Visited {
    /// The pages of the block that begins at `start` that lie on the scanned nodes.
    fn scanned(&self, start: u64) -> PageBits {
        self.scanned.as_ref().map_or(PageBits::ALL, |scanned| scanned.get(&start).copied().unwrap_or_default())
    }

    /// The memory of the process, and the part of it that is not in `shared`.
    fn sums(&self, shared: &BTreeMap<u64, PageBits>, by_mapping: bool) -> (ProcessIdle, IdleTally) {
        let (mut total, mut alone, mut mappings) = (IdleTally::default(), IdleTally::default(), Vec::new());
        for mapping in &*self.member.mappings {
            let (mut own, mut others) = (IdleTally::default(), IdleTally::default());
            let locked = self.locked.iter().any(|locked| locked.intersection(mapping.range).is_some());
            for (block, pages) in self.known.history.states(mapping.range) {
                let scanned = self.scanned(block.start());
                own.lazily_freed += (block.lazily_freed(mapping.range) & scanned).count() as u64 * PAGE_SIZE;
                let pages = pages & scanned;
                let shared = shared.get(&block.start()).copied().unwrap_or_default();
                for (tally, pages) in [(&mut own, pages & !shared), (&mut others, pages & shared)] {
                    if locked {
                        tally.add(PageState::Unevictable, pages.count() as u64 * PAGE_SIZE);
                    } else {
                        block.add_to(tally, pages);
                    }
                }
            }
            alone += &own;
            own += &others;
            total += &own;
            if by_mapping && !own.is_empty() {
                mappings.push(MappingIdle {
                    range: mapping.range,
                    permissions: mapping.permissions,
                    name: mapping.name.clone(),
                    tally: own,
                });
            }
        }
        let Member { pid, inner_pid, command, cgroup, .. } = self.member.clone();
        let shared = total.size() - alone.size();
        (ProcessIdle { pid, inner_pid, command, cgroup, total, shared, mappings }, alone)
    }
}

impl Scan for PageTableScan {
    fn method(&self) -> ScanMethod {
        ScanMethod::PageTables
    }

    fn mark(&mut self, pacer: &mut ScanPacer) -> Result<(), ScanError> {
        let visited = self.pass(true, pacer)?;
        self.keep(visited);
        Ok(())
    }

    fn read(&mut self, pacer: &mut ScanPacer) -> Result<IdleFindings, ScanError> {
        let visited = self.pass(false, pacer)?;
        let mut findings = self.findings(&visited)?;
        self.notes.extend(self.left_out.and_then(|left_out| left_out.remark()));
        if self.scope == Scope::All && !self.nodes.are_narrowed() {
            self.notes
                .extend(left_out::of_the_machine(Path::new("/"), findings.total.size() + findings.total.unevictable));
        }
        self.keep(visited);
        findings.notes = std::mem::take(&mut self.notes);
        Ok(findings)
    }
}

/// The pages to clear, without those that are locked: the kernel does not clear them.
fn without(mut pages: Vec<ClearPages>, locked: &[AddrRange]) -> Vec<ClearPages> {
    if !locked.is_empty() {
        keep_pages(&mut pages, |start| !pages_in(start, locked));
    }
    pages
}

/// Keeps those pages of each block that `kept` names, by the start of the block.
fn keep_pages(pages: &mut Vec<ClearPages>, kept: impl Fn(u64) -> PageBits) {
    pages.iter_mut().for_each(|block| block.pages &= kept(block.start));
    pages.retain(|block| !block.pages.is_empty());
}

/// The pages of the block that begins at `start` that lie in one of `ranges`.
fn pages_in(start: u64, ranges: &[AddrRange]) -> PageBits {
    let mut pages = PageBits::NONE;
    ranges.iter().for_each(|range| pages |= PageBits::within(start, *range));
    pages
}

fn failed(error: BoxError) -> ScanError {
    match error.downcast::<BpfError>() {
        Ok(error) => ScanError::Bpf(*error),
        Err(error) => ScanError::Survey(error),
    }
}
