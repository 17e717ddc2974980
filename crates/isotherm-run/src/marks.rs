//! The marks that a run takes, from any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_record::{Mark, MarkText};
use thiserror::Error;

/// Why a run did not take a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MarkError {
    /// The text has nothing but white space.
    #[error("a mark needs a text")]
    Empty,
    /// The run has taken [`Mark::MOST`] marks.
    #[error("the run has {} marks already, and takes no more", Mark::MOST)]
    TooMany,
    /// The run has ended.
    #[error("the run is over")]
    Over,
}

/// Hands marks to the sinks of a run, at the moment at which they are made.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// How many marks were made.
    made: usize,
    /// Marks that wait for earlier ones, by their times; `None` if no mark is made later than its time.
    held: Option<BTreeMap<Instant, Vec<MarkText>>>,
    /// The time of the last mark that was handed over.
    last: Duration,
}

enum Stage {
    /// The run has not started, or it need not keep real time. Its source takes the marks.
    Waiting(Vec<MarkText>),
    /// The run has been running since `start`. `send` hands a mark to its sinks, and does not wait.
    Running {
        start: Instant,
        send: Box<dyn Fn(Mark) + Send>,
    },
    Over,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(waiting) => f.debug_tuple("Waiting").field(waiting).finish(),
            Self::Running { start, .. } => f.debug_struct("Running").field("start", start).finish_non_exhaustive(),
            Self::Over => f.write_str("Over"),
        }
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl Stage {
    /// The marks that nobody has handed over.
    fn take(&mut self) -> Vec<MarkText> {
        match self {
            Self::Waiting(waiting) => std::mem::take(waiting),
            Self::Running { .. } | Self::Over => Vec::new(),
        }
    }
}

impl State {
    /// Hands over a mark of this moment. The sinks get marks in the order of time.
    fn send(&mut self, at: Instant, text: MarkText) {
        if let Stage::Running { start, send } = &self.stage {
            self.last = self.last.max(at.saturating_duration_since(*start));
            send(Mark { time: self.last, text });
        }
    }

    /// Hands over the marks that wait, up to this moment.
    fn release(&mut self, until: Option<Instant>) {
        let Some(held) = &mut self.held else { return };
        let later = until.map_or_else(BTreeMap::new, |until| held.split_off(&until));
        for (at, texts) in std::mem::replace(held, later) {
            texts.into_iter().for_each(|text| self.send(at, text));
        }
    }
}

impl Marks {
    /// Takes a mark of this moment.
    pub(crate) fn make(&self, text: &[u8]) -> Result<(), MarkError> {
        self.make_at(text, None)
    }

    /// Takes a mark of a moment that is past, or else of this one. One before the start of the run is at its start.
    pub(crate) fn make_at(&self, text: &[u8], at: Option<Instant>) -> Result<(), MarkError> {
        let text = MarkText::new(text).ok_or(MarkError::Empty)?;
        let mut state = self.lock();
        let state = &mut *state;
        if state.made >= Mark::MOST {
            return Err(MarkError::TooMany);
        }
        // The time is read while the state is locked, so that marks are in the order of time.
        let at = at.unwrap_or_else(Instant::now);
        match (&mut state.stage, &mut state.held) {
            (Stage::Waiting(waiting), _) => waiting.push(text),
            (Stage::Running { .. }, Some(held)) => held.entry(at).or_default().push(text),
            (Stage::Running { .. }, None) => state.send(at, text),
            (Stage::Over, _) => return Err(MarkError::Over),
        }
        state.made += 1;
        Ok(())
    }

    /// From now on, marks wait for [`release`](Self::release), because earlier ones may be made later.
    pub(crate) fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Hands over the marks before this moment: those that were made of earlier ones are there. One that comes too late
    /// all the same gets the time of the last mark.
    pub(crate) fn release(&self, until: Instant) {
        self.lock().release(Some(until));
    }

    /// The run starts its clock. Marks that were made before are handed over.
    pub(crate) fn start(&self, start: Instant, send: impl Fn(Mark) + Send + 'static) {
        let mut state = self.lock();
        if let Stage::Waiting(waiting) = &mut state.stage {
            waiting.drain(..).for_each(|text| send(Mark { time: Duration::ZERO, text }));
            state.stage = Stage::Running { start, send: Box::new(send) };
        }
    }

    /// The marks since the last call, of a run without a clock.
    pub(crate) fn take(&self) -> Vec<MarkText> {
        self.lock().stage.take()
    }

    /// The run takes no more marks. Hands over those that wait. Returns those since the last call of
    /// [`take`](Self::take).
    pub(crate) fn end(&self) -> Vec<MarkText> {
        let mut state = self.lock();
        state.release(None);
        std::mem::replace(&mut state.stage, Stage::Over).take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state whole, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_mark_before_the_start_is_at_the_start_and_one_after_the_end_is_refused() {
        let marks = Marks::default();
        let (sender, taken) = channel();
        marks.make(b" early ").unwrap();
        marks.start(Instant::now(), move |mark| sender.send(mark).unwrap());
        marks.make(b"later").unwrap();
        assert_eq!(marks.make(b" \n"), Err(MarkError::Empty));
        assert_eq!((marks.take(), marks.end()), (vec![], vec![]));
        assert_eq!(marks.make(b"late"), Err(MarkError::Over));
        let taken: Vec<Mark> = taken.iter().collect();
        assert_eq!(taken.iter().map(|mark| &*mark.text).collect::<Vec<_>>(), ["early", "later"]);
        assert!(taken[0].time.is_zero() && taken[1].time > Duration::ZERO);
    }

    #[test]
    fn marks_of_the_past_are_handed_over_in_the_order_of_time() {
        let marks = Marks::default();
        let (sender, taken) = channel();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        marks.hold();
        marks.start(start, move |mark| sender.send((mark.time.as_secs(), mark.text.to_string())).unwrap());
        for (seconds, text) in [(5, "c"), (3, "b"), (5, "d"), (1, "a")] {
            marks.make_at(text.as_bytes(), Some(at(seconds))).unwrap();
        }
        marks.release(at(3));
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [(1, "a".into())]);
        marks.release(at(6));
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [(3, "b".into()), (5, "c".into()), (5, "d".into())]);
        marks.make_at(b"too late", Some(at(2))).unwrap();
        marks.make_at(b"last", Some(at(9))).unwrap();
        marks.end();
        assert_eq!(taken.try_iter().collect::<Vec<_>>(), [(5, "too late".into()), (9, "last".into())]);
    }

    #[test]
    fn a_run_takes_so_many_marks_and_no_more() {
        let marks = Marks::default();
        (0..Mark::MOST).for_each(|_| marks.make(b"again").unwrap());
        assert_eq!(marks.make(b"once more"), Err(MarkError::TooMany));
        assert_eq!(marks.take().len(), Mark::MOST);
        assert_eq!(marks.make(b"once more"), Err(MarkError::TooMany));
    }
}
