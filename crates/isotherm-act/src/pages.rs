//! The inspector: finds pages in memory, young and active pages, pages in huge pages or in folios of some size, pages
//! that compress well, and the properties of processes, just before an action.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::scheme::{PageInspector, PageKind, ProcessFacts, Refusal};
use isotherm_core::{AccessProbe, AddrRange, BoxError, Layout, Mapping, Observation, Sample, TargetId, TargetSpace};
use rustix::io::Errno;
use thiserror::Error;

use isotherm_kernel::{ProcessTable, monitor_cpu_time};

use super::compressible::Compressible;
use super::facts::facts;
use super::folios::Folios;
use super::frames::{Frames, FramesError, HugePages, add_page};
use super::held::Held;
use super::migration::Places;
use super::refusal::refusal;
use super::resident::{Resident, resident};

/// The maximum number of pages that a probe reads in one step: 32 MiB. To look at one page, the probe `idle`
/// has the kernel check the 64 frames of a word of the bitmap. With many pages at once, each word is read once.
const LOOKS_AT_ONCE: usize = 8192;

/// Inspects the processes of a process table and their pages.
#[derive(Debug)]
pub struct ProcessInspector {
    process_table: ProcessTable,
    open_probe: OpenProbe,
    root: PathBuf,
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
        Self { young: Some(Young::new(probe)), ..self }
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
            PageKind::Active | PageKind::Folio(..) => {
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
        let held = Held::new(&self.process_table, target).ok_or_else(|| refusal(Errno::SRCH))?;
        self.tells(kind).map_err(|_| refusal(Errno::PERM))?;
        let Self { frames, young, huge, compressible, folios, places, .. } = self;
        // What tells a kind is open since it was asked for.
        let result = match kind {
            PageKind::Present => Some(frames.each(held.pid, ranges, |addr, _| {
                add_page(found, addr);
                Ok(())
            })),
            PageKind::Young => young.as_mut().map(|young| young.find(target, ranges, found)),
            PageKind::Huge => huge.as_mut().map(|huge| huge.find(held.pid, ranges, found)),
            PageKind::Compressible => compressible.as_mut().map(|by| by.find(held.pid, ranges, found)),
            PageKind::Active => folios.as_mut().map(|by| by.find(held.pid, ranges, |of| of.flags.is_active(), found)),
            PageKind::Folio(least, most) => {
                folios.as_mut().map(|by| by.find(held.pid, ranges, |of| (least..=most).contains(&of.bytes), found))
            }
            PageKind::Node(node) => places.as_mut().map(|places| places.on_node(held.pid, ranges, node, found)),
        };
        let result = result.unwrap_or(Err(Errno::OPNOTSUPP));
        self.spent += began.elapsed();
        self.cpu += monitor_cpu_time().saturating_sub(cpu);
        // If the process has ended, another process may have had its ID while the pages were read.
        let result = if held.has_ended() { Err(Errno::SRCH) } else { result };
        result.map_err(refusal)
    }

    fn present(&mut self, target: TargetId, range: AddrRange) -> Option<u64> {
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

impl fmt::Debug for Young {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Young").finish_non_exhaustive()
    }
}

/// Why pages in huge pages cannot be found, and how to fix it.
#[derive(Debug, Error)]
#[error("huge pages cannot be found")]
pub(super) struct HugeError(#[from] FramesError);

/// Finds the pages of a process that are part of a huge page.
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
    pub(super) fn find(&mut self, pid: u32, ranges: &[AddrRange], found: &mut Vec<AddrRange>) -> Result<(), Errno> {
        let Self { frames, huge_pages } = self;
        huge_pages.forget();
        frames.each(pid, ranges, |addr, frame| {
            if huge_pages.hold(addr, frame)? {
                add_page(found, addr);
            }
            Ok(())
        })
    }
}
