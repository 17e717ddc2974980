//! How many pages the panel has.

use std::time::Duration;

use super::draw::MOST_ABSENT;
use super::estimate::Seen;
use super::member::{RARELY, Tick};
use super::{FIRST_READINGS, LONGEST, Panel};
use crate::survey::{SurveySettings, WINDOWS};

/// The relative standard error that is asked for.
const ERROR: f64 = 0.05;

/// The least and the greatest number of pages, unless there are fewer.
const LEAST: f64 = 1000.0;
const MOST: f64 = 40_000.0;

/// How many pages are drawn at first, when nothing is known: so many to find out what a page costs, and so many in all
/// if they do not cost too much.
pub(super) const TRIAL: f64 = 500.0;
pub(super) const FIRST: f64 = 4000.0;

/// The panel has at most this part of the pages, unless that is fewer than [`FIRST`]: a survey knows all of so little
/// memory soon.
const MOST_OF_ALL: f64 = 0.125;

/// The panel grows if it has this part of the pages that are wanted, and shrinks if it has this many times as many.
const FEW: f64 = 0.7;
const MANY: f64 = 2.5;

/// It shrinks after so many readings in a row that found it too large, so that it does not follow each burst.
const PATIENCE: u32 = 4;

/// At the start, it shrinks at once if it has this many times as many pages as can be read in the time for it.
const DEAR: f64 = 4.0;

/// The panel is needed again after so many surveys in a row that did not know nearly all memory.
const NOT_KNOWN: u32 = 2;

/// Drawing may take this part of the time for it, whatever a survey takes.
const LEAST_DRAW: f64 = 0.4;

/// What it costs to draw a page, until it is measured: to read it, and to clear it, in seconds of CPU time.
const PRICE: f64 = 6e-6;

impl Panel {
    /// Takes in whether a survey has known nearly all memory. The panel then has [`LEAST`] pages at most, until two
    /// surveys in a row have not: memory that is accessed in another way than before is unknown to one survey.
    pub(crate) fn stand_by(&mut self, is_known: bool) {
        self.not_known = if is_known { 0 } else { self.not_known.saturating_add(1) };
        self.is_spare = is_known || self.is_spare && self.not_known < NOT_KNOWN;
    }

    /// Takes in the CPU time that it took to prepare a reading.
    pub(crate) fn prepared(&mut self, cpu: Duration) {
        mean(&mut self.prepared, cpu.as_secs_f64());
    }

    /// Takes in the CPU time that it took to read `members` pages, or to draw them.
    pub(crate) fn spent(&mut self, cpu: Duration, members: usize, drawn: bool) {
        if members > 0 {
            let of = if drawn { &mut self.price.1 } else { &mut self.price.0 };
            mean(of, cpu.as_secs_f64() / members as f64);
        }
    }

    /// Plans the next reading, so that the panel takes this share of one CPU at most.
    pub(crate) fn plan(&mut self, now: Duration, share: f64) {
        if self.is_start() {
            return;
        }
        let reading = (self.prepared.unwrap_or(0.0) + self.price.0.unwrap_or(0.0) * self.reads as f64) / share;
        self.due = self.due.max(now + Duration::from_secs_f64(reading.min(LONGEST.as_secs_f64())));
    }

    /// Chooses the number of pages by what is known, and by what reading and drawing them may take. Returns whether the
    /// rate has changed, so that it is to be drawn again.
    pub(crate) fn resize(&mut self, settings: &SurveySettings) -> bool {
        let (all, sums) = self.last;
        // How many pages are read for each that counts.
        let views = (all.members / sums.members.max(1.0)).max(1.0);
        let pages = sums.pages_that_ran();
        if pages <= 0.0 {
            return false;
        }
        let before = self.rate;
        let (share, spread) = self.share();
        let wanted = |used: f64| ((1.0 - used) / (used * ERROR * ERROR)).clamp(LEAST, MOST);
        let wanted = share.filter(|_| self.tick > 1).map_or(FIRST, wanted).min(most_of(pages));
        let wanted = if self.is_spare { wanted.min(LEAST) } else { wanted };
        // A reading has at least half of the time, whatever it takes to prepare it.
        let time = settings.panel * LONGEST.as_secs_f64();
        let time = (time - self.prepared.unwrap_or(0.0)).max(time / 2.0);
        // Before the second reading, all pages that were drawn have been accessed, so that no reading costs more.
        self.affordable = self.price.0.or(self.price.1).map_or(MOST, |price| time / price.max(1e-9));
        // Absent pages are drawn, too, and read rarely.
        self.spread = if self.tick > 1 { spread } else { 1.0 };
        let reads = 1.0 + (self.spread - 1.0) / RARELY as f64;
        let affordable = self.most() / reads / views * self.spread;
        let wanted = (wanted * self.spread).min(affordable);
        let has = before * pages;
        let (most, survey) = (settings.draw.as_secs_f64(), settings.page.as_secs_f64() * pages);
        let time = most.min(survey.max(most * LEAST_DRAW));
        let drawable = time / self.price.1.unwrap_or(PRICE).max(1e-9) / views;
        if has < wanted * FEW && before < 1.0 {
            self.rate = (wanted.min(has + drawable) / pages).min(1.0);
        } else if self.too_large >= PATIENCE || self.is_spare && has > wanted * MANY {
            self.rate = wanted / pages;
        } else if self.is_start() && has > affordable * DEAR {
            self.rate = affordable / pages;
        }
        self.too_large = if has > wanted * MANY && self.rate == before { self.too_large + 1 } else { 0 };
        self.note_rate();
        self.rate != before
    }

    /// Whether the last reading is one of the first, which have times of their own.
    fn is_start(&self) -> bool {
        (self.tick as usize) < FIRST_READINGS.len()
    }

    /// The share of the pages in memory that were accessed in the last second, or since the first reading if that was
    /// later, and how many pages were drawn for each one in memory: at most [`MOST_ABSENT`].
    fn share(&self) -> (Option<f64>, f64) {
        let begin = self.begin_of(WINDOWS[0]).max(1).min(self.tick.saturating_sub(1));
        let ran = self.targets.iter().filter(|drawn| self.has_run(drawn.id));
        let (mut used, mut known, mut present, mut all) = (0_u32, 0_u32, 0_u32, 0_u32);
        for member in ran.flat_map(|drawn| &drawn.members) {
            all += 1;
            if !member.is_absent {
                let seen = member.within(begin, self.tick);
                used += u32::from(matches!(seen, Seen::Used | Seen::Likely));
                known += u32::from(seen != Seen::Unknown);
                present += 1;
            }
        }
        let share = (known > 0).then(|| f64::from(used) / f64::from(known));
        (share, (f64::from(all) / f64::from(present.max(1))).clamp(1.0, MOST_ABSENT))
    }

    /// Notes the share that is in force from the last reading on.
    pub(super) fn note_rate(&mut self) {
        if self.rates.front().is_none_or(|&(_, rate)| rate != self.rate) {
            self.rates.push_front((self.tick, self.rate));
        }
        let oldest = self.tick.saturating_sub(self.ticks.len() as Tick);
        while self.rates.len() > 1 && self.rates[self.rates.len() - 2].0 <= oldest {
            self.rates.pop_back();
        }
    }

    /// The share of all pages that has belonged to the panel since a reading.
    pub(super) fn rate_since(&self, begin: Tick) -> f64 {
        let after = self.rates.partition_point(|&(since, _)| since > begin);
        self.rates.iter().take(after + 1).fold(self.rate, |least, &(_, rate)| least.min(rate))
    }

    /// The most pages that it can have.
    pub(super) fn most(&self) -> f64 {
        if self.affordable > 0.0 { self.affordable.clamp(LEAST / 4.0, MOST) } else { MOST }
    }
}

/// The most pages that it has if there are so many in all.
pub(super) fn most_of(pages: f64) -> f64 {
    (pages * MOST_OF_ALL).clamp(FIRST, MOST)
}

/// Takes a value into a mean of the last ones.
fn mean(mean: &mut Option<f64>, value: f64) {
    *mean = Some(mean.map_or(value, |before| f64::midpoint(before, value)));
}
