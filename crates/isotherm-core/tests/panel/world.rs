//! Simulated memory with a known truth and known prices, and a monitor of it at the default budget.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySnapshot,
};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Budget, FileId, Layout, MappedFile, Mapping, Monitor,
    Next, Observation, PAGE_SIZE, PaceOptions, Pacer, PageLook, PageProbe, PanelSnapshot, Permissions, Sample, Sink,
    Snapshot, Start, SurveyInterval, TargetId, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Which part of the memory is accessed how often.
#[derive(Clone, Copy)]
pub struct Part {
    pub share: f64,
    pub every: Duration,
}

/// The memory of a process.
#[derive(Clone)]
pub struct World {
    pub pid: u32,
    /// Mapped memory that is not present.
    pub reserved: Option<AddrRange>,
    /// The time in which its pages appear, in the order of addresses. All are there from the start if it is zero.
    pub fills: Duration,
    /// When all of its pages go.
    pub ends: Option<Duration>,
    /// Whether the panel was read since then.
    pub read_after: Rc<Cell<bool>>,
    /// Whether the process was started by the run.
    pub begins: bool,
    /// What the first part of the first survey takes beyond reading, in nanoseconds.
    pub opens: u64,
    /// What it takes to clear a single page, in nanoseconds.
    pub clear_price: u64,
    /// A survey reads at least so many blocks at once.
    pub at_once: usize,
    pub ranges: Arc<[AddrRange]>,
    pub parts: Arc<[Part]>,
    /// Whether the parts are spread over all pages, or lie one after the other.
    pub scattered: bool,
    pub huge: bool,
    /// Of so many pages, one is present.
    pub sparse: u64,
    /// At how many other addresses the memory is mapped. It is used by the last of them, and no page of it can be
    /// cleared alone.
    pub again: u64,
    pub now: Rc<Cell<Duration>>,
    /// The CPU time that was taken, in nanoseconds.
    pub cpu: Arc<AtomicU64>,
    /// When pages were cleared, by block. Others were accessed before the run.
    pub cleared: Rc<RefCell<HashMap<u64, HashMap<usize, Duration>>>>,
    /// Accessed pages that samples and the panel have cleared since the last survey.
    pub noted: Rc<RefCell<HashMap<u64, PageBits>>>,
    pub clears: Rc<Cell<u64>>,
}

/// How far the addresses are apart at which a page is mapped.
const DISTANCE: u64 = 1 << 44;

/// A number from 0 to 1 that looks random.
fn chance(page: u64) -> f64 {
    let mut x = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

impl World {
    pub fn new(pid: u32, ranges: Vec<AddrRange>, parts: &[Part], scattered: bool) -> Self {
        Self {
            pid,
            reserved: None,
            fills: Duration::ZERO,
            ends: None,
            read_after: Rc::default(),
            begins: false,
            opens: 0,
            clear_price: 5000,
            at_once: 1,
            ranges: ranges.into(),
            parts: parts.into(),
            scattered,
            huge: false,
            sparse: 1,
            again: 0,
            now: Rc::default(),
            cpu: Arc::default(),
            cleared: Rc::default(),
            noted: Rc::default(),
            clears: Rc::default(),
        }
    }

    pub fn dense(pid: u32, size: u64, parts: &[Part], scattered: bool) -> Self {
        Self::new(pid, vec![AddrRange::new(1 << 36, (1 << 36) + size).unwrap()], parts, scattered)
    }

    pub fn pages(&self) -> u64 {
        self.ranges.iter().map(|range| range.pages()).sum::<u64>() / self.sparse
    }

    fn is_present(&self, addr: u64) -> bool {
        let index = self.ranges.partition_point(|range| range.end() <= addr);
        let is_mapped = self.ranges.get(index).is_some_and(|range| range.contains(addr));
        let is_one = is_mapped && (addr / PAGE_SIZE).is_multiple_of(self.sparse);
        is_one && self.filled(addr) <= self.now.get() && !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= self.now.get())
    }

    /// The share of the pages that have appeared.
    pub fn filled_part(&self) -> f64 {
        if self.fills.is_zero() { 1.0 } else { (self.now.get().as_secs_f64() / self.fills.as_secs_f64()).min(1.0) }
    }

    /// When a page appears. It is accessed then.
    fn filled(&self, addr: u64) -> Duration {
        let (first, last) = (self.ranges[0].start(), self.ranges.last().unwrap().end());
        self.fills.mul_f64((addr - first) as f64 / (last - first) as f64)
    }

    /// When a page was accessed last. `None` if that was before the run.
    fn last_access(&self, addr: u64) -> Option<Duration> {
        let filled = Some(self.filled(addr)).filter(|filled| !filled.is_zero());
        self.last_use(addr).max(filled)
    }

    fn last_use(&self, addr: u64) -> Option<Duration> {
        let unit = if self.huge { BLOCK_SIZE } else { PAGE_SIZE };
        let place = match self.scattered {
            true => chance(addr / unit),
            false => {
                let first = self.ranges[0].start();
                (addr / unit * unit - first) as f64 / (self.ranges.last().unwrap().end() - first) as f64
            }
        };
        let mut below = 0.0;
        for part in self.parts.iter() {
            below += part.share;
            if place < below {
                let (now, every) = (self.now.get().as_secs_f64(), part.every.as_secs_f64());
                let phase = chance(addr / unit * 3 + 1) * every;
                let last = ((now - phase) / every).floor() * every + phase;
                return (last >= 0.0).then(|| Duration::from_secs_f64(last));
            }
        }
        None
    }

    /// The bytes that were accessed within a time.
    pub fn truth(&self, within: Duration) -> f64 {
        if self.pages() < 1 << 18 {
            let begin = self.now.get().saturating_sub(within);
            let all = self.ranges.iter().flat_map(|range| range.page_addresses()).filter(|&page| self.is_present(page));
            return (all.filter(|&page| self.last_access(page).is_some_and(|last| last > begin)).count()
                * PAGE_SIZE as usize) as f64;
        }
        let share = |part: &Part| part.share * (within.as_secs_f64() / part.every.as_secs_f64()).min(1.0);
        self.parts.iter().map(share).sum::<f64>() * (self.pages() * PAGE_SIZE) as f64
    }

    fn accessed(&self, addr: u64) -> bool {
        let cleared = self.cleared.borrow();
        let unit = if self.huge { addr / BLOCK_SIZE * BLOCK_SIZE } else { addr };
        let block = cleared.get(&(unit / BLOCK_SIZE));
        let since = block.and_then(|block| block.get(&((unit / PAGE_SIZE) as usize % BLOCK_PAGES)));
        since.is_none_or(|&since| self.last_access(addr).is_some_and(|last| last > since))
    }

    fn clear_bit(&self, addr: u64) {
        let unit = if self.huge { addr / BLOCK_SIZE * BLOCK_SIZE } else { addr };
        let mut cleared = self.cleared.borrow_mut();
        let block = cleared.entry(unit / BLOCK_SIZE).or_default();
        block.insert((unit / PAGE_SIZE) as usize % BLOCK_PAGES, self.now.get());
        self.clears.set(self.clears.get() + 1);
    }

    /// Clears a page that was accessed, so that the next survey learns of it.
    fn clear_noted(&self, addr: u64) {
        let bits = if self.huge { PageBits::ALL } else { page_of(addr) };
        *self.noted.borrow_mut().entry(addr / BLOCK_SIZE).or_default() |= bits;
        self.clear_bit(addr);
    }

    fn spend(&self, nanoseconds: u64) {
        self.cpu.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn block(&self, start: u64) -> BlockPages {
        let end = start + BLOCK_SIZE;
        let here = self.ranges.iter().filter(|range| range.start() < end && range.end() > start);
        let mut present = here.fold(PageBits::NONE, |all, range| all | PageBits::within(start, *range));
        if self.sparse > 1 {
            let pages = (0..BLOCK_PAGES).step_by(self.sparse as usize);
            present &= pages.fold(PageBits::NONE, |all, page| all | PageBits::of(page..page + 1));
        }
        if self.filled(end.min(self.ranges.last().unwrap().end())) > self.now.get() {
            let filled = present.iter().filter(|&page| self.is_present(start + page as u64 * PAGE_SIZE));
            present = filled.fold(PageBits::NONE, |all, page| all | PageBits::of(page..page + 1));
        }
        let mut accessed = present;
        if self.huge && !self.accessed(start) {
            accessed = PageBits::NONE;
        } else if let Some(block) = self.cleared.borrow().get(&(start / BLOCK_SIZE)).filter(|_| !self.huge) {
            for (&page, &since) in block {
                if self.last_access(start + page as u64 * PAGE_SIZE).is_none_or(|last| last <= since) {
                    accessed &= !PageBits::of(page..page + 1);
                }
            }
        }
        let noted = self.noted.borrow_mut().remove(&(start / BLOCK_SIZE)).unwrap_or_default();
        BlockPages { start, present, accessed: accessed | noted & present, huge: self.huge, ..BlockPages::default() }
    }
}

fn page_of(addr: u64) -> PageBits {
    let page = (addr / PAGE_SIZE) as usize % BLOCK_PAGES;
    PageBits::of(page..page + 1)
}

impl AddressSpace for World {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let mapping = |range: AddrRange, view: u64| {
            let distance = view * DISTANCE;
            let file = Some(MappedFile { id: FileId::default(), shift: distance.wrapping_neg() });
            let range = AddrRange::new(range.start() + distance, range.end() + distance).unwrap();
            let permissions = Permissions { shared: true, ..Permissions::READ_WRITE };
            if self.again > 0 {
                Mapping { permissions, file, ..Mapping::anonymous(range) }
            } else {
                Mapping::anonymous(range)
            }
        };
        let views = (0..=self.again).flat_map(|view| self.ranges.iter().map(move |range| mapping(*range, view)));
        let mappings = views.chain(self.reserved.map(Mapping::anonymous)).collect();
        Ok(vec![TargetSpace { id: TargetId::process(self.pid, Duration::ZERO), layout: Layout::Process, mappings }])
    }

    fn resident(&mut self, _: TargetId) -> Option<u64> {
        if self.read_after.get() {
            return None;
        }
        Some((self.filled_part() * (World::pages(self) * (1 + self.again) * PAGE_SIZE) as f64) as u64)
    }
}

impl AccessProbe for World {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        for sample in samples.iter().filter(|sample| self.accessed(sample.addr)) {
            self.clear_noted(sample.addr);
        }
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for (sample, answer) in samples.iter().zip(answers) {
            *answer = if self.accessed(sample.addr) { Observation::Accessed } else { Observation::Idle };
        }
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

impl PageProbe for World {
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        self.spend(150 * pages.len() as u64);
        self.read_after.set(self.has_ended());
        looks.extend(pages.iter().map(|page| {
            let (view, addr) = (page.addr / DISTANCE, page.addr % DISTANCE);
            let present = self.is_present(addr);
            let accessed = present && view == self.again && self.accessed(addr);
            PageLook { present, accessed, huge: self.huge, frame: None }
        }));
        Ok(())
    }

    fn clear_pages(&mut self, pages: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError> {
        self.spend(self.clear_price * pages.len() as u64);
        let is_alone = self.again == 0;
        pages.iter().filter(|_| is_alone).for_each(|page| self.clear_noted(page.addr));
        cleared.resize(pages.len(), is_alone);
        Ok(())
    }
}

impl Survey for World {
    fn read(&mut self, _: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let (mut rest, mut count) = (Rest::default(), 0);
        if part.from == 0 && self.now.get().is_zero() {
            self.spend(self.opens);
        }
        for range in self.ranges.iter() {
            let mut start = (range.start() / BLOCK_SIZE * BLOCK_SIZE).max(part.from);
            start = start.max(blocks.last().map_or(0, |last: &BlockPages| last.start + BLOCK_SIZE));
            while start < range.end() {
                if count >= part.most.max(self.at_once) {
                    rest.from.get_or_insert(start);
                    rest.blocks += ((range.end() - start) / BLOCK_SIZE) as usize;
                    break;
                }
                let block = self.block(start);
                if !block.present.is_empty() {
                    blocks.push(block);
                    self.spend(2600);
                    count += 1;
                }
                start += BLOCK_SIZE;
            }
        }
        Ok(rest)
    }

    fn clear(&mut self, _: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let mut count = 0;
        for block in blocks {
            let pages = if self.huge { 1 } else { block.pages.count() };
            self.spend(5000 + 65 * pages as u64);
            block.pages.iter().take(pages).for_each(|page| self.clear_bit(block.start + page as u64 * PAGE_SIZE));
            count += pages as u64;
        }
        Ok(count)
    }
}

#[derive(Default)]
pub struct Kept {
    pub panels: Vec<PanelSnapshot>,
    pub surveys: Vec<SurveySnapshot>,
}

impl Sink for Kept {
    fn aggregated(&mut self, _: &Snapshot) -> Result<(), BoxError> {
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys.push(survey.clone());
        Ok(())
    }

    fn panel_read(&mut self, panel: &PanelSnapshot) -> Result<(), BoxError> {
        self.panels.push(panel.clone());
        Ok(())
    }
}

/// Watches memory for some time at the default budget. Returns what was found, and the CPU time of each second.
pub fn watch(world: &World, length: Duration, samples: bool) -> (Kept, Vec<Duration>) {
    watch_with(world, length, samples, SurveyInterval::Auto)
}

pub fn watch_with(world: &World, length: Duration, samples: bool, survey: SurveyInterval) -> (Kept, Vec<Duration>) {
    let options = PaceOptions {
        budget: Budget::default(),
        start: Start::default(),
        bounds_samples: true,
        has_budget: true,
        samples,
        survey: Some(survey),
        goal: None,
        longest_aggregation: None,
    };
    let mut pacer = Pacer::new(options);
    let attributes = Attributes::default();
    let sink = Kept::default();
    let mut monitor =
        Monitor::new(attributes, Pcg64Mcg::seed_from_u64(world.pid.into()), world.clone(), world.clone(), sink);
    if world.begins {
        monitor.set_start(Duration::ZERO, Duration::ZERO);
    }
    if !samples {
        monitor.without_samples();
    }
    let clock = Arc::clone(&world.cpu);
    monitor.set_cpu_clock(move || Duration::from_nanos(clock.load(Ordering::Relaxed)));
    monitor.set_survey(pacer.survey_settings(attributes));
    let (mut now, mut counted, mut by_second) = (Duration::ZERO, 0, Vec::new());
    let mut next = monitor.start().unwrap();
    while now < length {
        let cpu = world.cpu.load(Ordering::Relaxed);
        let took = Duration::from_nanos(cpu - std::mem::replace(&mut counted, cpu));
        by_second.resize(now.as_secs() as usize + 1, Duration::ZERO);
        by_second[now.as_secs() as usize] += took;
        pacer.stepped(now, monitor.work(), took);
        monitor.set_survey(pacer.survey_settings(attributes));
        monitor.set_sampling_stride(pacer.every(attributes));
        let Next::Step { after } = next else { panic!("the target has not ended") };
        now += after.max(took);
        world.now.set(now);
        next = monitor.step(now).unwrap();
    }
    (std::mem::take(monitor.sink_mut()), by_second)
}
