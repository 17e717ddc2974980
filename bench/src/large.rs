//! Simulated memory of any size: almost all of it is cold, and reading a cold block takes a constant time.
//!
//! What a kernel would take to read and clear is charged in simulated CPU time, by the figures of `bench/README.md`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, BoxError, Layout, Mapping, Observation, PAGE_SIZE, PageLook, PageProbe,
    Sample, TargetId, TargetSpace,
};
use isotherm_kernel::monitor_cpu_time;

/// Reading a block: 1.3 ms a GiB.
pub(crate) const READ_BLOCK: Duration = Duration::from_nanos(2500);
/// Clearing a page in a range, and a range.
pub(crate) const CLEAR_PAGE: Duration = Duration::from_nanos(65);
pub(crate) const CLEAR_RANGE: Duration = Duration::from_micros(5);
/// A round with samples, and a sample. A look at a page of the panel takes as long as a sample.
pub(crate) const ROUND: Duration = Duration::from_micros(20);
pub(crate) const SAMPLE: Duration = Duration::from_nanos(150);

/// The address of the first page.
const BASE: u64 = 0x10_0000_0000;

/// CPU time: what the kernel would have taken, and what the simulation itself took. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedCpu {
    since: Rc<Cell<(Duration, Duration)>>,
    /// What the kernel would have taken, without what the simulation took, in nanoseconds.
    all: Arc<AtomicU64>,
}

impl SimulatedCpu {
    /// What the kernel would have taken, and what the simulation took, since this was asked last.
    pub fn take(&self) -> (Duration, Duration) {
        self.since.take()
    }

    /// A clock of the CPU time of the monitor, as if the kernel had done what was simulated.
    pub fn clock(&self) -> impl FnMut() -> Duration + Send + 'static {
        let all = Arc::clone(&self.all);
        move || {
            // The sum cannot be negative: the simulation is a part of what the thread took.
            let took = all.load(Ordering::Relaxed).wrapping_add(monitor_cpu_time().as_nanos() as u64);
            Duration::from_nanos(took)
        }
    }

    /// Charges what the kernel would have taken for what was simulated since `began`, by the CPU time of the thread.
    pub(crate) fn charge(&self, kernel: Duration, began: Duration) {
        let (charged, own) = self.since.get();
        let took = monitor_cpu_time().saturating_sub(began);
        self.since.set((charged + kernel, own + took));
        let more = (kernel.as_nanos() as u64).wrapping_sub(took.as_nanos() as u64);
        self.all.fetch_add(more, Ordering::Relaxed);
    }
}

/// What memory is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The present bytes of all processes together.
    pub size: u64,
    /// The bytes of them that are hot.
    pub hot: u64,
    /// The number of parts in which they lie in each process.
    pub parts: u64,
    /// Whether the accessed bits of cold pages are set until they are cleared, as those of a program that has filled
    /// its memory.
    pub is_filled: bool,
    /// Of so many pages of a block, one is present.
    pub sparse: u64,
    /// Whether the memory is in huge pages, each with one accessed bit.
    pub is_huge: bool,
    /// Among how many processes the memory is divided.
    pub processes: u32,
    /// Tells runs apart: it is a part of the identity of the processes.
    pub seed: u32,
}

/// Nothing in one process, dense, in pages of 4 KiB, and aged.
impl Default for Shape {
    fn default() -> Self {
        Self { size: 0, hot: 0, parts: 1, is_filled: false, sparse: 1, is_huge: false, processes: 1, seed: 0 }
    }
}

/// Processes with one mapping each. Their hot pages are accessed all the time, their cold pages never.
#[derive(Clone, Debug)]
pub struct LargeMemory {
    shape: Shape,
    range: AddrRange,
    hot: Rc<[AddrRange]>,
    present: PageBits,
    /// The cold pages that were cleared, by process and block. Empty if none had to be.
    cleared: Rc<RefCell<HashMap<(u32, u64), PageBits>>>,
    clears: Rc<Cell<u64>>,
    /// How many of them the processes have to set again, because they are hot.
    set_again: Rc<Cell<u64>>,
    cpu: SimulatedCpu,
}

impl LargeMemory {
    /// The memory of a shape. `None` if a part has no page.
    pub fn new(shape: Shape, cpu: SimulatedCpu) -> Option<Self> {
        let whole = |bytes: u64, unit: u64| bytes / unit * unit;
        let unit = if shape.is_huge { BLOCK_SIZE } else { PAGE_SIZE };
        let of_process = |bytes: u64| bytes * shape.sparse / u64::from(shape.processes);
        let size = whole(of_process(shape.size), BLOCK_SIZE);
        let part = |nth: u64| {
            let start = BASE + whole(size / shape.parts * nth + size / shape.parts / 3, unit);
            AddrRange::new(start, start + whole(of_process(shape.hot) / shape.parts, unit))
        };
        let hot = (0..shape.parts).map(part).collect::<Option<Rc<[_]>>>()?;
        let range = AddrRange::new(BASE, BASE + size)?;
        let pages = (0..BLOCK_PAGES).step_by(shape.sparse as usize);
        let present = pages.fold(PageBits::NONE, |all, page| all | PageBits::of(page..page + 1));
        let (cleared, clears, set_again) = Default::default();
        Some(Self { shape, range, hot, present, cleared, clears, set_again, cpu })
    }

    /// The hot parts of each process, sorted.
    pub fn hot(&self) -> &[AddrRange] {
        &self.hot
    }

    /// The present hot bytes of all processes.
    pub fn hot_bytes(&self) -> u64 {
        let here: u64 = self.hot.iter().map(|range| range.size()).sum();
        here / self.shape.sparse * u64::from(self.shape.processes)
    }

    /// How many accessed bits the processes had to set again.
    pub fn set_again(&self) -> u64 {
        self.set_again.get()
    }

    fn hot_pages(&self, start: u64) -> PageBits {
        let first = self.hot.partition_point(|hot| hot.end() <= start);
        let parts = self.hot[first..].iter().take_while(|hot| hot.start() < start + BLOCK_SIZE);
        parts.fold(PageBits::NONE, |pages, &hot| pages | PageBits::within(start, hot)) & self.present
    }

    fn accessed(&self, process: u32, start: u64) -> PageBits {
        let set = match self.cleared.borrow().get(&(process, start)) {
            _ if !self.shape.is_filled => PageBits::NONE,
            Some(&cleared) => self.present & !cleared,
            None => self.present,
        };
        let accessed = self.hot_pages(start) | set;
        if self.shape.is_huge && !accessed.is_empty() { self.present } else { accessed }
    }

    /// Clears pages of a block that were accessed. A huge page is cleared as a whole. Returns how many bits that are.
    fn clear_pages_of(&self, process: u32, start: u64, pages: PageBits) -> u64 {
        let pages = if self.shape.is_huge { self.present } else { pages };
        let bits = |pages: PageBits| match self.shape.is_huge {
            true => pages.count().min(1) as u64,
            false => pages.count() as u64,
        };
        if self.shape.is_filled {
            *self.cleared.borrow_mut().entry((process, start)).or_default() |= pages;
        }
        self.clears.set(self.clears.get() + bits(pages));
        self.set_again.set(self.set_again.get() + bits(pages & self.hot_pages(start)));
        bits(pages)
    }
}

/// The identity of a simulated process.
const fn id(process: u32, seed: u32) -> TargetId {
    TargetId::process(process + 1, Duration::from_secs(seed as u64))
}

fn process_of(target: TargetId) -> u32 {
    match target {
        TargetId::Process(process) => process.pid - 1,
        TargetId::PhysicalMemory | TargetId::Cgroup(_) | TargetId::PageCache => 0,
    }
}

/// The block of a page, and the page in it.
const fn place(addr: u64) -> (u64, usize) {
    (addr / BLOCK_SIZE * BLOCK_SIZE, (addr / PAGE_SIZE) as usize % BLOCK_PAGES)
}

impl AddressSpace for LargeMemory {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let space = |process| TargetSpace {
            id: id(process, self.shape.seed),
            layout: Layout::Process,
            mappings: [Mapping::anonymous(self.range)].into(),
        };
        Ok((0..self.shape.processes).map(space).collect())
    }

    fn resident(&mut self, _target: TargetId) -> Option<u64> {
        Some(self.range.size() / self.shape.sparse)
    }
}

impl AccessProbe for LargeMemory {
    fn update(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        self.clears.set(self.clears.get() + samples.len() as u64);
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        for (sample, answer) in samples.iter().zip(answers) {
            let first = self.hot.partition_point(|hot| hot.end() <= sample.addr);
            let is_hot = self.hot.get(first).is_some_and(|hot| hot.contains(sample.addr));
            *answer = if is_hot { Observation::Accessed } else { Observation::Idle };
        }
        self.cpu.charge(ROUND + SAMPLE * samples.len() as u32, began);
        Ok(())
    }

    fn clears(&self) -> u64 {
        self.clears.get()
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }

    fn pages(&mut self) -> Option<&mut dyn PageProbe> {
        Some(self)
    }
}

impl PageProbe for LargeMemory {
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        looks.extend(pages.iter().map(|sample| {
            let (start, page) = place(sample.addr);
            let process = process_of(sample.target);
            let accessed = self.accessed(process, start).contains(page);
            let frame = (u64::from(process) << 40) | (sample.addr / PAGE_SIZE);
            PageLook { present: self.present.contains(page), accessed, huge: self.shape.is_huge, frame: Some(frame) }
        }));
        self.cpu.charge(SAMPLE * pages.len() as u32, began);
        Ok(())
    }

    fn clear_pages(&mut self, pages: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError> {
        let began = monitor_cpu_time();
        for sample in pages {
            let (start, page) = place(sample.addr);
            self.clear_pages_of(process_of(sample.target), start, PageBits::of(page..page + 1));
        }
        cleared.resize(cleared.len() + pages.len(), true);
        self.cpu.charge((CLEAR_PAGE + CLEAR_RANGE) * pages.len() as u32, began);
        Ok(())
    }
}

impl Survey for LargeMemory {
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let began = monitor_cpu_time();
        let from = part.from.max(self.range.start()) / BLOCK_SIZE * BLOCK_SIZE;
        let left = (self.range.end() - from) / BLOCK_SIZE;
        let count = left.min(part.most as u64);
        for start in (0..count).map(|nth| from + nth * BLOCK_SIZE) {
            let accessed = self.accessed(process_of(target.id), start);
            let huge = self.shape.is_huge;
            blocks.push(BlockPages { start, present: self.present, accessed, huge, ..BlockPages::default() });
        }
        self.cpu.charge(READ_BLOCK * count as u32, began);
        let rest = left - count;
        Ok(Rest { from: (rest > 0).then_some(from + count * BLOCK_SIZE), blocks: rest as usize })
    }

    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let began = monitor_cpu_time();
        let (mut pages, mut ranges, mut end) = (0, 0, None);
        for block in blocks.iter() {
            for run in block.pages.runs() {
                ranges += u32::from(end != Some(block.start + run.start as u64 * PAGE_SIZE));
                end = Some(block.start + run.end as u64 * PAGE_SIZE);
            }
            pages += self.clear_pages_of(process_of(target), block.start, block.pages);
        }
        self.cpu.charge(CLEAR_PAGE * pages as u32 + CLEAR_RANGE * ranges, began);
        Ok(pages)
    }
}

/// The memory of this process, in bytes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn resident() -> Result<u64, BoxError> {
    Ok(procfs::process::Process::myself()?.statm()?.resident * procfs::page_size())
}
