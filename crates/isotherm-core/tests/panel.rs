//! How much memory is in use, by the panel: simulated memory from 64 MiB to 5 TiB with a known truth and known prices.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySnapshot, WINDOWS,
};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Budget, FileId, Layout, MappedFile, Mapping, Monitor,
    Next, Observation, PAGE_SIZE, PaceOptions, Pacer, PageLook, PageProbe, PanelSnapshot, Permissions, Sample, Sink,
    Snapshot, Start, SurveyInterval, TargetId, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

const GIB: u64 = 1 << 30;

/// Which part of the memory is accessed how often.
#[derive(Clone, Copy)]
struct Part {
    share: f64,
    every: Duration,
}

/// The memory of a process.
#[derive(Clone)]
struct World {
    pid: u32,
    /// Mapped memory that is not present.
    reserved: Option<AddrRange>,
    /// The time in which its pages appear, in the order of addresses. All are there from the start if it is zero.
    fills: Duration,
    /// When all of its pages go.
    ends: Option<Duration>,
    /// Whether the panel was read since then.
    read_after: Rc<Cell<bool>>,
    /// Whether the process was started by the run.
    begins: bool,
    /// What the first part of the first survey takes beyond reading, in nanoseconds.
    opens: u64,
    /// What it takes to clear a single page, in nanoseconds.
    clear_price: u64,
    /// A survey reads at least so many blocks at once.
    at_once: usize,
    ranges: Arc<[AddrRange]>,
    parts: Arc<[Part]>,
    /// Whether the parts are spread over all pages, or lie one after the other.
    scattered: bool,
    huge: bool,
    /// Of so many pages, one is present.
    sparse: u64,
    /// At how many other addresses the memory is mapped. It is used by the last of them, and no page of it can be
    /// cleared alone.
    again: u64,
    now: Rc<Cell<Duration>>,
    /// The CPU time that was taken, in nanoseconds.
    cpu: Arc<AtomicU64>,
    /// When pages were cleared, by block. Others were accessed before the run.
    cleared: Rc<RefCell<HashMap<u64, HashMap<usize, Duration>>>>,
    /// Accessed pages that samples and the panel have cleared since the last survey.
    noted: Rc<RefCell<HashMap<u64, PageBits>>>,
    clears: Rc<Cell<u64>>,
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
    fn new(pid: u32, ranges: Vec<AddrRange>, parts: &[Part], scattered: bool) -> Self {
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

    fn dense(pid: u32, size: u64, parts: &[Part], scattered: bool) -> Self {
        Self::new(pid, vec![AddrRange::new(1 << 36, (1 << 36) + size).unwrap()], parts, scattered)
    }

    fn pages(&self) -> u64 {
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
    fn filled_part(&self) -> f64 {
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
    fn truth(&self, within: Duration) -> f64 {
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
struct Kept {
    panels: Vec<PanelSnapshot>,
    surveys: Vec<SurveySnapshot>,
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
fn watch(world: &World, length: Duration, samples: bool) -> (Kept, Vec<Duration>) {
    watch_with(world, length, samples, SurveyInterval::Auto)
}

fn watch_with(world: &World, length: Duration, samples: bool, survey: SurveyInterval) -> (Kept, Vec<Duration>) {
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

/// How much memory the last survey does not know.
fn unknown(found: &Kept) -> u64 {
    found.surveys.last().unwrap().targets[0].total().figures.unknown
}

/// Memory of which this share is accessed every 20 ms.
fn in_use(share: f64) -> [Part; 1] {
    [Part { share, every: Duration::from_millis(20) }]
}

/// The last reading of the panel, and what it says of a window relative to the truth.
fn last(world: &World, found: &Kept, window: usize) -> [f64; 3] {
    let panel = found.panels.last().unwrap();
    let truth = world.truth(WINDOWS[window].clamp(panel.interval, panel.observed));
    let of = panel.total[window];
    [of.low, of.value, of.high].map(|bytes| bytes as f64 / truth)
}

/// What is known of a window relative to the truth: by the last survey if that knows all memory, or else by the panel.
fn known(world: &World, found: &Kept, window: usize) -> [f64; 3] {
    let total = found.surveys.last().map(|survey| survey.targets[0].total());
    match total.filter(|total| total.figures.unknown * 100 <= total.figures.present) {
        Some(total) => [total.within[window] as f64 / world.truth(WINDOWS[window]); 3],
        None => last(world, found, window),
    }
}

#[test]
fn while_surveys_do_not_know_much_of_the_memory_the_panel_tells_how_much_is_in_use() {
    let world = World::dense(1, 20 * GIB, &in_use(0.1), false);
    let (found, _) = watch(&world, Duration::from_millis(1300), false);
    let total = found.surveys.last().unwrap().targets[0].total();
    assert!(total.figures.unknown > 2 * GIB, "{} MiB unknown", total.figures.unknown >> 20);
    let [low, value, high] = last(&world, &found, 2);
    assert!((0.9..1.1).contains(&value) && low <= 1.0 && high >= 1.0, "{low} {value} {high}");
}

#[test]
fn memory_in_use_is_known_within_a_tenth_after_two_seconds_whatever_the_size() {
    for (size, share, scattered) in [
        (GIB / 16, 0.1, false),
        (GIB / 16, 0.01, true),
        (GIB, 0.5, true),
        (500 * GIB, 0.1, true),
        (5 << 40, 0.01, false),
    ] {
        let world = World::dense(1, size, &in_use(share), scattered);
        let (found, cpu) = watch(&world, Duration::from_millis(2100), false);
        let [low, value, high] = known(&world, &found, 0);
        let what = format!("{} MiB, {share}: {low:.3} {value:.3} {high:.3}", size >> 20);
        assert!((0.9..1.1).contains(&value) && low > 0.8 && high < 1.25, "{what}");
        assert!(cpu.iter().sum::<Duration>() < Duration::from_millis(300), "{what}: {cpu:?}");
    }
}

#[test]
fn where_it_is_dear_to_clear_a_page_the_start_keeps_to_its_credit_and_the_panel_is_right() {
    for (share, off) in [(1.0, 0.02), (0.5, 0.1), (0.1, 0.15)] {
        let world = World { clear_price: 25_000, ..World::dense(1, GIB / 5, &in_use(share), true) };
        let (found, cpu) = watch(&world, Duration::from_millis(2900), false);
        let value = found.panels.last().unwrap().total[0].value as f64 / world.truth(WINDOWS[0]);
        assert!((value - 1.0).abs() < off, "{share}: {value}");
        assert!(cpu.iter().sum::<Duration>() < Duration::from_millis(300), "{share}: {cpu:?}");
    }
}

#[test]
fn the_panel_is_small_where_surveys_know_all_memory_and_grows_where_they_do_not() {
    let reads = |size: u64, seconds: u64| {
        let world = World::dense(1, size, &in_use(0.01), false);
        let (found, _) = watch(&world, Duration::from_secs(seconds), false);
        found.panels.last().unwrap().reads
    };
    // An eighth of the pages at most, where a hundredth of the memory in use asks for 40,000; later 1,000.
    let (early, late, of_much) = (reads(GIB / 4, 1), reads(GIB, 12), reads(500 * GIB, 12));
    assert!(early <= 8300, "{early} pages of 65,536");
    assert!(late <= 1100, "{late} pages of 1 GiB, which surveys know");
    assert!(of_much > 10_000, "{of_much} pages of 500 GiB");
}

#[test]
fn memory_of_which_most_pages_are_absent_is_known_as_exactly_as_other_memory() {
    // The first survey does not end within this time.
    let width = |sparse: u64| {
        let world = World { sparse, ..World::dense(1, sparse * 64 * GIB, &in_use(0.01), false) };
        let (found, _) = watch(&world, Duration::from_millis(2100), false);
        let [low, value, high] = last(&world, &found, 0);
        assert!((0.85..1.15).contains(&value) && low <= 1.0 && high >= 1.0, "{sparse}: {low:.3} {value:.3} {high:.3}");
        high - low
    };
    let (dense, sparse) = (width(1), width(8));
    assert!(sparse < dense * 1.5, "{sparse:.3} wide, where dense memory has {dense:.3}");
}

#[test]
fn memory_that_goes_after_its_size_was_read_does_not_count_twice() {
    let ends = Some(Duration::from_millis(2600));
    let world = World { ends, ..World::dense(1, GIB / 4, &in_use(0.5), true) };
    let (found, _) = watch(&world, Duration::from_millis(3500), false);
    let last = found.panels.last().unwrap();
    assert!(last.time > Duration::from_millis(2600));
    assert!(last.total.iter().all(|of| of.high <= GIB / 4), "{:?}", last.total);
}

#[test]
fn surveys_know_two_and_a_half_gib_within_ten_seconds() {
    // A process with shared memory is read by 1 GiB at once.
    for (scattered, at_once, length) in [(false, 1, 10), (true, 1, 10), (false, 512, 3)] {
        let world = World { at_once, ..World::dense(1, GIB * 5 / 2, &in_use(0.1), scattered) };
        let (found, cpu) = watch(&world, Duration::from_secs(length), false);
        // Memory in use that lies scattered has to be cleared again and again, and that takes more than is allowed.
        let least = if scattered { GIB / 4 } else { 0 };
        let unknown = unknown(&found);
        assert!(unknown <= least + GIB / 40, "{} MiB unknown, scattered: {scattered}, {at_once}", unknown >> 20);
        let start: Duration = cpu[..3].iter().sum();
        assert!(start < Duration::from_millis(320), "{start:?} at the start");
    }
}

#[test]
fn bounds_hold_the_truth_in_19_of_20_runs() {
    for (share, huge) in [(0.02, false), (0.3, false), (0.2, true)] {
        let held = (0..60).filter(|&pid| {
            let size = if huge { GIB / 4 } else { GIB / 16 };
            let world = World { huge, ..World::dense(pid, size, &in_use(share), true) };
            // One survey finds the pages.
            let rare = SurveyInterval::Fixed(Duration::from_secs(60));
            let (found, _) = watch_with(&world, Duration::from_millis(1300), false, rare);
            let [low, _, high] = last(&world, &found, 0);
            low <= 1.0 && high >= 1.0
        });
        let held = held.count();
        assert!(held >= 55, "{held} of 60, {share} {huge}");
    }
}

#[test]
fn windows_hold_what_was_accessed_within_them() {
    let part = |share, seconds| Part { share, every: Duration::from_secs_f64(seconds) };
    let parts = [part(0.05, 0.02), part(0.05, 1.7), part(0.1, 4.0), part(0.2, 15.0), part(0.2, 100.0)];
    for samples in [false, true] {
        let world = World::dense(7, GIB / 8, &parts, true);
        let (found, _) = watch(&world, Duration::from_millis(13_100), samples);
        for (window, &length) in WINDOWS.iter().enumerate().take(4) {
            let [low, value, high] = last(&world, &found, window);
            // Samples and surveys clear most of this memory, too.
            let what = format!("{:?}, samples {samples}: {low:.3} {value:.3} {high:.3}", length);
            assert!((0.9..1.1).contains(&value) && low <= 1.02 && high >= 0.98, "{what}");
        }
    }
}

#[test]
fn memory_that_is_spread_over_much_address_space_is_known() {
    // 900 areas of 512 KiB, each in a mapping of its own, and one of 8 TiB that is hardly present.
    let areas = (0..900).map(|nth| AddrRange::new((nth + 1) << 30, ((nth + 1) << 30) + (512 << 10)).unwrap());
    let world = World::new(3, areas.collect(), &in_use(0.2), true);
    let reserved = AddrRange::new(1 << 44, (1 << 44) + (8 << 40)).unwrap();
    let world = World { reserved: Some(reserved), ..world };
    let (found, _) = watch(&world, Duration::from_millis(2100), false);
    let [low, value, high] = last(&world, &found, 0);
    assert!((0.9..1.1).contains(&value) && low <= 1.0 && high >= 1.0, "{low} {value} {high}");
}

#[test]
fn memory_that_a_process_maps_three_times_counts_once_and_is_used_if_it_is_at_one_address() {
    for scattered in [false, true] {
        let world = World { again: 2, ..World::dense(1, 256 << 20, &in_use(0.25), scattered) };
        let (found, _) = watch(&world, Duration::from_secs(20), false);
        let truth = world.truth(WINDOWS[1]);
        let mut told = 0;
        for panel in &found.panels {
            for of in panel.total {
                let [low, high] = [of.low, of.high].map(|bytes| bytes as f64);
                let all = (world.pages() * PAGE_SIZE) as f64;
                assert!(low <= truth && truth <= high && high <= all, "{scattered} {:?}: {of:?}", panel.time);
                if high < truth * 1.25 {
                    told += 1;
                    assert!((of.value as f64 / truth - 1.0).abs() < 0.1, "{scattered} {:?}: {of:?}", panel.time);
                }
            }
        }
        assert!(told > 10, "{scattered}: {told}");
    }
}

#[test]
fn memory_that_is_added_is_within_the_bounds_at_each_reading() {
    // A quarter of it appears between two surveys, and is accessed all the time.
    for (size, fills) in [(GIB / 4, 6.0), (10 * GIB, 10.0)] {
        let (fills, rare) = (Duration::from_secs_f64(fills), SurveyInterval::Fixed(Duration::from_secs(4)));
        let world = World { fills, ..World::dense(4, size, &in_use(1.0), false) };
        let (found, _) = watch_with(&world, fills + Duration::from_secs(2), false, rare);
        let readings = found.panels.iter().flat_map(|panel| {
            let there = (panel.time.as_secs_f64() / fills.as_secs_f64()).min(1.0) * size as f64;
            [0, 2]
                .map(|window| panel.total[window])
                .map(|of| [of.low, of.value, of.high].map(|bytes| bytes as f64 / there))
        });
        let readings: Vec<[f64; 3]> = readings.collect();
        assert!(readings.iter().all(|[low, _, high]| *low <= 1.001 && *high >= 0.999), "{readings:.2?}");
        let good = readings.iter().filter(|[low, value, _]| (0.9..1.1).contains(value) && *low > 0.8).count();
        assert!(good * 2 > readings.len(), "{readings:.2?}");
    }
}

#[test]
fn a_program_that_begins_with_the_run_is_known_from_its_beginning() {
    for (size, fills) in [(GIB / 4, 0.7), (4 * GIB, 2.0)] {
        let fills = Duration::from_secs_f64(fills);
        let world = World { fills, begins: true, ..World::dense(9, size, &in_use(0.1), true) };
        let (found, _) = watch(&world, fills + Duration::from_secs(4), false);
        assert!(found.panels.len() > 3, "{} readings", found.panels.len());
        for panel in &found.panels {
            world.now.set(panel.time);
            assert!(panel.observed >= WINDOWS[3], "{panel:?}");
            let (since, of) = (panel.time.saturating_sub(fills).as_secs_f64(), panel.total);
            // All memory was filled in the last five seconds. Of these, a second is known when it is over, and to the
            // aimed precision when the panel has grown.
            let there = world.filled_part() * size as f64;
            let known = [(2, there, panel.time <= WINDOWS[2]), (0, 0.1 * size as f64, since >= 1.9)];
            for (window, truth, _) in known.into_iter().filter(|(.., is_known)| *is_known) {
                let [low, value, high] = [of[window].low, of[window].value, of[window].high].map(|b| b as f64 / truth);
                let what = format!("{size} at {:?}, {:?}: {low:.3} {value:.3} {high:.3}", panel.time, WINDOWS[window]);
                assert!((0.85..1.15).contains(&value) && low <= 1.02 && high >= 0.98, "{what}");
                assert!(low > 0.8 && high < 1.25, "{what}");
            }
        }
    }
}

#[test]
fn surveys_know_a_program_that_fills_memory_although_opening_it_took_long() {
    let (fills, opens) = (Duration::from_millis(500), 40_000_000);
    let world = World { fills, begins: true, opens, at_once: 512, ..World::dense(1, GIB, &in_use(0.1), false) };
    let (found, _) = watch(&world, Duration::from_secs(5), true);
    assert!(unknown(&found) <= GIB / 100, "{} MiB unknown", unknown(&found) >> 20);
}
