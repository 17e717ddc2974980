//! When the next survey is due, and how much it may clear.

use std::time::Duration;

use super::SurveySettings;
use super::panel::{Panel, PanelSize};
use crate::TargetId;

/// A survey comes this part of the interval after the one before, if there is much to learn: a program that has just
/// started is seen at once.
const SOON: u32 = 3;

/// At most this many surveys in a row come sooner than the interval, unless memory is being added.
const MOST_SOON: u32 = 10;

/// There is much to learn if at least this share of the memory is new since the survey before, or unknown.
const MUCH: f64 = 0.05;

/// Samples leave surveys at least this part of what the targets may set again.
const LEAST_SURVEYS: f64 = 0.5;

/// What samples clear in a second is known after this time.
const LEAST_SAMPLED: Duration = Duration::from_secs(1);

/// If the panel is not all memory, this part of what the targets may set again is for other memory, so that it becomes
/// known which of it has turned idle.
const BESIDE_PANEL: f64 = 0.125;

/// If much is unknown, this part of what the targets may set again is for memory that was never cleared.
const OF_UNKNOWN: f64 = 0.5;

/// Then a survey may clear so many times as many pages: to read all memory again and again tells little.
const MORE_CLEARS: f64 = 32.0;

/// How many pages that a survey clears may be accessed again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Credit {
    /// Pages that were accessed in a known interval, and what is left of them for others.
    pub(crate) again: f64,
    /// Pages that were never cleared.
    pub(crate) unknown: f64,
}

/// A survey that leaves less than this part of its credit would clear more if it might.
const LEAST_LEFT: f64 = 0.1;

/// When to survey, and what it may cost the targets.
///
/// The times follow from the settings in force, so that a plan that was made when little of the budget was left does
/// not hold longer than that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyPlan {
    pub(crate) settings: SurveySettings,
    next: Next,
    /// When the last survey began.
    began: Option<Duration>,
    /// When the last part was done.
    last: Duration,
    /// How many pages may be accessed again by what is cleared now. It grows with time, up to that of an interval.
    credit: Credit,
    /// Until when the credit has grown.
    credited: Duration,
    /// The credit that there was for the survey before and since, whether it is left or not.
    offered: Credit,
    /// How many pages a second the targets would set again if nothing bounded it. Infinite as long as it is not known.
    need: f64,
    /// Whether the last survey, if there was one, has left much memory unknown.
    much_unknown: bool,
    /// How many pages samples have cleared since the last survey began, and how many a second they cleared before.
    sampled: (f64, f64),
    /// Which part of the memory each survey clears.
    panel: PanelSize,
    /// The time from the beginning of the survey before to that of the last one.
    elapsed: Duration,
    /// How many surveys in a row came sooner than the interval.
    soon: u32,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// A survey at once.
    Start,
    /// The next part of a survey.
    Part,
    /// The next survey.
    Survey {
        /// How much sooner than the interval it comes.
        early: Early,
        /// It does not begin before this.
        not_before: Duration,
    },
}

/// How much sooner than the interval a survey comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Early {
    No,
    /// After a part of the interval.
    Soon,
    /// As soon as it may.
    Hurry,
}

/// What a survey has found, as far as the time of the next one depends on it. Numbers of pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Learned {
    /// In memory.
    pub(crate) present: u64,
    /// Never cleared, so that it is not known when they were accessed.
    pub(crate) unknown: u64,
    /// Whether a target has grown much.
    pub(crate) grows: bool,
    /// Cleared in the panel by the survey before, and accessed since.
    pub(crate) set_again: f64,
}

impl Learned {
    /// Takes in that a target had `before` pages in memory, and has `now`.
    pub(crate) fn grown(&mut self, before: u64, now: u64) {
        self.present += now;
        self.grows |= now as f64 > before as f64 * (1.0 + MUCH);
    }
}

impl SurveyPlan {
    /// The first survey is due at once.
    pub(crate) fn new(settings: SurveySettings) -> Self {
        Self {
            settings,
            next: Next::Start,
            began: None,
            last: Duration::ZERO,
            credit: Credit { again: 0.0, unknown: settings.pages(settings.interval) },
            credited: Duration::ZERO,
            offered: Credit::default(),
            need: f64::INFINITY,
            much_unknown: true,
            sampled: (0.0, 0.0),
            panel: PanelSize::default(),
            elapsed: Duration::ZERO,
            soon: 0,
        }
    }

    /// When the next part of a survey is due, since the start of the run.
    pub(crate) fn due(&self) -> Duration {
        let SurveySettings { interval, longest_to_learn: longest, part_gap, early_gap, .. } = self.settings;
        let Next::Survey { early, not_before } = self.next else {
            let part = self.settings.postpone(self.last + part_gap);
            return if self.next == Next::Start { Duration::ZERO } else { part };
        };
        let began = self.began.unwrap_or(self.last);
        let mut due = began + interval;
        if self.last > began {
            // The parts of two surveys are as far apart as those of one.
            due = due.max(self.last + part_gap);
        }
        let earliest = self.last + early_gap;
        let due = match early {
            Early::No => due,
            Early::Soon => due.min(earliest.max(began + interval.min(longest) / SOON)),
            Early::Hurry => due.min(earliest),
        };
        self.settings.postpone(due.max(not_before))
    }

    /// Lets a survey begin at once, whatever was known.
    pub(crate) fn restart(&mut self) {
        self.next = Next::Start;
    }

    /// Begins the survey at `now`. Returns how many of the pages that it clears may be accessed again.
    pub(crate) fn begin(&mut self, now: Duration) -> Credit {
        self.elapsed = now.saturating_sub(self.began.unwrap_or(now));
        let sampled = std::mem::take(&mut self.sampled.0);
        if !self.elapsed.is_zero() {
            self.sampled.1 = sampled / self.elapsed.as_secs_f64();
        }
        match self.began {
            Some(_) => self.credit = self.grown(self.credit, now),
            None => self.credited = now,
        }
        self.began = Some(now);
        self.credit
    }

    /// What is left of the credit of a survey, and what has come to it until `now`. So the later parts of a survey that
    /// takes minutes may clear what its targets can set again in minutes.
    pub(crate) fn grown(&mut self, Credit { again, unknown }: Credit, now: Duration) -> Credit {
        let of_unknown = if self.much_unknown { OF_UNKNOWN } else { 0.0 };
        let beside = if self.panel.share() < 1.0 { BESIDE_PANEL } else { 1.0 };
        // A survey that takes long does not wait for its end to know what samples clear.
        let since = now.saturating_sub(self.began.unwrap_or(now)).max(LEAST_SAMPLED);
        self.sampled.1 = self.sampled.1.max(self.sampled.0 / since.as_secs_f64());
        let passed = now.saturating_sub(std::mem::replace(&mut self.credited, now));
        let (new, most) = (self.pages(passed), self.pages(self.settings.interval));
        // What the first survey may clear at once can be more than that of an interval.
        let grown = |credit: f64, part: f64| (credit + part * new).min((part * most).max(credit));
        let credit = Credit { again: grown(again, (1.0 - of_unknown) * beside), unknown: grown(unknown, of_unknown) };
        self.offered.again += credit.again - again;
        self.offered.unknown += credit.unknown - unknown;
        credit
    }

    /// The share of one CPU that targets would lose to setting accessed bits again if nothing bounded it, what samples
    /// clear included. Infinite as long as it is not known, and if the bound in force does not suffice.
    pub(crate) fn need(&self) -> f64 {
        (self.need + self.sampled.1) * self.settings.set_again.as_secs_f64()
    }

    /// How many pages the survey that begins may clear.
    pub(crate) fn clears(&self) -> f64 {
        self.settings.clears * if self.much_unknown { MORE_CLEARS } else { 1.0 }
    }

    /// Takes in that samples have cleared pages, which the targets have to set again, too.
    pub(crate) fn sampled(&mut self, clears: u64) {
        self.sampled.0 += clears as f64;
    }

    /// How many pages cleared by surveys the targets may access again in `time`, in addition to those cleared by
    /// samples.
    fn pages(&self, time: Duration) -> f64 {
        let all = self.settings.pages(time);
        (all - self.sampled.1 * time.as_secs_f64()).max(all * LEAST_SURVEYS)
    }

    /// The blocks of a target that each survey clears.
    pub(crate) fn panel(&self, target: TargetId) -> Panel {
        Panel { share: self.panel.share(), target }
    }

    /// Plans the next part of the same survey.
    pub(crate) fn end_part(&mut self, now: Duration) {
        self.last = now;
        self.next = Next::Part;
    }

    /// Lets the next survey come as soon as it may, because there is something new.
    pub(crate) fn hurry(&mut self) {
        if let Next::Survey { early, .. } = &mut self.next {
            *early = Early::Hurry;
        }
    }

    /// Lets the next survey wait until the targets may access again as many pages as this one, which ended at `now`,
    /// has cleared.
    pub(crate) fn wait_for_targets(&mut self, now: Duration, clears: u64) {
        let seconds = clears as f64 / self.settings.pages(Duration::from_secs(1)).max(1.0);
        self.need = clears as f64 / self.settings.interval.as_secs_f64().max(1e-3);
        if let Next::Survey { not_before, .. } = &mut self.next {
            *not_before = now + Duration::from_secs_f64(seconds);
        }
    }

    /// Plans the next survey after the one that ends at `now`, which has left `credit`.
    pub(crate) fn end(&mut self, now: Duration, learned: Learned, credit: Credit) {
        self.credit = Credit { again: credit.again.max(0.0), unknown: credit.unknown.max(0.0) };
        let offered = std::mem::replace(&mut self.offered, self.credit);
        let suffices = |left: f64, of: f64| left >= of * LEAST_LEFT;
        let suffices = suffices(self.credit.again, offered.again) && suffices(self.credit.unknown, offered.unknown);
        self.need = if suffices && !self.elapsed.is_zero() {
            let spent = offered.again + offered.unknown - self.credit.again - self.credit.unknown;
            spent.max(0.0) / self.elapsed.as_secs_f64()
        } else {
            f64::INFINITY
        };
        let much_is_unknown = learned.unknown as f64 > learned.present as f64 * MUCH;
        // As long as much is unknown, the credit alone bounds what is cleared.
        if !self.much_unknown {
            let allowed = self.pages(Duration::from_secs(1));
            self.panel.learn(learned.set_again, self.elapsed, allowed, self.settings.clears);
        }
        self.last = now;
        self.much_unknown = much_is_unknown;
        self.soon = if much_is_unknown && !learned.grows { self.soon.saturating_add(1) } else { 0 };
        let is_soon = learned.grows || (much_is_unknown && self.soon <= MOST_SOON);
        let early = if is_soon { Early::Soon } else { Early::No };
        self.next = Next::Survey { early, not_before: Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOTHING: Credit = Credit { again: 0.0, unknown: 0.0 };

    /// A plan after a survey that has left nothing.
    fn begun(settings: SurveySettings) -> SurveyPlan {
        let mut plan = SurveyPlan::new(settings);
        assert_eq!(plan.begin(Duration::ZERO).unknown, settings.pages(SECOND));
        plan.end(Duration::ZERO, Learned::default(), NOTHING);
        plan
    }

    #[test]
    fn surveys_come_sooner_while_there_is_much_to_learn_but_not_for_ever() {
        let mut plan = SurveyPlan::new(SurveySettings::default());
        let mut after = |learned| {
            let now = plan.due();
            plan.begin(now);
            plan.end(now, learned, NOTHING);
            plan.due() - now
        };
        let known = Learned { present: 1000, unknown: 10, ..Learned::default() };
        let (unknown, grows) = (Learned { unknown: 500, ..known }, Learned { grows: true, ..known });
        assert_eq!((after(known), after(grows)), (SECOND, SECOND / SOON));
        let soon = (0..100).filter(|_| after(unknown) < SECOND).count();
        assert_eq!(soon as u32, MOST_SOON);
        assert!((0..100).all(|_| after(grows) < SECOND));
    }

    #[test]
    fn a_change_of_the_settings_moves_the_next_survey() {
        let with = |interval, early_gap| SurveySettings { interval, early_gap, ..SurveySettings::default() };
        let mut plan = SurveyPlan::new(with(SECOND * 60, SECOND * 30));
        plan.begin(SECOND);
        plan.end(SECOND, Learned::default(), NOTHING);
        assert_eq!(plan.due(), SECOND * 61);
        plan.hurry();
        assert_eq!(plan.due(), SECOND * 31);
        plan.settings = with(SECOND * 3, SECOND);
        assert_eq!(plan.due(), SECOND * 2);
        plan.wait_for_targets(SECOND, 50_000);
        assert_eq!(plan.due(), SECOND * 5);
        plan.settings.earliest = SECOND * 7;
        assert_eq!(plan.due(), SECOND * 7);
        // What is due does not wait for ever.
        plan.settings.earliest = SECOND * 600;
        assert_eq!(plan.due(), SECOND * 8);
    }

    #[test]
    fn the_credit_grows_with_time_up_to_that_of_an_interval() {
        let limits = SurveySettings::default();
        let mut plan = begun(limits);
        assert!((plan.begin(SECOND / 4).again - limits.pages(SECOND / 4)).abs() < 1.0);
        plan.end(SECOND / 4, Learned::default(), NOTHING);
        assert_eq!(plan.begin(SECOND * 9), Credit { again: limits.pages(SECOND), unknown: 0.0 });
        let unknown = Learned { present: 1000, unknown: 500, ..Learned::default() };
        plan.end(SECOND * 9, unknown, NOTHING);
        let half = limits.pages(SECOND) / 2.0;
        assert_eq!(plan.begin(SECOND * 20), Credit { again: half, unknown: half });
    }

    #[test]
    fn the_credit_grows_during_a_survey_and_the_same_time_counts_once() {
        let limits = SurveySettings { interval: SECOND * 60, ..SurveySettings::default() };
        let mut plan = SurveyPlan::new(limits);
        let first = plan.begin(SECOND * 2);
        assert_eq!(first, Credit { again: 0.0, unknown: limits.pages(SECOND * 60) });
        // Half of it is for memory of which nothing is known.
        let half = limits.pages(SECOND * 10) / 2.0;
        let spent = plan.grown(NOTHING, SECOND * 12);
        assert!((spent.again - half).abs() < 1.0 && (spent.unknown - half).abs() < 1.0, "{spent:?}");
        plan.end(SECOND * 12, Learned { present: 1000, unknown: 500, ..Learned::default() }, NOTHING);
        let next = plan.begin(SECOND * 22);
        assert!((next.unknown - half).abs() < 1.0, "{next:?}");
        assert_eq!(plan.grown(next, SECOND * 22), next);
    }

    #[test]
    fn what_is_needed_is_what_a_survey_spends_unless_it_is_all() {
        let (limits, mut plan) = (SurveySettings::default(), begun(SurveySettings::default()));
        assert_eq!(plan.need(), f64::INFINITY, "nothing is known yet");
        let mut after = |seconds, left| {
            let Credit { again, unknown } = plan.begin(SECOND * seconds);
            plan.end(SECOND * seconds, Learned::default(), Credit { again: again * left, unknown });
            plan.need()
        };
        let need = after(1, 0.75);
        assert!((need / (limits.target_share * 0.25) - 1.0).abs() < 1e-6, "{need}");
        // Three quarters of an interval were left, so that a quarter came to it.
        let need = after(2, 0.5);
        assert!((need / (limits.target_share * 0.5) - 1.0).abs() < 1e-6, "{need}");
        assert_eq!(after(3, 0.01), f64::INFINITY);
    }

    #[test]
    fn what_samples_clear_is_taken_from_surveys_but_never_all() {
        let limits = SurveySettings::default();
        for (samples, left) in [(0.0, 1.0), (0.2, 0.8), (3.0, LEAST_SURVEYS)] {
            let mut plan = begun(limits);
            plan.sampled((samples * limits.pages(SECOND)) as u64);
            let credit = plan.begin(SECOND).again / limits.pages(SECOND);
            assert!((credit - left).abs() < 1e-3, "{credit} for {samples}");
            plan.end(SECOND, Learned::default(), NOTHING);
            assert_eq!(plan.begin(SECOND * 2).again, limits.pages(SECOND), "these samples count once");
        }
    }
}
