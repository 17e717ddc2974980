//! The time in which the machine was suspended.
//!
//! The source of a run and its helpers count time by `CLOCK_MONOTONIC`, which stops while the machine is suspended. So
//! ages, idle times, windows, quotas and budgets do not include that time, in which no program ran. The times of events
//! include it: they agree with the time of day, and a recording has a gap there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isotherm_core::units;
use isotherm_kernel::{monotonic, now_since_boot};
use isotherm_record::{Mark, MarkText};

use crate::Event;

/// The two clocks are read one after the other. Less than this is the time in between.
const SHORTEST: Duration = Duration::from_millis(10);

/// Moves the times of events behind the suspensions of the machine that came before them. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspensions(Arc<Mutex<Option<State>>>);

#[derive(Debug)]
struct State {
    /// How far the clock that includes suspensions was ahead of the other one, in nanoseconds.
    ahead: i128,
    /// The time of the latest event, without suspensions.
    last: Duration,
    /// For each suspension, the time of the last event before it, and how long it and those before it lasted.
    past: Vec<(Duration, Duration)>,
}

impl Suspensions {
    /// The run begins. Before this, nothing is moved.
    pub(crate) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(State::new(ahead()));
    }

    /// The event with its time moved, after a mark if the machine was suspended since the event before.
    pub(crate) fn place(&self, mut event: Event) -> (Option<Mark>, Event) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = &mut *state else { return (None, event) };
        let Some(time) = event.time() else { return (None, event) };
        let mark = state.compare(time, ahead());
        if !state.past.is_empty() {
            event.each_time(|time| *time = state.moved(*time));
        }
        (mark, event)
    }
}

impl State {
    fn new(ahead: i128) -> Self {
        Self { ahead, last: Duration::ZERO, past: Vec::new() }
    }

    /// Takes in the clocks at an event of this time. Returns the mark of a suspension.
    fn compare(&mut self, time: Duration, ahead: i128) -> Option<Mark> {
        let lasted = Duration::from_nanos(u64::try_from(ahead - self.ahead).unwrap_or(0));
        let mut mark = None;
        if lasted >= SHORTEST {
            let text = format!("suspended for {}", units::duration(lasted));
            mark = MarkText::new(text.as_bytes()).map(|text| Mark { time: self.moved(self.last), text });
            let before = self.past.last().map_or(Duration::ZERO, |&(_, total)| total);
            self.past.push((self.last, before + lasted));
            self.ahead = ahead;
        }
        self.last = self.last.max(time);
        mark
    }

    /// The time with the suspensions before it.
    fn moved(&self, time: Duration) -> Duration {
        let before = self.past.iter().rev().find(|(last, _)| time > *last);
        time + before.map_or(Duration::ZERO, |&(_, total)| total)
    }
}

/// How far the clock that includes suspensions is ahead of the other one, in nanoseconds.
fn ahead() -> i128 {
    // This thread may have to wait between the two clocks.
    let once = || now_since_boot().as_nanos() as i128 - monotonic().as_nanos() as i128;
    once().max(once()).max(once())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_comes_after_a_suspension_is_later_and_what_came_before_stays() {
        let mut state = State::new(5_000);
        assert_eq!(state.compare(s(10), 6_000_000), None, "the clocks are not read at the same time");
        let mark = state.compare(s(11), 3_600_000_005_000).unwrap();
        assert_eq!((mark.time, &*mark.text), (s(10), "suspended for 1 h"));
        assert_eq!([9, 10, 11, 20].map(|time| state.moved(s(time))), [9, 10, 3611, 3620].map(s));
        let mark = state.compare(s(21), 3_605_000_005_000).unwrap();
        assert_eq!((mark.time, &*mark.text), (s(3611), "suspended for 5 s"));
        assert_eq!([10, 11, 12, 22].map(|time| state.moved(s(time))), [10, 3611, 3617, 3627].map(s));
    }

    #[test]
    fn nothing_is_moved_while_the_machine_is_not_suspended() {
        let suspensions = Suspensions::default();
        suspensions.begin();
        let mark = Mark { time: s(7), text: MarkText::new(b"here").unwrap() };
        let (suspended, event) = suspensions.place(Event::Mark(mark.clone()));
        assert!(suspended.is_none() && matches!(event, Event::Mark(same) if same == mark));
    }
}
