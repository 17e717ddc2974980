//! Targets that join a run with surveys.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::survey::{
    BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart, SurveySettings, SurveySnapshot,
};
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Layout, Mapping, Monitor, Next, Observation, PAGE_SIZE,
    Sample, Sink, Snapshot, TargetId, TargetSpace,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Has one target when it is read for the first time, and both from then on.
struct Space {
    targets: [TargetSpace; 2],
    reads: usize,
}

impl AddressSpace for Space {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        self.reads += 1;
        Ok(self.targets.iter().take(self.reads).cloned().collect())
    }
}

fn target(pid: u32) -> TargetSpace {
    let range = AddrRange::new(u64::from(pid) << 30, (u64::from(pid) << 30) + (64 << 20)).unwrap();
    TargetSpace {
        id: TargetId::process(pid, Duration::ZERO),
        layout: Layout::Process,
        mappings: [Mapping::anonymous(range)].into(),
    }
}

/// Each target has eight pages at the start of its first mapping, all of which it has accessed.
struct EightPages;

impl AccessProbe for EightPages {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, _: &[Sample]) -> Result<(), BoxError> {
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

impl Survey for EightPages {
    fn read(&mut self, target: &TargetSpace, _: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let (start, pages) = (target.mappings[0].range.start(), PageBits::of(0..8));
        blocks.push(BlockPages { start, present: pages, accessed: pages, ..BlockPages::default() });
        Ok(Rest::default())
    }

    fn clear(&mut self, _: TargetId, _: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

#[derive(Default)]
struct Kept {
    surveys: usize,
    snapshots: Vec<Snapshot>,
}

impl Sink for Kept {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshots.push(snapshot.clone());
        Ok(())
    }

    fn surveyed(&mut self, _: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys += 1;
        Ok(())
    }
}

#[test]
fn a_target_that_joins_is_known_before_the_next_survey() {
    let millis = Duration::from_millis;
    let attributes = Attributes::new(millis(5), millis(50), millis(200), 10, 100).unwrap();
    let space = Space { targets: [target(1), target(2)], reads: 0 };
    let joins = space.targets[1].id;
    let rng = Pcg64Mcg::seed_from_u64(1);
    let mut monitor = Monitor::new(attributes, rng, space, EightPages, Kept::default());
    let minute = Duration::from_secs(60);
    monitor.set_survey(SurveySettings { interval: minute, early_gap: minute, ..SurveySettings::default() });

    let mut now = Duration::ZERO;
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && now < millis(400)
    {
        now += after;
        next = monitor.step(now).unwrap();
    }
    assert_eq!(monitor.sink().surveys, 1);
    let seen: BTreeMap<_, _> = monitor.sink().snapshots.last().unwrap().targets.iter().map(|of| (of.id, of)).collect();
    let pages: u64 = seen[&joins].regions.iter().map(|region| region.pages.unwrap().present).sum();
    assert_eq!((seen.len(), pages), (2, 8 * PAGE_SIZE));
    // It joined at the first reading of the mappings after 200 ms.
    let first = monitor.sink().snapshots.iter().find(|snapshot| snapshot.targets.len() == 2).unwrap();
    assert!(first.time <= millis(250), "{:?}", first.time);
}
