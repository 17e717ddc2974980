//! The replay of a recording: its snapshots and surveys in the order of time, in looks.

use std::collections::HashSet;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_core::survey::BLOCK_SIZE;
use isotherm_record::{Event, Needs, SnapshotRecord, SurveyRecord};

use super::memory::Memory;
use crate::ReportError;
use crate::source::{Selection, Source};

/// A look takes no less than this.
const LEAST_LOOK: Duration = Duration::from_secs(1);

/// The most looks in a recording. In a longer one, a look takes longer.
const MOST_LOOKS: u32 = 1000;

/// The most units that are placed. With more blocks of 2 MiB, a unit is a larger one, so that memory and time have a
/// bound: 512 GiB in full blocks have that many.
const MOST_UNITS: u64 = 1 << 18;

/// What is known before the replay.
pub(super) struct Plan {
    /// The selected time that the recording covers.
    pub(super) time: (Duration, Duration),
    /// The recorded part of it.
    pub(super) recorded: Duration,
    pub(super) look: Duration,
    /// The targets with surveys.
    pub(super) surveyed: HashSet<TargetId>,
    /// The number of targets without a survey. What memory they share is not known.
    pub(super) unsurveyed: usize,
    /// The most bytes that targets have in common, counted once too often. `None` if a survey does not tell.
    pub(super) shared: Option<u64>,
    pub(super) targets: usize,
}

impl Plan {
    /// The plan of a selection with recorded data.
    pub(super) fn new(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let mut time: Option<(Duration, Duration)> = None;
        let mut see = |from: Duration, to: Duration| {
            let from = selection.time.as_ref().map_or(from, |range| from.max(range.start));
            let (first, last) = time.unwrap_or((from, to));
            time = Some((first.min(from), last.max(to)));
        };
        let (mut surveyed, mut all) = (HashSet::new(), HashSet::new());
        let mut shared = Some(0);
        for event in
            source.events(Needs { snapshots: true, surveys: true, ..Needs::NOTHING }).map_err(ReportError::Source)?
        {
            match event.map_err(ReportError::Source)? {
                Event::Survey(SurveyRecord { survey, .. }) => {
                    let found = || survey.targets.iter().filter(|target| selection.holds_target(target.id));
                    surveyed.extend(found().map(|target| target.id));
                    if selection.holds_time(survey.time) && found().next().is_some() {
                        see(survey.time.saturating_sub(survey.interval), survey.time);
                        let sum: u64 = found().map(|target| target.total().figures.present).sum();
                        let once = survey
                            .total
                            .filter(|_| selection.holds_all(&survey))
                            .map(|total| total.sums.figures.present);
                        let several = once.map(|once| sum.saturating_sub(once)).or((found().count() < 2).then_some(0));
                        shared = shared.zip(several).map(|(most, now)| most.max(now));
                    }
                }
                Event::Snapshot(SnapshotRecord { snapshot, .. }) => {
                    for target in snapshot.targets.iter().filter(|target| selection.holds_target(target.id)) {
                        if selection.holds_time(snapshot.time) {
                            all.insert(target.id);
                            see(snapshot.time.saturating_sub(snapshot.aggregation), snapshot.time);
                        }
                    }
                }
                Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
            }
        }
        let unsurveyed = all.difference(&surveyed).count();
        all.extend(&surveyed);
        let time = time.unwrap_or_default();
        let recorded = source.header().recorded(time.0, time.1);
        let look = LEAST_LOOK.max((time.1 - time.0) / MOST_LOOKS);
        Ok(Self { time, recorded, look, surveyed, unsurveyed, shared, targets: all.len() })
    }

    /// The size of a unit for this many blocks of 2 MiB.
    pub(super) fn unit(blocks: u64) -> u64 {
        BLOCK_SIZE << blocks.div_ceil(MOST_UNITS).max(1).next_power_of_two().trailing_zeros()
    }

    /// Replays the selection. `rate` is the limit of moves, in bytes a second.
    pub(super) fn replay(
        &self,
        source: &dyn Source,
        selection: &Selection,
        memory: &mut Memory,
        rate: u64,
    ) -> Result<(), ReportError> {
        let end = selection.time.as_ref().map_or(Duration::MAX, |range| range.end);
        let middle = self.time.0 + (self.time.1 - self.time.0) / 2;
        let mut start = self.time.0;
        let mut now = start;
        let finish = |memory: &mut Memory, start: &mut Duration, now: Duration| {
            let length = source.header().recorded(*start, now).as_secs_f64();
            if length > 0.0 {
                memory.look((*start, now), (length, now > middle, rate), &self.surveyed);
            }
            *start = now;
        };
        for event in source.events(Needs::SNAPSHOTS | Needs::SURVEYS).map_err(ReportError::Source)? {
            let event = event.map_err(ReportError::Source)?;
            let next = event.time();
            if next > end {
                break;
            }
            if next > now && now.saturating_sub(start) >= self.look {
                finish(memory, &mut start, now);
            }
            let later = next > now;
            now = now.max(next);
            match event {
                Event::Snapshot(record) => {
                    for (nth, row) in record.rows().enumerate() {
                        if later && nth == 0 {
                            memory.free_ended(&row);
                        }
                        if selection.holds_time(row.time) && selection.holds_target(row.target.id) {
                            memory.row(&row, self.surveyed.contains(&row.target.id), selection);
                        }
                    }
                }
                Event::Survey(SurveyRecord { survey, .. }) => {
                    memory.survey(&survey.targets, survey.time, survey.interval, selection);
                }
                Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
            }
        }
        finish(memory, &mut start, now.min(self.time.1));
        Ok(())
    }
}
