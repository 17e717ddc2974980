//! Which pages are young or huge, just before they are acted on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::scheme::{PageInspector, PageKind, ProcessFacts, Refusal};
use isotherm_core::{
    AccessProbe, AddrRange, BoxError, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace,
};
use rustix::io::Errno;

use isotherm_kernel::ProcessTable;
use isotherm_kernel::pages::{FlagTable, PageBuffer, Pagemap, TableError};

use super::actuator::Held;
use super::facts::facts;
use super::refusal::refusal;

/// Frames of a huge page.
const HUGE: u64 = 512;

/// So many pages are asked for at once.
const PAGES_AT_ONCE: u64 = 512;

/// Inspects the pages of the processes of a table, and what the processes are.
#[derive(Debug)]
pub struct ProcessInspector {
    process_table: ProcessTable,
    open_probe: OpenProbe,
    root: PathBuf,
    young: Option<Young>,
    huge: Option<Huge>,
    spent: Duration,
}

impl ProcessInspector {
    /// An inspector of these processes. It asks the probe that `open_probe` opens which pages are young. Nothing is
    /// opened
    /// before it is needed.
    pub fn new(process_table: ProcessTable, open_probe: OpenProbe) -> Self {
        Self { process_table, open_probe, root: "/".into(), young: None, huge: None, spent: Duration::ZERO }
    }

    /// Inspects the processes of this table from here on.
    pub fn inspect(&mut self, process_table: ProcessTable) {
        self.process_table = process_table;
    }
}

impl PageInspector for ProcessInspector {
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        match kind {
            PageKind::Young if self.young.is_none() => self.young = Some(Young::open(self.open_probe)?),
            PageKind::Huge if self.huge.is_none() => self.huge = Some(Huge::open(&self.root)?),
            PageKind::Young | PageKind::Huge => {}
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
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        let began = Instant::now();
        let held = Held::new(&self.process_table, target).ok_or_else(|| refusal(Errno::SRCH))?;
        self.tells(kind).map_err(|_| refusal(Errno::PERM))?;
        let told = match (kind, &mut self.young, &mut self.huge) {
            (PageKind::Young, Some(young), _) => young.find(target, range, found),
            (PageKind::Huge, _, Some(huge)) => huge.find(held.pid, range, found),
            _ => Err(Errno::OPNOTSUPP),
        };
        self.spent += began.elapsed();
        // Its ID may have been another's while the pages were looked at.
        let told = if held.has_ended() { Err(Errno::SRCH) } else { told };
        told.map_err(refusal)
    }

    fn time_inspecting(&self) -> Duration {
        self.spent
    }
}

/// Opens a probe that reads the accessed bit of single pages, and clears none when it learns of a target.
///
/// It is opened when a scheme first asks which pages are young. An error says why it cannot be opened and how to fix
/// that.
pub type OpenProbe = fn() -> Result<Box<dyn AccessProbe + Send>, BoxError>;

/// Tells which pages of a process have been accessed since their accessed bit was last cleared, by whomever.
pub(super) struct Young {
    probe: Box<dyn AccessProbe + Send>,
    samples: Vec<Sample>,
    answers: Vec<Observation>,
}

impl Young {
    /// Opens the probe; says why not, and how to fix that.
    pub(super) fn open(open_probe: OpenProbe) -> Result<Self, BoxError> {
        Ok(Self { probe: open_probe()?, samples: Vec::new(), answers: Vec::new() })
    }

    pub(super) fn find(&mut self, target: TargetId, range: AddrRange, found: &mut Vec<AddrRange>) -> Result<(), Errno> {
        let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(range)]);
        let space = TargetSpace { id: target, layout: Layout::Process, mappings };
        self.probe.update(&[space]).map_err(|_| Errno::PERM)?;
        for part in range.pieces(PAGES_AT_ONCE * PAGE_SIZE) {
            self.samples.clear();
            self.samples.extend(part.page_addresses().map(|addr| Sample { target, addr }));
            self.answers.clear();
            self.answers.resize(self.samples.len(), Observation::Idle);
            self.probe.read(&self.samples, &mut self.answers).map_err(|_| Errno::IO)?;
            if self.answers.contains(&Observation::Unobservable) {
                return Err(Errno::PERM);
            }
            let young = self.samples.iter().zip(&self.answers).filter(|(_, answer)| **answer == Observation::Accessed);
            young.for_each(|(sample, _)| add_page(found, sample.addr));
        }
        Ok(())
    }
}

impl fmt::Debug for Young {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Young").finish_non_exhaustive()
    }
}

/// Tells which pages of a process are part of a huge page.
#[derive(Debug)]
pub(super) struct Huge {
    root: PathBuf,
    flags: FlagTable,
    room: PageBuffer,
    frames: Vec<u64>,
}

impl Huge {
    /// Opens what it needs, below the directory that stands for `/`; says why not, and what would mend it.
    pub(super) fn open(root: &Path) -> Result<Self, BoxError> {
        let cannot = |error: TableError| {
            format!("huge pages cannot be found (run isotherm as root): {}", isotherm_core::chain(&error))
        };
        let flags = FlagTable::open(root).map_err(cannot)?;
        let own = Pagemap::open(root, "self").map_err(cannot)?;
        let here = &raw const flags as u64;
        let mut told = None;
        own.frames(std::iter::once(here), &mut PageBuffer::default(), |frame| told = frame)?;
        if told.is_none_or(|frame| frame == 0) {
            let why = "huge pages cannot be told: the kernel does not tell page frames in /proc/self/pagemap";
            return Err(format!("{why}; run isotherm with CAP_SYS_ADMIN").into());
        }
        Ok(Self { root: root.into(), flags, room: PageBuffer::default(), frames: Vec::new() })
    }

    pub(super) fn find(&mut self, pid: u32, range: AddrRange, found: &mut Vec<AddrRange>) -> Result<(), Errno> {
        let pagemap = Pagemap::open(&self.root, &pid.to_string()).map_err(|error| error.errno())?;
        for part in range.pieces(PAGES_AT_ONCE * PAGE_SIZE) {
            self.frames.clear();
            pagemap
                .frames(part.page_addresses(), &mut self.room, |frame| self.frames.push(frame.unwrap_or(0)))
                .map_err(|error| error.errno())?;
            // Pages of the same huge page mostly follow one another.
            let mut last = (u64::MAX, false);
            for (addr, &frame) in part.page_addresses().zip(&self.frames) {
                // In a huge page, a page lies where it lies in memory.
                if frame == 0 || frame % HUGE != addr / PAGE_SIZE % HUGE {
                    continue;
                }
                let first = frame - frame % HUGE;
                if last.0 != first {
                    last = (first, self.flags.is_huge_page(first).map_err(|error| error.errno())?);
                }
                if last.1 {
                    add_page(found, addr);
                }
            }
        }
        Ok(())
    }
}

/// Adds a page behind all that are there.
fn add_page(found: &mut Vec<AddrRange>, addr: u64) {
    let Some(page) = AddrRange::new(addr, addr + PAGE_SIZE) else {
        return;
    };
    match found.pop_if(|last| last.touches(page)) {
        Some(last) => found.extend(AddrRange::new(last.start(), page.end())),
        None => found.push(page),
    }
}
