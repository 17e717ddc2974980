//! Reading what may never answer.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;

/// Reads on a thread that nobody waits for: a file system whose server is gone, or a program that serves files, may
/// keep a reader waiting for ever.
///
/// There is one thread at most, however often [`get`](Self::get) is called. The end of the process ends it.
#[derive(Debug)]
pub struct Background<T> {
    /// Where the answer of the thread arrives that is reading.
    answer: Option<Receiver<T>>,
}

impl<T> Default for Background<T> {
    fn default() -> Self {
        Self { answer: None }
    }
}

impl<T: Send + 'static> Background<T> {
    /// What `read` returns, if it does within `patience`, else `None`. If an earlier read has not returned yet, `read`
    /// is not called, and the answer is that of the earlier one. A late answer is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn get(&mut self, patience: Duration, read: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
        let is_reading = |answer: &Receiver<T>| matches!(answer.try_recv(), Err(TryRecvError::Empty));
        let answer = match self.answer.take().filter(is_reading) {
            Some(answer) => answer,
            None => {
                let (sender, answer) = channel();
                // Nobody may want the answer any more.
                let work = move || drop(sender.send(read()));
                Builder::new().name("input".into()).spawn(work)?;
                answer
            }
        };
        match answer.recv_timeout(patience) {
            Ok(read) => Ok(Some(read)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.answer = Some(answer);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_read_that_hangs_is_left_behind_and_not_begun_again() {
        let mut background = Background::default();
        let (let_go, hangs) = channel::<()>();
        let begun = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&begun);
        let hanging = move || {
            count.fetch_add(1, Ordering::Relaxed);
            hangs.recv().unwrap();
            1
        };
        assert_eq!(background.get(SHORT, hanging).unwrap(), None);
        assert_eq!(background.get(SHORT, || 2).unwrap(), None);
        let_go.send(()).unwrap();
        // It is the answer of the first read, unless that one was late.
        assert!(matches!(background.get(LONG, || 3).unwrap(), Some(1 | 3)));
        assert_eq!(background.get(LONG, || 4).unwrap(), Some(4));
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_read_that_panics_gives_nothing() {
        let mut background = Background::<u32>::default();
        assert_eq!(background.get(LONG, || panic!("a test")).unwrap(), None);
        assert_eq!(background.get(LONG, || 4).unwrap(), Some(4));
    }
}
