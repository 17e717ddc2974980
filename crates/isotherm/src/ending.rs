//! The three lines with which a recording ends: its time and file, the working set, its cost and the memory that it
//! could not observe. A run with schemes ends with the last of these.

use std::path::Path;
use std::time::Duration;

use isotherm_core::survey::PageSums;
use isotherm_core::{Estimate, units};
use isotherm_record::{Cost, SnapshotRecord, SurveyRecord};
use isotherm_report::Pacing;
use isotherm_report::wss::{InUse, Percentiles, Used};
use isotherm_run::{EndReason, Event, Missed};

/// Memory that was idle for this long is told of.
const IDLE: Duration = Duration::from_secs(10);

/// What the events of a run tell for its end.
#[derive(Debug)]
pub struct Ending {
    pacing: Pacing,
    /// The time of the last snapshot.
    last: Duration,
    /// What snapshots cost that were missed since the last one.
    missed: Cost,
    /// Working sets by samples, and aggregation intervals in nanoseconds, each with the seconds for which it holds.
    sampled: Vec<(u64, f64)>,
    aggregations: Vec<(u64, f64)>,
    /// Working sets by surveys and the panel.
    in_use: InUse,
    not_seen: NotSeen,
}

/// The memory that a run does not observe at its end, and the rounds that were late. It stays small, however long the
/// run is.
#[derive(Debug, Default)]
pub struct NotSeen {
    rounds: u64,
    late_rounds: u64,
    last_survey: Option<PageSums>,
    /// The survey before it.
    survey_before: Option<PageSums>,
    /// Unobservable bytes of the last snapshot.
    unobservable: u64,
}

impl NotSeen {
    /// Takes in an event of the run.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Snapshot(record) => {
                let Some(cost) = &record.cost else { return };
                self.rounds += u64::from(cost.rounds);
                self.late_rounds += u64::from(cost.late_rounds);
                self.unobservable = cost.unobservable_bytes;
            }
            Event::Survey(record) => {
                let sums = record.survey.sums();
                // A target that has ended leaves a survey without pages.
                if sums.figures.present > 0 {
                    self.survey_before = self.last_survey.replace(sums);
                }
            }
            Event::End(EndReason::Finished) => self.leave_out_exit(),
            Event::Targets(_)
            | Event::Attributes(_)
            | Event::Schemes(_)
            | Event::Activity(_)
            | Event::Mark(_)
            | Event::Allocations(_)
            | Event::Pace { .. }
            | Event::Panel(_)
            | Event::Missed(_)
            | Event::Notice(_)
            | Event::End(_) => {}
        }
    }

    /// If the last target has ended, the last survey may have read it while the kernel took its memory back.
    fn leave_out_exit(&mut self) {
        if let (Some(last), Some(before)) = (&self.last_survey, &self.survey_before)
            && last.figures.present < before.figures.present
        {
            self.last_survey = self.survey_before.take();
        }
    }

    /// What was not seen. `unknown` says what the surveys do not know of the memory that they have not seen.
    pub fn line(&self, unknown: &str) -> String {
        let mut parts = match &self.last_survey {
            Some(sums) => vec![
                format!("{} unobservable", units::bytes(sums.figures.unobservable)),
                format!("{} {unknown}", units::bytes(sums.figures.unknown)),
            ],
            None => vec![format!("{} unobservable", units::bytes(self.unobservable))],
        };
        if self.rounds > 0 {
            let share = self.late_rounds as f64 / self.rounds as f64;
            parts.push(format!("{} of the rounds late", units::percent(share)));
        }
        format!("not seen: {}", parts.join(", "))
    }
}

/// Of memory that surveys do not know.
pub const NOT_BY_PAGE: &str = "not known page by page";

impl Ending {
    /// That of a run which has not started. The budget is a share of one CPU.
    pub fn new(budget: Option<f64>) -> Self {
        Self {
            pacing: Pacing::new(budget),
            last: Duration::ZERO,
            missed: Cost::default(),
            sampled: vec![],
            aggregations: vec![],
            in_use: InUse::default(),
            not_seen: NotSeen::default(),
        }
    }

    /// Takes in an event of the run.
    pub fn event(&mut self, event: &Event) {
        self.not_seen.event(event);
        match event {
            Event::Snapshot(record) => self.snapshot(record),
            Event::Survey(record) => self.survey(record),
            Event::Panel(panel) => self.in_use.panel(panel),
            Event::Missed(Missed { cost, .. }) => self.missed.add(cost),
            Event::Targets(_)
            | Event::Attributes(_)
            | Event::Schemes(_)
            | Event::Activity(_)
            | Event::Mark(_)
            | Event::Allocations(_)
            | Event::Pace { .. }
            | Event::Notice(_)
            | Event::End(_) => {}
        }
    }

    fn snapshot(&mut self, record: &SnapshotRecord) {
        let snapshot = &record.snapshot;
        let from = std::mem::replace(&mut self.last, snapshot.time);
        let seconds = snapshot.time.saturating_sub(from).as_secs_f64();
        self.sampled.push((snapshot.working_set(), seconds));
        self.aggregations.push((snapshot.aggregation.as_nanos() as u64, seconds));
        let Some(of_record) = &record.cost else { return };
        let mut cost = std::mem::take(&mut self.missed);
        cost.add(of_record);
        self.pacing.snapshot(from, snapshot.time, &cost);
    }

    fn survey(&mut self, record: &SurveyRecord) {
        self.pacing.survey(record.survey.interval);
        self.in_use.survey(&record.survey);
    }

    /// The lines. The run lasted for `lasted`, and its recording of `bytes` bytes is at `path`.
    pub fn lines(&self, lasted: Duration, snapshots: u64, path: &Path, bytes: u64) -> [String; 3] {
        let time = format!(
            "{}, {}, {} in {}",
            units::duration(lasted),
            units::counted(snapshots, "snapshot"),
            units::bytes(bytes),
            path.display()
        );
        let cost = self.pacing.finish().line().unwrap_or_else(|| "the cost is not known".into());
        let unknown = match self.in_use.latest() {
            Some((_, used)) if used.low < used.high => NOT_BY_PAGE,
            _ => "unknown",
        };
        [time, self.working_set(), format!("{cost}; {}", self.not_seen.line(unknown))]
    }

    fn working_set(&self) -> String {
        let mut line = match self.in_use.finish() {
            Some(Used { window, median, most, lower_bound }) => {
                let window = Duration::from_millis((window.as_micros() as u64 + 500) / 1000);
                let (most, window) = (units::bytes(most), units::duration(window));
                let at_least = if lower_bound { "at least " } else { "" };
                format!("working set {at_least}{median} median, {most} most, touched within {window}")
            }
            None => {
                let sets = Percentiles::weighted(self.sampled.clone());
                let window = Percentiles::weighted(self.aggregations.clone()).median();
                let window = Duration::from_millis((window + 500_000) / 1_000_000);
                let [median, most] = [sets.median(), sets.0[6]].map(units::bytes);
                let window = units::duration(window);
                format!("working set {median} median, {most} most, accessed within {window}, estimated from samples")
            }
        };
        if let Some(sums) = &self.not_seen.last_survey {
            line += &format!(", of {} resident at the end", units::bytes(sums.figures.present));
            if sums.kinds.lazily_freed > 0 {
                line += &format!(" and {} freed lazily", units::bytes(sums.kinds.lazily_freed));
            }
        }
        if let Some(idle) = self.idle() {
            line += &format!("; {idle} idle for {}", units::duration(IDLE));
        }
        line
    }

    /// The bytes that were idle for a while at the end. `None` if nobody has watched them for so long.
    fn idle(&self) -> Option<Estimate> {
        let sums = self.not_seen.last_survey.as_ref()?;
        let observable = sums.figures.present.saturating_sub(sums.figures.unobservable);
        Some(self.in_use.within(IDLE)?.rest_of(observable))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use isotherm_core::survey::{BlockList, MappingSums, SurveySnapshot, TargetSurvey, WINDOWS};
    use isotherm_core::{Figures, PanelSnapshot, TargetSnapshot};

    use super::*;
    use crate::top::fixtures;

    #[test]
    fn without_surveys_the_working_set_is_an_estimate() {
        let mut ending = Ending::new(Some(0.01));
        (1..=30).for_each(|nth| ending.event(&Event::Snapshot(Arc::new(fixtures::record(nth, &[7])))));
        let [time, working_set, cost] = ending.lines(Duration::from_secs(3), 30, Path::new("a.rec"), 2048);
        assert_eq!(time, "3 s, 30 snapshots, 2 KiB in a.rec");
        assert!(working_set.ends_with("accessed within 100 ms, estimated from samples"), "{working_set}");
        let expected = "sampling every 5 ms: 0.6 % of a CPU, budget 1 %; not seen: 16 MiB unobservable, 5.0 % of the \
                        rounds late";
        assert_eq!(cost, expected);
    }

    #[test]
    fn with_surveys_the_lines_tell_what_was_touched_and_what_was_idle() {
        let mut ending = Ending::new(None);
        for nth in 0..12_u64 {
            let mut sums =
                PageSums::of(Figures { present: 64 << 20, touched: 8 << 20, unknown: 4096, ..Figures::default() });
            sums.within = [16 << 20; WINDOWS.len()];
            let target = target(sums);
            let interval = Duration::from_secs(u64::from(nth > 0));
            let time = Duration::from_secs(nth);
            let survey = SurveySnapshot { time, interval, targets: vec![target], ..SurveySnapshot::default() };
            ending.event(&Event::Survey(Arc::new(SurveyRecord { survey, ..SurveyRecord::default() })));
        }
        let [_, working_set, cost] = ending.lines(Duration::from_secs(11), 1, Path::new("a.rec"), 2048);
        let expected = "working set 8 MiB median, 8 MiB most, touched within 1 s, of 64 MiB resident at the end; \
             48 MiB idle for 10 s";
        assert_eq!(working_set, expected);
        assert_eq!(cost, "survey every 1 s; not seen: 0 B unobservable, 4 KiB unknown");
    }

    #[test]
    fn where_surveys_do_not_know_the_memory_the_lines_tell_what_the_panel_estimates() {
        let mut ending = Ending::new(None);
        for nth in 1..=12 {
            let time = Duration::from_secs(nth);
            if nth % 4 == 0 {
                let mut found = survey(nth, 2560 << 20);
                let sums = &mut found.survey.targets[0].by_mapping[0].sums;
                (sums.figures.touched, sums.figures.unknown) = (84 << 20, 1200 << 20);
                ending.event(&Event::Survey(Arc::new(found)));
            }
            let total = [Estimate { low: 240 << 20, value: 256 << 20, high: 270 << 20 }; WINDOWS.len()];
            let interval = Duration::from_secs(1);
            let panel = PanelSnapshot { time, interval, observed: time, total, ..PanelSnapshot::default() };
            ending.event(&Event::Panel(Arc::new(panel)));
        }
        let [_, working_set, cost] = ending.lines(Duration::from_secs(12), 1, Path::new("a.rec"), 2048);
        let expected = "working set 256 MiB (240 to 270 MiB) median, 256 MiB most, touched within 5 s, of 2.5 GiB \
             resident at the end; 2.25 GiB (2.24 to 2.27 GiB) idle for 10 s";
        assert_eq!(working_set, expected);
        assert!(cost.ends_with("not seen: 0 B unobservable, 1.2 GiB not known page by page"), "{cost}");
    }

    #[test]
    fn a_survey_that_met_the_exit_of_the_last_target_does_not_tell_what_was_resident() {
        let line = |reason: EndReason| {
            let mut ending = Ending::new(None);
            for (nth, present) in [(1, 256), (2, 263), (3, 167)] {
                ending.event(&Event::Survey(Arc::new(survey(nth, present << 20))));
            }
            ending.event(&Event::End(reason));
            let [_, working_set, _] = ending.lines(Duration::from_secs(3), 1, Path::new("a.rec"), 2048);
            working_set
        };
        assert!(line(EndReason::Finished).contains("of 263 MiB resident at the end"));
        assert!(line(EndReason::DurationOver).contains("of 167 MiB resident at the end"));
    }

    fn target(sums: PageSums) -> TargetSurvey {
        let TargetSnapshot { id, mappings, .. } = fixtures::record(1, &[7]).snapshot.targets[0].clone();
        let by_mapping = vec![MappingSums::new(0, &mappings, sums).unwrap()];
        TargetSurvey { id, mappings, by_mapping, by_block: BlockList::default(), by_node: Vec::new() }
    }

    fn survey(nth: u64, present: u64) -> SurveyRecord {
        let sums = PageSums::of(Figures { present, ..Figures::default() });
        let target = target(sums);
        let (time, interval) = (Duration::from_secs(nth), Duration::from_secs(1));
        let survey = SurveySnapshot { time, interval, targets: vec![target], ..SurveySnapshot::default() };
        SurveyRecord { survey, ..SurveyRecord::default() }
    }
}
