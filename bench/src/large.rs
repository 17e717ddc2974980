//! Simulated memory of any size: almost all of it is cold, and reading a cold block takes a constant time.
//!
//! What a kernel would take to read and clear is charged in simulated CPU time, by the figures of `bench/README.md`.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, BoxError, Layout, Mapping, Observation, Sample, TargetId, TargetSpace,
};
use isotherm_kernel::monitor_cpu_time;

/// Reading a block: 1.3 ms a GiB.
pub(crate) const READ_BLOCK: Duration = Duration::from_nanos(2500);
/// Clearing a page in a range, and a range.
pub(crate) const CLEAR_PAGE: Duration = Duration::from_nanos(65);
pub(crate) const CLEAR_RANGE: Duration = Duration::from_micros(5);
/// A round with samples, and a sample.
pub(crate) const ROUND: Duration = Duration::from_micros(20);
pub(crate) const SAMPLE: Duration = Duration::from_nanos(150);

/// The address of the first page.
const BASE: u64 = 0x10_0000_0000;

/// CPU time: what the kernel would have taken, and what the simulation itself took. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedCpu(Rc<Cell<(Duration, Duration)>>);

impl SimulatedCpu {
    /// What the kernel would have taken, and what the simulation took, since this was asked last.
    pub fn take(&self) -> (Duration, Duration) {
        self.0.take()
    }

    /// Charges what the kernel would have taken for what was simulated since `began`, by the CPU time of the thread.
    pub(crate) fn charge(&self, kernel: Duration, began: Duration) {
        let (charged, own) = self.0.get();
        self.0.set((charged + kernel, own + monitor_cpu_time().saturating_sub(began)));
    }
}

/// One target with one mapping. Its hot pages are accessed all the time, its cold pages never.
#[derive(Clone, Debug)]
pub struct LargeMemory {
    range: AddrRange,
    hot: Rc<[AddrRange]>,
    /// Whether the accessed bits of cold pages are set until they are cleared, as those of a program that has filled
    /// its memory.
    is_filled: bool,
    /// The cold pages that were cleared, by block. Empty if none had to be.
    cleared: HashMap<u64, PageBits>,
    clears: u64,
    cpu: SimulatedCpu,
}

impl LargeMemory {
    /// The identity of the simulated process.
    pub const ID: TargetId = TargetId::process(1, Duration::ZERO);

    /// Memory of `size` bytes, a multiple of a block, with `hot` bytes in `parts` parts of equal size. `None` if a part
    /// has no page.
    pub fn new(size: u64, hot: u64, parts: u64, is_filled: bool, cpu: SimulatedCpu) -> Option<Self> {
        let page = |at: u64| at / 4096 * 4096;
        let part = |nth: u64| {
            let start = BASE + page(size / parts * nth + size / parts / 3);
            AddrRange::new(start, start + page(hot / parts))
        };
        let hot = (0..parts).map(part).collect::<Option<Rc<[_]>>>()?;
        let range = AddrRange::new(BASE, BASE + size)?;
        Some(Self { range, hot, is_filled, cleared: HashMap::new(), clears: 0, cpu })
    }

    /// The hot parts, sorted.
    pub fn hot(&self) -> &[AddrRange] {
        &self.hot
    }

    fn hot_pages(&self, start: u64) -> PageBits {
        let first = self.hot.partition_point(|hot| hot.end() <= start);
        let parts = self.hot[first..].iter().take_while(|hot| hot.start() < start + BLOCK_SIZE);
        parts.fold(PageBits::NONE, |pages, &hot| pages | PageBits::within(start, hot))
    }
}

impl AddressSpace for LargeMemory {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let mappings = [Mapping::anonymous(self.range)].into();
        Ok(vec![TargetSpace { id: Self::ID, layout: Layout::Process, mappings }])
    }
}

impl AccessProbe for LargeMemory {
    fn update(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        self.clears += samples.len() as u64;
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
        self.clears
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

impl Survey for LargeMemory {
    fn read(
        &mut self,
        _target: &TargetSpace,
        part: SurveyPart,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<Rest, BoxError> {
        let began = monitor_cpu_time();
        let from = part.from.max(self.range.start()) / BLOCK_SIZE * BLOCK_SIZE;
        let left = (self.range.end() - from) / BLOCK_SIZE;
        let count = left.min(part.most as u64);
        for start in (0..count).map(|nth| from + nth * BLOCK_SIZE) {
            let hot = self.hot_pages(start);
            let set = match self.cleared.get(&start) {
                _ if !self.is_filled => PageBits::NONE,
                Some(&cleared) => PageBits::ALL & !cleared,
                None => PageBits::ALL,
            };
            blocks.push(BlockPages { start, present: PageBits::ALL, accessed: hot | set, ..BlockPages::default() });
        }
        self.cpu.charge(READ_BLOCK * count as u32, began);
        let rest = left - count;
        Ok(Rest { from: (rest > 0).then_some(from + count * BLOCK_SIZE), blocks: rest as usize })
    }

    fn clear(&mut self, _target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let began = monitor_cpu_time();
        let (mut pages, mut ranges, mut end) = (0, 0, None);
        for block in blocks.iter() {
            for run in block.pages.runs() {
                ranges += u32::from(end != Some(block.start + run.start as u64 * 4096));
                end = Some(block.start + run.end as u64 * 4096);
            }
            pages += block.pages.count() as u32;
            if self.is_filled {
                *self.cleared.entry(block.start).or_default() |= block.pages;
            }
        }
        debug_assert!(pages as usize <= blocks.len() * BLOCK_PAGES);
        self.cpu.charge(CLEAR_PAGE * pages + CLEAR_RANGE * ranges, began);
        Ok(pages.into())
    }
}

/// The memory of this process, in bytes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn resident() -> Result<u64, BoxError> {
    Ok(procfs::process::Process::myself()?.statm()?.resident * procfs::page_size())
}
