//! How often to survey, and what that may cost.

use std::time::Duration;

/// How often to survey, how much of a survey is done at a time, and what it may cost the targets.
///
/// A survey that reads more than [`part_blocks`](Self::part_blocks) is done in parts, one after the other, so that no
/// part takes long. The driver of a monitor chooses parts and times by the CPU time that they take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveySettings {
    /// The time from the beginning of a survey to that of the next.
    pub interval: Duration,
    /// Of longer intervals, only so much counts for a survey that comes soon because there is much to learn.
    pub longest_to_learn: Duration,
    /// A part ends after this many blocks of 2 MiB were read. Clearing counts as reading, in proportion to the time
    /// that it takes.
    pub part_blocks: usize,
    /// A part also ends after it has taken this much CPU time, however much is left of it, if the monitor can measure
    /// that: see [`Monitor::set_cpu_clock`](crate::Monitor::set_cpu_clock).
    pub part_time: Duration,
    /// The time from a part to the next part of the same survey.
    pub part_gap: Duration,
    /// The least time from a survey to one that comes before its time, because a target joins or grows, or because much
    /// is unknown.
    pub early_gap: Duration,
    /// A part that is due waits until this time, since the start of the run, but for 3 s at most.
    pub earliest: Duration,
    /// The share of one CPU, 0 to 1, that targets may lose to setting accessed bits again.
    pub target_share: f64,
    /// How long it takes a target to set the accessed bit of a page again.
    pub set_again: Duration,
    /// The most pages that a survey is to clear. More would take the time that reading needs.
    pub clears: f64,
    /// How many blocks are read in the time in which a page is cleared.
    pub clear_page: f64,
    /// The share of one CPU that the panel may take.
    pub panel: f64,
    /// The CPU time that drawing more pages of the panel may take at once.
    pub draw: Duration,
    /// The CPU time that a survey takes to read and clear a page. Where surveys soon know all of the memory, drawing
    /// pages of the panel takes no longer than that, or a part of [`draw`](Self::draw).
    pub page: Duration,
}

/// What it costs a target to set the accessed bit of a page of 4 KiB again: 0.35 to 0.4 µs, measured in November 2026
/// on a virtual machine (`bench/README.md`).
const SET_AGAIN: Duration = Duration::from_nanos(400);

/// How many blocks are read in the time in which a page is cleared: 65 ns, where reading a block takes 4 µs
/// (`bench/README.md`, November 2026, on a virtual machine).
pub(crate) const CLEAR_PAGE: f64 = 0.016;

/// To clear pages of a block takes the time of so many pages more: 5 µs.
pub(crate) const CLEAR_BLOCK: f64 = 78.0;

/// The longest time that a part of a survey, or a reading of the mappings, that is due waits because much was spent
/// recently.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(3);

impl Default for SurveySettings {
    /// A survey each second, in one part, which costs targets at most half a percent of a CPU.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            longest_to_learn: Duration::MAX,
            part_blocks: usize::MAX,
            part_time: Duration::MAX,
            part_gap: Duration::ZERO,
            early_gap: Duration::ZERO,
            earliest: Duration::ZERO,
            target_share: 0.005,
            set_again: SET_AGAIN,
            clears: f64::INFINITY,
            clear_page: CLEAR_PAGE,
            panel: 1.0,
            draw: Duration::MAX,
            page: Duration::MAX,
        }
    }
}

impl SurveySettings {
    /// When a part begins that is due at this time.
    pub fn postpone(&self, due: Duration) -> Duration {
        due.max(self.earliest.min(due + LONGEST_WAIT))
    }

    /// How many cleared pages the targets may access again in `time`.
    pub(crate) fn pages(&self, time: Duration) -> f64 {
        self.target_share * time.as_secs_f64() / self.set_again.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_percent_of_a_second_is_12500_pages() {
        assert_eq!(SurveySettings::default().pages(Duration::from_secs(1)).round(), 12_500.0);
    }
}
