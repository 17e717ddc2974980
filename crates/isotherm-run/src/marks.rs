//! The marks that a run takes, from any thread.

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

impl Marks {
    /// Takes a mark of this moment.
    pub(crate) fn make(&self, text: &[u8]) -> Result<(), MarkError> {
        let text = MarkText::new(text).ok_or(MarkError::Empty)?;
        let mut state = self.lock();
        if state.made >= Mark::MOST {
            return Err(MarkError::TooMany);
        }
        // The time is read while the state is locked, so that marks are in the order of time.
        match &mut state.stage {
            Stage::Waiting(waiting) => waiting.push(text),
            Stage::Running { start, send } => send(Mark { time: start.elapsed(), text }),
            Stage::Over => return Err(MarkError::Over),
        }
        state.made += 1;
        Ok(())
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

    /// The run takes no more marks. Returns those since the last call of [`take`](Self::take).
    pub(crate) fn end(&self) -> Vec<MarkText> {
        let mut state = self.lock();
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
    fn a_run_takes_so_many_marks_and_no_more() {
        let marks = Marks::default();
        (0..Mark::MOST).for_each(|_| marks.make(b"again").unwrap());
        assert_eq!(marks.make(b"once more"), Err(MarkError::TooMany));
        assert_eq!(marks.take().len(), Mark::MOST);
        assert_eq!(marks.make(b"once more"), Err(MarkError::TooMany));
    }
}
