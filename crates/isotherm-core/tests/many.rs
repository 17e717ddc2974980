//! Memory that many processes share: each page frame counts once, and those that have not run cost next to nothing.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_PAGES, BLOCK_SIZE, BlockFrames, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySettings,
    WINDOWS,
};
use isotherm_core::{
    AccessProbe, Activity, AddrRange, AddressSpace, AtRest, Attributes, BoxError, Layout, Mapping, Monitor, Next,
    PAGE_SIZE, PageLook, PageProbe, PanelSnapshot, Sample, Sink, Snapshot, TargetId, TargetSpace,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SHARED: u64 = 1 << 40;
const PRIVATE: u64 = 1 << 41;

/// Processes that map the same memory at the same address. Each accesses its part of it all the time, or has not run.
#[derive(Clone)]
struct Crowd {
    shared: u64,
    private: u64,
    /// For each process, the shared pages that it accesses. It accesses none of its private ones.
    used: Rc<Vec<Option<HashSet<u64>>>>,
    /// The accessed bits that are clear, by process and address. They are set again at the next step.
    clear: Rc<RefCell<HashSet<(usize, u64)>>>,
    now: Rc<Cell<Duration>>,
    reads: Rc<Cell<usize>>,
    /// When the processes were started, in seconds.
    began: u64,
    mappings: Arc<[Mapping]>,
}

impl Crowd {
    fn new(shared: u64, private: u64, used: Vec<Option<HashSet<u64>>>) -> Self {
        let range = |start, pages| AddrRange::new(start, start + pages * PAGE_SIZE);
        let ranges = range(SHARED, shared).into_iter().chain(range(PRIVATE, private));
        Self {
            shared,
            private,
            used: Rc::new(used),
            clear: Rc::default(),
            now: Rc::default(),
            reads: Rc::default(),
            began: 0,
            mappings: ranges.map(Mapping::anonymous).collect(),
        }
    }

    fn index(id: TargetId) -> usize {
        id.pid().unwrap() as usize - 1
    }

    /// Whether the page was accessed since its bit was cleared: it is accessed all the time or not at all.
    fn accessed(&self, process: usize, addr: u64) -> bool {
        let is_used = self.used[process].as_ref().is_some_and(|used| used.contains(&addr));
        is_used || !self.clear.borrow().contains(&(process, addr))
    }

    fn frame(process: usize, addr: u64) -> u64 {
        addr / PAGE_SIZE + if addr >= PRIVATE { process as u64 * (1 << 30) } else { 0 }
    }

    fn block(&self, process: usize, start: u64) -> BlockPages {
        let end = if start >= PRIVATE { PRIVATE + self.private * PAGE_SIZE } else { SHARED + self.shared * PAGE_SIZE };
        let present = PageBits::within(start, AddrRange::new(start, end).unwrap());
        let accessed = present.iter().filter(|&page| self.accessed(process, start + page as u64 * PAGE_SIZE));
        let accessed = accessed.fold(PageBits::NONE, |all, page| all | PageBits::of(page..page + 1));
        let shared = if start >= PRIVATE { PageBits::NONE } else { accessed };
        BlockPages { start, present, accessed, shared, ..BlockPages::default() }
    }

    /// The pages that one process or another accesses.
    fn truth(&self) -> f64 {
        let all: HashSet<u64> = self.used.iter().flatten().flatten().copied().collect();
        (all.len() as u64 * PAGE_SIZE) as f64
    }
}

impl AddressSpace for Crowd {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let space = |pid: usize| TargetSpace {
            id: TargetId::process(pid as u32 + 1, Duration::from_secs(self.began)),
            layout: Layout::Process,
            mappings: Arc::clone(&self.mappings),
        };
        Ok((0..self.used.len()).map(space).collect())
    }

    fn resident(&mut self, _: TargetId) -> Option<u64> {
        Some((self.shared + self.private) * PAGE_SIZE)
    }
}

impl AccessProbe for Crowd {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clears(&self) -> u64 {
        0
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

impl Activity for Crowd {
    fn look(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn rest(&self, target: TargetId) -> Option<AtRest> {
        self.used[Self::index(target)].is_none().then_some(AtRest(7))
    }
}

impl PageProbe for Crowd {
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        self.reads.set(self.reads.get() + pages.len());
        looks.extend(pages.iter().map(|page| {
            let process = Self::index(page.target);
            PageLook {
                present: true,
                accessed: self.accessed(process, page.addr),
                huge: false,
                frame: Some(Self::frame(process, page.addr)),
            }
        }));
        Ok(())
    }

    /// As the kernel: a page that several processes map is not cleared alone.
    fn clear_pages(&mut self, pages: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError> {
        for page in pages.iter() {
            if page.addr >= PRIVATE {
                self.clear.borrow_mut().insert((Self::index(page.target), page.addr));
            }
            cleared.push(page.addr >= PRIVATE);
        }
        Ok(())
    }
}

impl Survey for Crowd {
    fn read(&mut self, target: &TargetSpace, _: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let starts = |start, pages: u64| (0..pages.div_ceil(BLOCK_PAGES as u64)).map(move |n| start + n * BLOCK_SIZE);
        let starts = starts(SHARED, self.shared).chain(starts(PRIVATE, self.private));
        blocks.extend(starts.map(|start| self.block(Self::index(target.id), start)));
        Ok(Rest::default())
    }

    fn frames(&mut self, target: TargetId, found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        for start in (0..self.shared.div_ceil(BLOCK_PAGES as u64)).map(|nth| SHARED + nth * BLOCK_SIZE) {
            let frames = std::array::from_fn(|page| Self::frame(Self::index(target), start + page as u64 * PAGE_SIZE));
            let pages = self.block(Self::index(target), start).present;
            found(BlockFrames { start, pages, swapped: PageBits::NONE, frames: &frames });
        }
        Ok(true)
    }

    /// Shared pages are cleared as a whole.
    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let process = Self::index(target);
        assert!(self.used[process].is_some(), "a process that has not run needs no clearing");
        let mut by_start: HashMap<u64, PageBits> = blocks.iter().map(|block| (block.start, block.pages)).collect();
        for start in (0..self.shared.div_ceil(BLOCK_PAGES as u64)).map(|nth| SHARED + nth * BLOCK_SIZE) {
            by_start.insert(start, self.block(process, start).accessed);
        }
        blocks.clear();
        blocks.extend(by_start.into_iter().map(|(start, pages)| ClearPages { start, pages, ..ClearPages::default() }));
        blocks.sort_by_key(|block| block.start);
        let mut clear = self.clear.borrow_mut();
        let pages =
            blocks.iter().flat_map(|block| block.pages.iter().map(|page| block.start + page as u64 * PAGE_SIZE));
        pages.for_each(|addr| _ = clear.insert((process, addr)));
        Ok(blocks.iter().map(|block| block.pages.count() as u64).sum())
    }
}

#[derive(Default)]
struct Panels(Vec<PanelSnapshot>);

impl Sink for Panels {
    fn aggregated(&mut self, _: &Snapshot) -> Result<(), BoxError> {
        Ok(())
    }

    fn panel_read(&mut self, panel: &PanelSnapshot) -> Result<(), BoxError> {
        self.0.push(panel.clone());
        Ok(())
    }
}

/// Watches the crowd for some time with a survey each 3 s. Returns the readings of the panel.
fn watch(crowd: &Crowd, seed: u64, length: Duration) -> Vec<PanelSnapshot> {
    let rng = Pcg64Mcg::seed_from_u64(seed);
    let mut monitor = Monitor::new(Attributes::default(), rng, crowd.clone(), crowd.clone(), Panels::default());
    monitor.without_samples();
    monitor.set_survey(SurveySettings { interval: Duration::from_secs(3), ..SurveySettings::default() });
    let mut next = monitor.start().unwrap();
    let mut now = Duration::ZERO;
    while now < length {
        let Next::Step { after } = next else { panic!("no process has ended") };
        now += after;
        crowd.now.set(now);
        next = monitor.step(now).unwrap();
    }
    std::mem::take(&mut monitor.sink_mut().0)
}

/// A random part of the pages of the shared memory.
fn part(pages: u64, share: f64, rng: &mut impl Rng) -> HashSet<u64> {
    (0..pages).filter(|_| rng.random_bool(share)).map(|page| SHARED + page * PAGE_SIZE).collect()
}

#[test]
fn bounds_hold_what_processes_that_share_memory_access_together_in_19_of_20_runs() {
    let within_5s = WINDOWS.iter().position(|&window| window == Duration::from_secs(5)).unwrap();
    let mut narrow = 0;
    let held = (0..20).filter(|&seed| {
        let mut rng = Pcg64Mcg::seed_from_u64(1000 + seed);
        // Each of three processes uses a third of the memory, at random, and others less.
        let pages = 3000;
        let used = [0.3, 0.3, 0.3, 0.01, 0.0].map(|share| Some(part(pages, share, &mut rng)));
        let crowd = Crowd::new(pages, 100, used.into());
        let panels = watch(&crowd, seed, Duration::from_secs(8));
        let truth = crowd.truth();
        let of_total =
            panels.iter().filter(|panel| panel.time > Duration::from_secs(2)).map(|panel| panel.total[within_5s]);
        narrow += of_total.clone().filter(|of| of.high - of.low < of.value / 4).count();
        of_total.clone().all(|of| of.low as f64 <= truth && truth <= of.high as f64)
    });
    let held = held.count();
    assert!(held >= 19, "{held} of 20");
    // From the fifth second on.
    assert!(narrow >= 60, "{narrow} of the readings have bounds that say something");
}

#[test]
fn processes_that_have_not_run_are_idle_and_are_not_read() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let pages = 4096;
    let mut used = vec![None; 299];
    used.push(Some(part(pages, 0.25, &mut rng)));
    let crowd = Crowd::new(pages, 20, used);
    let panels = watch(&crowd, 1, Duration::from_secs(4));
    let (last, truth) = (panels.last().unwrap(), crowd.truth());
    let of = last.total[0];
    assert!(of.low as f64 <= truth && truth <= of.high as f64, "{of:?} {truth}");
    assert!((2..=65).contains(&last.targets.len()), "{} targets are listed", last.targets.len());
    assert!(crowd.reads.get() <= panels.len() * 2 * (pages as usize + 20) + 8192, "{} pages read", crowd.reads.get());
}

#[test]
fn processes_of_one_layout_that_share_nothing_are_drawn_apart() {
    // Each of 150 processes uses the same hundredth of its addresses, of memory of its own.
    let (processes, pages, used) = (150, 2000, 20);
    let of_each: HashSet<u64> = (700..700 + used).map(|page| PRIVATE + page * PAGE_SIZE).collect();
    let truth = (processes * used * PAGE_SIZE) as f64;
    let held = (0..8).filter(|&seed| {
        let crowd = Crowd::new(0, pages, vec![Some(of_each.clone()); processes as usize]);
        let crowd = Crowd { began: seed, ..crowd };
        let last = watch(&crowd, seed, Duration::from_millis(1300)).pop().unwrap().total[0];
        let [low, value, high] = [last.low, last.value, last.high].map(|bytes| bytes as f64 / truth);
        assert!((0.5..2.0).contains(&value) && high - low < 1.0, "{low:.2} {value:.2} {high:.2}");
        low <= 1.0 && high >= 1.0
    });
    let held = held.count();
    assert!(held >= 7, "{held} of 8");
}
