//! How the thread of the monitor is scheduled.

use std::time::Duration;

use isotherm_kernel::scheduling::{Urgent, bind, lock_memory, set_nice};

use crate::RunError;

/// How the thread of the monitor is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Its nice value, −20 to 19. `None` is that of the process, and −10 where that is allowed and the thread has woken
    /// up late too often, or samples at a fixed interval: what it measures depends on when it wakes up. Otherwise the
    /// targets come first.
    pub nice: Option<i32>,
    /// The processors that it runs on; all if empty.
    pub cpus: Vec<usize>,
    /// Whether the memory of this process stays in memory, where that is allowed.
    pub locks_memory: bool,
}

impl Scheduling {
    /// Applies it to the calling thread, which samples at a fixed interval or not. What is returned follows how
    /// punctual the thread is.
    pub(crate) fn apply(&self, is_fixed: bool) -> Result<Urgency, RunError> {
        if let Some(wanted) = self.nice {
            set_nice(wanted).map_err(|source| RunError::Nice { nice: wanted, source })?;
        }
        if !self.cpus.is_empty() {
            bind(&self.cpus).map_err(RunError::Affinity)?;
        }
        if self.locks_memory {
            // The limit on locked memory may be too low. Then pages are read in again when they are needed.
            let _ = lock_memory();
        }
        Ok(match (self.nice, is_fixed) {
            (Some(_), _) => Urgency { punctuality: None, urgent: None },
            (None, true) => Urgency { punctuality: None, urgent: Some(Urgent::begin()) },
            (None, false) => Urgency { punctuality: Some(Punctuality::default()), urgent: None },
        })
    }
}

/// Makes the thread [`Urgent`] while it would wake up late too often.
#[derive(Debug)]
pub(crate) struct Urgency {
    /// How punctual the thread is, if its nice value follows from that.
    punctuality: Option<Punctuality>,
    urgent: Option<Urgent>,
}

impl Urgency {
    /// Takes in that the thread woke up at `now`, and whether that was late.
    pub(crate) fn woke(&mut self, now: Duration, late: bool) {
        let Some(punctuality) = &mut self.punctuality else { return };
        match (punctuality.is_urgent(now, late), &self.urgent) {
            (true, None) => self.urgent = Some(Urgent::begin()),
            (false, Some(_)) => self.urgent = None,
            _ => {}
        }
    }
}

/// How punctual a thread was recently.
#[derive(Debug, Default)]
struct Punctuality {
    /// For each of the last 32 times that it woke up, a bit that says whether that was late.
    recent: u32,
    /// Until when it is urgent.
    until: Option<Duration>,
}

/// How many of the last times may be late. Rates take in how late a round was, so that a few late ones do no harm. With
/// a quarter of them late, reports say that rates cannot be relied on.
const MOST_LATE: u32 = 6;

/// For how long a thread is urgent. Nothing else says whether the machine is still busy.
const LENGTH: Duration = Duration::from_secs(60);

impl Punctuality {
    /// Takes in that the thread woke up at `now`, and whether that was late. Returns whether it is urgent from now on.
    fn is_urgent(&mut self, now: Duration, late: bool) -> bool {
        self.recent = self.recent << 1 | u32::from(late);
        if self.recent.count_ones() > MOST_LATE {
            self.recent = 0;
            self.until = Some(now + LENGTH);
        }
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(5);

    /// Whether the thread is urgent after each time that it wakes up, late in those that `is_late` says.
    fn urgent_after(count: u32, is_late: impl Fn(u32) -> bool) -> Vec<bool> {
        let mut punctuality = Punctuality::default();
        (0..count).map(|nth| punctuality.is_urgent(BEAT * nth, is_late(nth))).collect()
    }

    #[test]
    fn a_thread_that_is_late_once_in_a_while_is_not_urgent() {
        assert!(urgent_after(10_000, |nth| nth % 6 == 5).iter().all(|urgent| !urgent));
    }

    #[test]
    fn a_thread_that_is_late_often_is_urgent_for_a_while_and_as_long_as_it_stays_late() {
        let urgent = urgent_after(14_000, |nth| nth < 100 && nth % 4 == 3);
        assert_eq!((urgent[26], urgent[27]), (false, true));
        assert!(urgent[27..12_000].iter().all(|urgent| *urgent), "for a minute");
        assert!(!urgent[13_999]);
        let urgent = urgent_after(30_000, |nth| nth % 4 == 3);
        assert!(urgent[27..].iter().all(|urgent| *urgent));
    }
}
