//! The `bpf` probe: the work of one sampling round.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use isotherm_core::survey::Survey;
use isotherm_core::{AccessProbe, Activity, BoxError, Observation, PageProbe, Sample, TargetSpace};
use rustix::io::Errno;

use super::BpfError;
use super::direct_map::prove;
use super::folio::{Folios, Whole};
use super::leaf::{Extent, Leaf};
use super::pages::Pages;
use super::program::{Lookup, PageTables, Program};
use super::requests::{Request, clear_in, note};
use super::shared_memory::{SharedLeftOut, SharedLimits, SharedMemory};
use super::space::{Opened, PagemapKind, SpaceHandle};
use super::sweep::{SweepCredit, SweepResult, Sweeper};
use super::swept::Swept;
use super::target::{BpfTarget, Clearing, State};
use super::tasks::Tasks;
use crate::page_nodes::PageNodes;
use isotherm_kernel::madvise::RANGES_A_CALL;

/// Reads accessed bits inside the kernel with eBPF, and clears them with `process_madvise(MADV_COLD)`.
#[derive(Debug)]
pub struct BpfProbe {
    pub(super) program: Program,
    pub(super) tables: PageTables,
    pub(super) folios: Folios,
    /// Which processes have run. `None` if this kernel does not tell.
    pub(super) tasks: Option<Tasks>,
    pagemap_kind: PagemapKind,
    sweeps: bool,
    /// Whether samples of memory that others access are unobservable.
    elsewhere: bool,
    allowance: SweepCredit,
    /// When the sweeps of the targets that are being added have to end.
    pub(super) sweeps_end: Instant,
    /// Sorted by ID.
    pub(super) targets: Vec<BpfTarget>,
    pub(super) clears: u64,
    /// When the end of the machine's memory was read last.
    pub(super) memory_read: Instant,
    /// What surveys of all pages keep; `None` until the first survey begins.
    pub(super) pages: Option<Pages>,
    /// The memory nodes of the pages that a survey reads.
    pub(super) nodes: PageNodes,
    pub(super) shared: (SharedMemory, SharedLimits),
    /// For each sample of the last clear, whether it cannot be observed.
    pub(super) unobservable: Vec<bool>,
    // The buffers below are kept between rounds, so that a round allocates nothing.
    slots: Vec<Option<usize>>,
    pub(super) leaves: Vec<Leaf>,
    requests: Vec<Request>,
    unchanged: Vec<Request>,
}

/// The largest number of blocks that are swept in one round: about 200 µs of work.
const SWEEPS_A_ROUND: usize = 8;

impl BpfProbe {
    /// Loads the program, finds the direct map, and tests on this process's own memory how large folios are cleared.
    ///
    /// # Errors
    /// If the probe does not work here. The error says why, and how to fix it.
    pub fn open() -> Result<Self, BpfError> {
        let mut program = Program::load()?;
        let (own, pagemap_kind) = SpaceHandle::open_own(&mut program)?;
        let tables = prove(&mut program, &own)?;
        let folios = Folios::open(&mut program, &tables, &own)?;
        Ok(Self {
            program,
            tables,
            folios,
            // It saves work, and nothing more depends on it.
            tasks: Tasks::load().ok(),
            pagemap_kind,
            sweeps: true,
            elsewhere: true,
            allowance: SweepCredit::new(f64::INFINITY),
            sweeps_end: Instant::now(),
            memory_read: Instant::now(),
            targets: Vec::new(),
            clears: 0,
            pages: None,
            nodes: PageNodes::default(),
            shared: Default::default(),
            unobservable: Vec::new(),
            slots: Vec::new(),
            leaves: Vec::new(),
            requests: Vec::new(),
            unchanged: Vec::with_capacity(RANGES_A_CALL),
        })
    }

    /// Sets whether the probe sweeps: whether it clears private anonymous memory that was never cleared before in large
    /// pieces. The default is to sweep.
    ///
    /// A sweep clears all such memory when targets are added and after each exec, for at most 100 ms (about 8 GiB).
    /// Later it clears the 2 MiB around a sample. It takes about a millisecond for 64 MiB of accessed memory. After
    /// it, only memory that is in use must be cleared page by page. Without sweeps, almost every page that is sampled
    /// must be cleared once.
    #[must_use]
    pub fn with_sweeps(mut self, sweeps: bool) -> Self {
        self.sweeps = sweeps;
        self
    }

    /// Sets whether samples of memory that guests, devices and io_uring access are unobservable. The default is that
    /// they are. It is false for a look at memory that is known to be observable, or not to be.
    #[must_use]
    pub fn with_elsewhere(mut self, elsewhere: bool) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// Sets whether the probe sweeps from now on: see [`with_sweeps`](Self::with_sweeps). The first survey turns sweeps
    /// off, because a survey clears what sweeps would clear.
    pub fn set_sweeps(&mut self, sweeps: bool) {
        self.sweeps = sweeps;
    }

    /// Bounds what sweeps clear: this many pages a second, and those of ten seconds at the start. The targets set the
    /// accessed bits again of those that they access. The default is no bound.
    pub fn set_sweep_rate(&mut self, pages: f64) {
        self.allowance = SweepCredit::new(pages);
    }

    /// Sets whether surveys observe memory that several processes map, and what that may cost. The default is
    /// [`SharedMemory::Auto`] with the default limits.
    pub fn set_shared_memory(&mut self, mode: SharedMemory, limits: SharedLimits) {
        self.shared = (mode, limits);
    }

    /// Sets whether all views of a page frame that a target maps several times are present in a survey. The default is
    /// that it is present once, at the lowest address, and accessed there if one of the views is.
    pub(crate) fn set_all_views(&mut self, all: bool) {
        self.pages.get_or_insert_default().set_all_views(all);
    }

    /// The memory that several processes map and that the last survey has left unobservable, if there is any.
    pub fn shared_left_out(&self) -> Option<SharedLeftOut> {
        self.pages.as_ref().and_then(Pages::shared_left_out)
    }

    /// How many times surveys have had the multi-generational LRU age a cgroup, to clear shared memory.
    pub fn agings(&self) -> u64 {
        self.pages.as_ref().map_or(0, Pages::agings)
    }

    /// The number of page-table levels of this machine: 4 or 5.
    pub fn page_table_levels(&self) -> u32 {
        self.tables.levels
    }

    /// The proven address at which the kernel maps physical address 0.
    pub fn direct_map(&self) -> u64 {
        self.tables.direct_map
    }

    /// Whether this kernel clears the accessed bits of a large folio, whose pages are mapped one by one, without
    /// splitting it. The result is false if the test found no huge page to use. If false, a page of such a folio is
    /// unobservable after it was accessed.
    pub fn clears_large_folios(&self) -> bool {
        self.folios.stay_whole()
    }

    /// Opens a target again. `before` is its state before. The second value is the error if access is not permitted.
    pub(super) fn renew(
        &mut self,
        space: &TargetSpace,
        before: Option<BpfTarget>,
    ) -> Result<(BpfTarget, Option<io::Error>), BpfError> {
        let target = |state| BpfTarget::new(space.id, state, &space.mappings, Swept::default());
        let Some(pid) = space.id.pid() else {
            return Ok((target(State::Refused), Some(io::ErrorKind::Unsupported.into())));
        };
        let new = match SpaceHandle::open(pid, &mut self.program, self.pagemap_kind)? {
            Opened::Held(new) => new,
            Opened::Gone => return Ok((target(State::Gone), None)),
            Opened::Refused(e) => {
                return Ok(match before.filter(|before| before.space().is_some_and(|space| !space.has_ended())) {
                    // It stays open, and is opened again at the next update.
                    Some(mut before) => {
                        before.set_mappings(&space.mappings);
                        (before, Some(e))
                    }
                    None => (target(State::Refused), Some(e)),
                });
            }
        };
        if let Some(mut before) = before.filter(|before| before.space().is_some_and(|known| known.same_as(&new))) {
            before.set_mappings(&space.mappings);
            before.look_elsewhere(None);
            return Ok((before, None));
        }
        let mut swept = Swept::default();
        if self.sweeps {
            let mut sweeper = Sweeper {
                program: &mut self.program,
                tables: &self.tables,
                folios: &self.folios,
                allowance: &mut self.allowance,
            };
            match sweeper.all(&new, &space.mappings, self.sweeps_end, &mut swept)? {
                SweepResult::Cleared(cleared) => self.clears += cleared,
                SweepResult::Refused => return Ok((target(State::Refused), Some(Errno::PERM.into()))),
            }
        }
        let mut target = BpfTarget::new(space.id, State::Held(new), &space.mappings, swept);
        target.look_elsewhere(None);
        Ok((target, None))
    }

    /// Sweeps some of the blocks in which a sample was accessed for the first time. Returns whether it swept any.
    fn sweep(&mut self, samples: &[Sample]) -> Result<bool, BpfError> {
        let mut left = SWEEPS_A_ROUND;
        for ((sample, slot), leaf) in samples.iter().zip(&self.slots).zip(&self.leaves) {
            let Some(target) = slot.map(|slot| &mut self.targets[slot]) else {
                continue;
            };
            if left == 0 || !leaf.young() || leaf.extent() != Some(Extent::Page) || target.swept.contains(sample.addr) {
                continue;
            }
            let mut swept = std::mem::take(&mut target.swept);
            if let (Some(space), Some(mapping)) = (target.space(), target.mapping(sample.addr)) {
                let mut sweeper = Sweeper {
                    program: &mut self.program,
                    tables: &self.tables,
                    folios: &self.folios,
                    allowance: &mut self.allowance,
                };
                // If this is refused, the clear of the page is refused, too, and handles it.
                if let SweepResult::Cleared(cleared) = sweeper.block(space, mapping, sample.addr, &mut swept)? {
                    self.clears += cleared;
                    left -= usize::from(cleared > 0);
                }
            }
            target.swept = swept;
        }
        Ok(left < SWEEPS_A_ROUND)
    }

    /// Looks up all samples. Puts their targets into `slots` and their entries into `leaves`.
    pub(super) fn look_up(&mut self, samples: &[Sample]) -> Result<(), BpfError> {
        let targets = &self.targets;
        self.slots.clear();
        let mut last = None;
        for sample in samples {
            // Samples are grouped by target.
            let same = last.filter(|&slot: &usize| targets[slot].id == sample.target);
            last = same.or_else(|| targets.binary_search_by_key(&sample.target, |target| target.id).ok());
            self.slots.push(last);
        }
        let lookups = samples.iter().zip(&self.slots).map(|(sample, slot)| {
            let space = slot.and_then(|slot| targets[slot].space());
            Lookup { pgd: space.map_or(0, SpaceHandle::pgd), addr: sample.addr }
        });
        self.program.walk(&self.tables, lookups, &mut self.leaves)
    }

    /// Makes the requests to clear the samples that were accessed.
    fn plan(&mut self, samples: &[Sample]) {
        self.requests.clear();
        self.unobservable.clear();
        // Each look at a pagemap is short, and many may follow one another.
        let mut urgent = None;
        for (index, ((sample, slot), leaf)) in samples.iter().zip(&self.slots).zip(&self.leaves).enumerate() {
            // Another view of the frame may have been accessed, and the kernel clears none of them alone.
            let views = self.pages.as_ref().map(Pages::views);
            self.unobservable.push(views.is_some_and(|views| views.contains(sample.target, sample.addr)));
            let (true, Some(slot)) = (leaf.young(), *slot) else {
                continue;
            };
            let target = &self.targets[slot];
            if self.pages.as_ref().is_some_and(|pages| pages.is_shared(target.id, sample.addr)) {
                self.unobservable[index] = true;
                continue;
            }
            // Samples are sorted by address, so the last one may be in the same folio.
            let last = self.requests.last().filter(|last| last.slot == slot && last.whole.range.contains(sample.addr));
            let whole = match (last, leaf.extent()) {
                (Some(last), _) => Some(last.whole),
                _ if target.clearing_at(sample.addr) != Clearing::Single => None,
                // This check takes one read, the next one several. Most such pages are of shared libraries.
                (None, Some(Extent::Page)) if target.is_shared(sample.addr, &mut urgent) => None,
                (None, Some(Extent::Page)) => {
                    // What follows holds no memory map.
                    urgent = None;
                    leaf.frame(sample.addr).and_then(|frame| self.folios.whole_around(target, sample.addr, frame))
                }
                (None, Some(extent @ Extent::Huge)) => {
                    let range = extent.around(sample.addr).filter(|&range| target.maps_as_one(range));
                    range.map(|range| Whole { range, listed: true })
                }
                // Memory of hugetlbfs or a device, which MADV_COLD does not clear.
                (None, Some(Extent::Gigantic) | None) => None,
            };
            match whole {
                Some(whole) => {
                    self.requests.push(Request { sample: index, slot, addr: sample.addr, leaf: *leaf, whole })
                }
                None => self.unobservable[index] = true,
            }
        }
    }

    /// Looks up pages, and clears those that were accessed.
    pub(super) fn clear_looked_up(&mut self, samples: &[Sample]) -> Result<(), BpfError> {
        self.look_up(samples)?;
        if self.sweeps && self.sweep(samples)? {
            self.look_up(samples)?;
        }
        self.plan(samples);
        if !self.requests.is_empty() {
            self.carry_out()?;
            self.verify()?;
        }
        Ok(())
    }

    /// Carries out the requests, in batches.
    ///
    /// Directly before each batch, its samples are looked up again. If a page has become part of a huge page since,
    /// clearing the page would split the huge page.
    fn carry_out(&mut self) -> Result<(), BpfError> {
        for requests in self.requests.chunk_by(|a, b| a.slot == b.slot).flat_map(|of_one| of_one.chunks(RANGES_A_CALL))
        {
            let target = &mut self.targets[requests[0].slot];
            let Some(pgd) = target.space().map(SpaceHandle::pgd) else {
                continue;
            };
            let lookups = requests.iter().map(|request| Lookup { pgd, addr: request.addr });
            self.program.walk(&self.tables, lookups, &mut self.leaves)?;
            self.unchanged.clear();
            for (request, leaf) in requests.iter().zip(&self.leaves) {
                if leaf.maps_as(request.leaf) {
                    self.unchanged.push(*request);
                } else {
                    self.unobservable[request.sample] = true;
                }
            }
            if self.pages.is_some() {
                note(&mut self.program, &self.tables, target, &self.unchanged)?;
            }
            self.clears += clear_in(target, &self.folios, &self.unchanged, &mut self.unobservable);
        }
        Ok(())
    }

    /// Checks the requests after the clear. A page whose accessed bit is set was either accessed again, or skipped by
    /// the kernel. A skipped page would look accessed forever, so it becomes unobservable.
    fn verify(&mut self) -> Result<(), BpfError> {
        let targets = &self.targets;
        let lookups = self.requests.iter().map(|request| {
            let space = targets[request.slot].space();
            Lookup { pgd: space.map_or(0, SpaceHandle::pgd), addr: request.addr }
        });
        self.program.walk(&self.tables, lookups, &mut self.leaves)?;
        for (request, leaf) in self.requests.iter().zip(&self.leaves).filter(|(_, leaf)| leaf.young()) {
            let space = targets[request.slot].space();
            let alone = space.and_then(|space| space.is_exclusive(request.addr)) == Some(true);
            let listed =
                request.whole.listed && leaf.frame(request.addr).is_some_and(|frame| self.folios.on_a_list(frame));
            if !alone || !listed {
                self.unobservable[request.sample] = true;
            }
        }
        Ok(())
    }
}

impl AccessProbe for BpfProbe {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        // If the list of mappings is the one of the last time, it was not read again: there are too many targets.
        let was_read = |known: &BpfTarget, space: &TargetSpace| !Arc::ptr_eq(known.mappings(), &space.mappings);
        let refusal = self.hold_changed(targets, was_read)?.pop();
        let any_held = self.targets.iter().any(|target| target.space().is_some());
        match refusal {
            Some((target, source)) if !any_held => Err(BpfError::Refused { target, source }.into()),
            _ => Ok(()),
        }
    }

    fn join(&mut self, joined: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(self.hold_more(joined)?)
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        Ok(self.clear_looked_up(samples)?)
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        self.look_up(samples)?;
        let unobservable = self.unobservable.iter().copied().chain(std::iter::repeat(false));
        let found = self.leaves.iter().zip(&self.slots).zip(unobservable);
        for ((answer, sample), ((leaf, slot), unobservable)) in answers.iter_mut().zip(samples).zip(found) {
            let refused = slot.is_some_and(|slot| self.targets[slot].is_refused());
            let elsewhere =
                |addr| self.elsewhere && slot.is_some_and(|slot| self.targets[slot].elsewhere().contains(addr));
            *answer = match leaf.extent() {
                _ if refused => Observation::Unobservable,
                Some(_) if unobservable || elsewhere(sample.addr) => Observation::Unobservable,
                Some(_) if leaf.young() => Observation::Accessed,
                // This includes samples that could not be observed and whose page is no longer present.
                Some(_) | None => Observation::Idle,
            };
        }
        Ok(())
    }

    /// The number of clears. A page, a huge page and a large folio count as one each. A sweep of a mapping when a
    /// target is added counts as one, and so does a later sweep of a block.
    fn clears(&self) -> u64 {
        self.clears
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }

    fn pages(&mut self) -> Option<&mut dyn PageProbe> {
        Some(self)
    }

    fn activity(&mut self) -> Option<&mut dyn Activity> {
        Some(self)
    }
}
