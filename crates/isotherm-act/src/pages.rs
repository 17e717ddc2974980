//! The inspector: finds pages in memory, young and active pages, pages in huge pages or in folios of some size, pages
//! that compress well, and the properties of processes, just before an action.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::scheme::{PageInspector, PageKind, ProcessFacts, Refusal};
use isotherm_core::{
    AccessProbe, AddrRange, BoxError, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace,
};
use rustix::io::Errno;
use thiserror::Error;

use isotherm_kernel::page_cache::{FileReader, FileTable};
use isotherm_kernel::{ProcessTable, monitor_cpu_time};

use super::compressible::Compressible;
use super::facts::facts;
use super::folios::Folios;
use super::frames::{Frames, FramesError, HugePages, Owner, add_page};
use super::held::Held;
use super::migration::Places;
use super::physical::{FrameOwners, OfProcess, joined};
use super::refusal::refusal;
use super::resident::{Resident, resident};

/// The maximum number of pages that a probe reads in one step: 32 MiB. To look at one page, the probe `idle`
/// has the kernel check the 64 frames of a word of the bitmap. With many pages at once, each word is read once.
const LOOKS_AT_ONCE: usize = 8192;

/// Why this kind of pages is not found among those of files.
const NOT_OF_FILES: &str = "what page cache of files holds is dropped and not compressed (leave the filter out)";

/// Why filters cannot tell processes apart.
const NO_PROCESSES: &str = "a filter by process, command or cgroup is for memory of processes, and not for physical \
                            memory or page cache (leave it out, or name processes)";

/// Why this kind of pages is not found in physical memory.
const NOT_OF_FRAMES: &str = "contents are read of processes, and not of page frames (leave the filter out)";

/// Inspects the processes of a process table and their pages.
#[derive(Debug)]
pub struct ProcessInspector {
    process_table: ProcessTable,
    open_probe: OpenProbe,
    root: PathBuf,
    /// The files whose page cache is inspected. `None` if that of none is.
    files: Option<FileReader>,
    /// Who maps page frames. `None` if physical memory is not inspected.
    owners: Option<FrameOwners>,
    /// Whether the probe of young pages knows physical addresses.
    knows_frames: bool,
    frames: Frames,
    young: Option<Young>,
    huge: Option<Huge>,
    compressible: Option<Compressible>,
    folios: Option<Folios>,
    places: Option<Places>,
    spent: Duration,
    cpu: Duration,
}

impl ProcessInspector {
    /// An inspector of the processes of `process_table`. It finds young pages with the probe that `open_probe` opens.
    /// Nothing is opened before it is needed.
    pub fn new(process_table: ProcessTable, open_probe: OpenProbe) -> Self {
        Self {
            process_table,
            open_probe,
            root: "/".into(),
            files: None,
            owners: None,
            knows_frames: false,
            frames: Frames::unchecked("/".as_ref()),
            young: None,
            huge: None,
            compressible: None,
            folios: None,
            places: None,
            spent: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    /// The same inspector. It finds young pages with `probe`, which must keep to the rules of [`OpenProbe`].
    #[must_use]
    pub fn with_probe(self, probe: Box<dyn AccessProbe + Send>) -> Self {
        Self { young: Some(Young::new(probe)), knows_frames: true, ..self }
    }

    /// The same inspector, which inspects physical memory. Without a probe of its own, it looks for young pages in the
    /// processes that map them.
    #[must_use]
    pub fn with_physical(self, owners: FrameOwners) -> Self {
        Self { owners: Some(owners), ..self }
    }

    /// The same inspector, which inspects the page cache of these files.
    #[must_use]
    pub fn with_files(self, files: FileTable) -> Self {
        Self { files: Some(FileReader::new(files)), ..self }
    }

    /// The CPU time of the calling threads that [`pages`](PageInspector::pages) took since the start.
    pub fn cpu_time(&self) -> Duration {
        self.cpu
    }

    /// Replaces the process table.
    pub fn inspect(&mut self, process_table: ProcessTable) {
        self.process_table = process_table;
    }
}

impl PageInspector for ProcessInspector {
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        match kind {
            PageKind::Compressible if self.files.is_some() => return Err(NOT_OF_FILES.into()),
            PageKind::Compressible if self.owners.is_some() => return Err(NOT_OF_FRAMES.into()),
            PageKind::Young if self.young.is_none() => self.young = Some(Young::open(self.open_probe)?),
            PageKind::Huge if self.huge.is_none() => self.huge = Some(Huge::open(&self.root)?),
            PageKind::Compressible if self.compressible.is_none() => {
                self.compressible = Some(Compressible::open(&self.root)?);
            }
            PageKind::Node(node) => {
                let places = match &mut self.places {
                    Some(places) => places,
                    none => none.insert(Places::open(&self.root)?),
                };
                places.has_node(node)?;
            }
            PageKind::Active | PageKind::Unmapped | PageKind::Folio(..) => {
                let folios = match &mut self.folios {
                    Some(folios) => folios,
                    none => none.insert(Folios::open(&self.root)?),
                };
                if kind == PageKind::Active {
                    folios.have_active()?;
                }
            }
            PageKind::Present | PageKind::Young | PageKind::Huge | PageKind::Compressible => {}
        }
        Ok(())
    }

    fn has_processes(&mut self) -> Result<(), BoxError> {
        if self.files.is_some() || self.owners.is_some() { Err(NO_PROCESSES.into()) } else { Ok(()) }
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        let held = Held::new(&self.process_table, target)?;
        facts(&self.root, held.pid).filter(|_| !held.has_ended())
    }

    fn pages(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        let (began, cpu) = (Instant::now(), monitor_cpu_time());
        self.tells(kind).map_err(|_| refusal(Errno::PERM))?;
        let held = Held::new(&self.process_table, target);
        let Self { frames, young, huge, compressible, folios, places, files, owners, .. } = self;
        let owners = owners.as_ref().filter(|_| target == TargetId::PhysicalMemory);
        let owner = match (&held, files) {
            (Some(held), _) => Owner::Process(held.pid),
            (None, Some(files)) if target == TargetId::PageCache => Owner::Files(files),
            (None, _) if owners.is_some() => Owner::Physical,
            (None, _) => return Err(refusal(Errno::SRCH)),
        };
        // What tells a kind is open since it was asked for.
        let result = match kind {
            PageKind::Present => Some(frames.each(owner, ranges, |addr, _| {
                add_page(found, addr);
                Ok(())
            })),
            PageKind::Young => young.as_mut().map(|young| match owners.filter(|_| !self.knows_frames) {
                Some(owners) => young.find_frames(owners, ranges, found),
                None => young.find(target, ranges, found),
            }),
            PageKind::Huge => huge.as_mut().map(|huge| huge.find(owner, ranges, found)),
            PageKind::Compressible => match owner {
                Owner::Process(pid) => compressible.as_mut().map(|by| by.find(pid, ranges, found)),
                Owner::Files(_) | Owner::Physical => None,
            },
            PageKind::Active => folios.as_mut().map(|by| by.find(owner, ranges, |of| of.flags.is_active(), found)),
            PageKind::Unmapped => {
                folios.as_mut().map(|by| by.find(owner, ranges, |of| of.flags.is_cached_only(), found))
            }
            PageKind::Folio(least, most) => {
                folios.as_mut().map(|by| by.find(owner, ranges, |of| (least..=most).contains(&of.bytes), found))
            }
            PageKind::Node(node) => places.as_mut().map(|places| places.on_node(owner, ranges, node, found)),
        };
        let result = result.unwrap_or(Err(Errno::OPNOTSUPP));
        self.spent += began.elapsed();
        self.cpu += monitor_cpu_time().saturating_sub(cpu);
        // If the process has ended, another process may have had its ID while the pages were read.
        let has_ended = held.is_some_and(|held| held.has_ended());
        let result = if has_ended { Err(Errno::SRCH) } else { result };
        result.map_err(refusal)
    }

    fn present(&mut self, target: TargetId, range: AddrRange) -> Option<u64> {
        if let Some(files) = self.files.as_mut().filter(|_| target == TargetId::PageCache) {
            let mut present = 0;
            return files.resident(range, |_| present += PAGE_SIZE).ok().map(|()| present);
        }
        let held = Held::new(&self.process_table, target)?;
        let bytes = resident(&self.root, held.pid, &[range]).ok()?;
        // If the process has ended, another process may have its ID.
        if held.has_ended() { None } else { bytes.first().map(Resident::bytes) }
    }

    fn time_inspecting(&self) -> Duration {
        self.spent
    }
}

/// Opens a probe that reads the accessed bit of single pages. The probe must not clear accessed bits in
/// [`update`](AccessProbe::update).
///
/// It is called when a scheme first needs young pages. An error says why the probe cannot be opened, and how to fix
/// that.
pub type OpenProbe = fn() -> Result<Box<dyn AccessProbe + Send>, BoxError>;

/// Finds the pages of a process that have been accessed since their accessed bit was last cleared. Any program may have
/// cleared the bit.
pub(super) struct Young {
    probe: Box<dyn AccessProbe + Send>,
    samples: Vec<Sample>,
    answers: Vec<Observation>,
}

impl Young {
    /// Opens the probe.
    ///
    /// # Errors
    /// Returns the error of `open_probe`.
    pub(super) fn open(open_probe: OpenProbe) -> Result<Self, BoxError> {
        Ok(Self::new(open_probe()?))
    }

    fn new(probe: Box<dyn AccessProbe + Send>) -> Self {
        Self { probe, samples: Vec::new(), answers: Vec::new() }
    }

    /// Appends to `found` the young pages in `ranges`, which are sorted and disjoint.
    ///
    /// # Errors
    /// If the probe fails, or one of the pages cannot be observed.
    pub(super) fn find(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let mappings: Arc<[Mapping]> = ranges.iter().copied().map(Mapping::anonymous).collect();
        let space = TargetSpace { id: target, layout: Layout::Process, mappings };
        self.probe.update(&[space]).map_err(|_| Errno::PERM)?;
        let mut addresses = ranges.iter().flat_map(|range| range.page_addresses());
        loop {
            self.samples.clear();
            let next = addresses.by_ref().take(LOOKS_AT_ONCE);
            self.samples.extend(next.map(|addr| Sample { target, addr }));
            if self.samples.is_empty() {
                return Ok(());
            }
            self.answers.clear();
            self.answers.resize(self.samples.len(), Observation::Idle);
            self.probe.read(&self.samples, &mut self.answers).map_err(|_| Errno::IO)?;
            if self.answers.contains(&Observation::Unobservable) {
                return Err(Errno::PERM);
            }
            let young = self.samples.iter().zip(&self.answers).filter(|(_, answer)| **answer == Observation::Accessed);
            young.for_each(|(sample, _)| add_page(found, sample.addr));
        }
    }
}

impl Young {
    /// Appends to `found` the young pages in `ranges` of physical memory, as the processes show it that map them. What
    /// cannot be observed counts as young. What no single process maps is left out: nothing is done to it.
    fn find_frames(
        &mut self,
        owners: &FrameOwners,
        ranges: &[AddrRange],
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let of_processes = owners.find(ranges)?.by_process;
        let space = |of: &OfProcess| TargetSpace {
            id: of.process.id(),
            layout: Layout::Process,
            mappings: joined(&of.pages).into_iter().map(|(_, part)| Mapping::anonymous(part)).collect(),
        };
        let spaces: Vec<TargetSpace> = of_processes.iter().map(space).collect();
        self.probe.update(&spaces).map_err(|_| Errno::PERM)?;
        let mut young = Vec::new();
        for OfProcess { process, pages } in &of_processes {
            for pages in pages.chunks(LOOKS_AT_ONCE) {
                self.samples.clear();
                self.samples.extend(pages.iter().map(|page| Sample { target: process.id(), addr: page.at.start() }));
                self.answers.clear();
                self.answers.resize(self.samples.len(), Observation::Idle);
                self.probe.read(&self.samples, &mut self.answers).map_err(|_| Errno::IO)?;
                let is_idle = |answer: &Observation| *answer == Observation::Idle;
                let used = pages.iter().zip(&self.answers).filter(|(_, answer)| !is_idle(answer));
                young.extend(used.map(|(page, _)| page.frame * PAGE_SIZE));
            }
        }
        young.sort_unstable();
        young.into_iter().for_each(|addr| add_page(found, addr));
        Ok(())
    }
}

impl fmt::Debug for Young {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Young").finish_non_exhaustive()
    }
}

/// Why pages in huge pages cannot be found, and how to fix it.
#[derive(Debug, Error)]
#[error("huge pages cannot be found")]
pub(super) struct HugeError(#[from] FramesError);

/// Finds the pages of a process or of files that are part of a huge page.
#[derive(Debug)]
pub(super) struct Huge {
    frames: Frames,
    huge_pages: HugePages,
}

impl Huge {
    /// Opens the kernel's tables. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// Fails if a table cannot be opened or read, or does not show page frame numbers.
    pub(super) fn open(root: &Path) -> Result<Self, HugeError> {
        Ok(Self { frames: Frames::open(root)?, huge_pages: HugePages::open(root).map_err(FramesError::from)? })
    }

    /// Appends to `found` the parts of `ranges`, which are sorted and disjoint, that are in huge pages.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(super) fn find(
        &mut self,
        owner: Owner<'_>,
        ranges: &[AddrRange],
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let Self { frames, huge_pages } = self;
        huge_pages.forget();
        frames.each(owner, ranges, |addr, frame| {
            if huge_pages.hold(addr, frame)? {
                add_page(found, addr);
            }
            Ok(())
        })
    }
}
