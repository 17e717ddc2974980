//! A part of a survey takes a bounded CPU time, whatever reading and clearing cost.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySettings, SurveySnapshot,
};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Budget, Layout, Mapping, Monitor, Next, Observation,
    PaceOptions, Pacer, Sample, Sink, Snapshot, Start, StepWork, SurveyInterval, TargetId, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// The CPU time that was taken, in nanoseconds.
type Clock = Arc<AtomicU64>;

const BLOCKS: u64 = 2000;

/// A process with memory that is accessed all the time.
struct Memory {
    clock: Clock,
    /// What a block costs to read, and to clear, in nanoseconds.
    read: u64,
    clear: u64,
    /// Blocks from this one on cost twenty times as much.
    dear_from: u64,
}

fn memory() -> AddrRange {
    AddrRange::new(1 << 30, (1 << 30) + BLOCKS * BLOCK_SIZE).unwrap()
}

impl Memory {
    fn spend(&self, start: u64, price: u64) {
        let is_dear = (start - memory().start()) / BLOCK_SIZE >= self.dear_from;
        self.clock.fetch_add(if is_dear { price * 20 } else { price }, Ordering::Relaxed);
    }
}

impl AddressSpace for Memory {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let mappings = [Mapping::anonymous(memory())].into();
        Ok(vec![TargetSpace { id: TargetId::process(1, Duration::ZERO), layout: Layout::Process, mappings }])
    }
}

impl AccessProbe for Memory {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&mut self, _: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        answers.fill(Observation::Accessed);
        Ok(())
    }

    fn clears(&self) -> u64 {
        0
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

impl Survey for Memory {
    fn read(&mut self, _: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let from = part.from.max(memory().start());
        let left = ((memory().end() - from) / BLOCK_SIZE) as usize;
        for start in (from..memory().end()).step_by(BLOCK_SIZE as usize).take(part.most) {
            self.spend(start, self.read);
            blocks.push(BlockPages { start, present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() });
        }
        let end = from + left.min(part.most) as u64 * BLOCK_SIZE;
        Ok(Rest { from: (end < memory().end()).then_some(end), blocks: left.saturating_sub(part.most) })
    }

    fn clear(&mut self, _: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        blocks.iter().for_each(|block| self.spend(block.start, self.clear));
        Ok(blocks.iter().map(|block| block.pages.count() as u64).sum())
    }
}

#[derive(Default)]
struct Kept(Vec<SurveySnapshot>);

impl Sink for Kept {
    fn aggregated(&mut self, _: &Snapshot) -> Result<(), BoxError> {
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.0.push(survey.clone());
        Ok(())
    }
}

/// What a run of three surveys has taken.
struct Taken {
    /// The dearest step.
    dearest: Duration,
    /// The largest number of steps of a survey.
    steps: usize,
}

/// Surveys memory three times. `settings` gives the settings after each step, by what it was and what it took.
fn survey(
    (read, clear, dear_from): (u64, u64, u64),
    is_measured: bool,
    mut settings: impl FnMut(Duration, StepWork, Duration) -> SurveySettings,
) -> Taken {
    let clock = Clock::default();
    let of_memory = || Memory { clock: Arc::clone(&clock), read, clear, dear_from };
    let attributes = Attributes::default();
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(1), of_memory(), of_memory(), Kept::default());
    monitor.without_samples();
    if is_measured {
        let clock = Arc::clone(&clock);
        monitor.set_cpu_clock(move || Duration::from_nanos(clock.load(Ordering::Relaxed)));
    }
    let mut now = Duration::ZERO;
    monitor.set_survey(settings(now, StepWork::default(), Duration::ZERO));
    let (mut taken, mut steps) = (Taken { dearest: Duration::ZERO, steps: 0 }, 0);
    let mut next = monitor.start().unwrap();
    while monitor.sink().0.len() < 3 {
        let took = Duration::from_nanos(clock.swap(0, Ordering::Relaxed));
        taken.dearest = taken.dearest.max(took);
        let work = monitor.work();
        steps = if work.survey.is_some_and(|part| part.is_last_part) { 0 } else { steps + 1 };
        taken.steps = taken.steps.max(steps);
        monitor.set_survey(settings(now + took, work, took));
        let Next::Step { after } = next else { panic!("the target has not ended") };
        now += after.max(took);
        assert!(now < Duration::from_secs(3600), "the surveys do not end");
        next = monitor.step(now).unwrap();
    }
    for found in &monitor.sink().0 {
        assert_eq!(found.targets[0].total().figures.present, BLOCKS * BLOCK_SIZE, "all memory was read");
    }
    taken
}

#[test]
fn a_part_ends_after_its_time_although_its_blocks_cost_more_than_expected() {
    let time = Duration::from_millis(10);
    // So many blocks would take 40 ms to read, and as much to clear.
    let settings = SurveySettings { part_blocks: 1000, part_time: time, target_share: 1.0, ..Default::default() };
    let prices = (40_000, 40_000, BLOCKS);
    let [measured, other] = [true, false].map(|is_measured| survey(prices, is_measured, |_, _, _| settings));
    // The least piece takes 2.6 ms to read, and as much to clear.
    assert!(measured.dearest < time + Duration::from_millis(6), "{:?}", measured.dearest);
    assert!(measured.steps >= 7, "{}", measured.steps);
    assert!(other.dearest > time * 2, "{:?}: without a clock, the number of blocks alone ends a part", other.dearest);
}

#[test]
fn the_first_survey_has_short_parts_where_its_price_is_not_known() {
    for (prices, why) in [((200_000, 0, BLOCKS), "all is dear"), ((4000, 2000, 1000), "it becomes dear within a part")]
    {
        let budget = Budget { cpu: 0.01, targets: 1.0, ..Budget::default() };
        let mut pacer = Pacer::new(PaceOptions {
            budget,
            start: Start::default(),
            bounds_samples: true,
            has_budget: true,
            samples: false,
            survey: Some(SurveyInterval::Auto),
            goal: None,
            longest_aggregation: None,
        });
        let taken = survey(prices, true, |now, work, took| {
            pacer.stepped(now, work, took);
            pacer.survey_settings(Attributes::default())
        });
        // A part is to take 20 ms, and ends after 25. The least piece takes 13 ms if all is dear. A sixteenth of a part
        // takes twenty times as long as expected where it becomes dear.
        assert!(taken.dearest <= Duration::from_millis(25 + 32), "{why}: {:?}", taken.dearest);
    }
}
