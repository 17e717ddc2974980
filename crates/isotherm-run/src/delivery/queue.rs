//! The bounded queue between a run and one of its sinks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Event, Missed};

/// How many events wait for a sink at most. With the default aggregation interval this is 25 s of snapshots.
pub(crate) const CAPACITY: usize = 256;

/// What a full queue does with a further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The event is counted as missed. The sender never waits: for sources that follow the clock. A mark is taken all
    /// the same, because a run makes a limited number of them, and many of them may come at once.
    Miss,
    /// The sender waits for free space. For sources without a clock, such as a replayed recording.
    Wait,
}

/// A queue with one sender side and one receiver.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// How many of the events are marks.
    marks: usize,
    /// What was not delivered since the last event that was.
    missed: Missed,
    /// No event follows.
    ended: bool,
    /// Nobody takes events any more.
    abandoned: bool,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state whole, so a panic of another thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. Returns whether the queue took it.
    pub(crate) fn push(&self, event: Event, overflow: Overflow) -> bool {
        let mut state = self.lock();
        while overflow == Overflow::Wait && state.events.len() >= self.capacity && !state.abandoned {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.abandoned {
            return false;
        }
        // The end is always delivered: a sink that waits for it would wait forever.
        let is_always_taken = matches!(event, Event::End(_) | Event::Mark(_));
        if state.is_full(self.capacity) && !is_always_taken {
            state.missed.count(&event);
            return false;
        }
        if !state.missed.is_empty() {
            let missed = std::mem::take(&mut state.missed);
            state.events.push_back(Event::Missed(missed));
        }
        state.marks += usize::from(matches!(event, Event::Mark(_)));
        state.events.push_back(event);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Says that no event follows.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Says that nobody takes events any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.abandoned = true;
        state.events.clear();
        state.marks = 0;
        drop(state);
        self.changed.notify_all();
    }

    /// The next event, or `None` after the last. Waits for one if there is none yet.
    pub(crate) fn pop(&self) -> Option<Event> {
        let waiting = |state: &mut State| state.events.is_empty() && !state.ended;
        let waited = self.changed.wait_while(self.lock(), waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let event = state.events.pop_front();
        state.marks -= usize::from(matches!(event, Some(Event::Mark(_))));
        drop(state);
        self.changed.notify_all();
        event
    }
}

impl State {
    /// Whether no event has room but those that are always taken.
    fn is_full(&self, capacity: usize) -> bool {
        self.events.len() - self.marks >= capacity
    }
}

impl Missed {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Snapshot(record) => {
                self.snapshots += 1;
                if let Some(cost) = record.cost {
                    self.cost.add(&cost);
                }
            }
            _ => self.others += 1,
        }
    }

    fn is_empty(&self) -> bool {
        self.snapshots == 0 && self.others == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::Snapshot;
    use isotherm_record::{Cost, Mark, MarkText, SnapshotRecord};

    use super::*;
    use crate::EndReason;

    fn snapshot(second: u64) -> Event {
        let snapshot = Snapshot { time: Duration::from_secs(second), ..Snapshot::default() };
        let cost = Some(Cost { rounds: 20, cpu_ns: 1000, ..Cost::default() });
        Event::Snapshot(Arc::new(SnapshotRecord { snapshot, cost, infos: Arc::default() }))
    }

    fn seconds(events: &[Event]) -> Vec<u64> {
        let second = |event: &Event| match event {
            Event::Snapshot(record) => Some(record.snapshot.time.as_secs()),
            _ => None,
        };
        events.iter().filter_map(second).collect()
    }

    #[test]
    fn a_full_queue_counts_what_it_misses_and_says_so_in_its_place() {
        let queue = Queue::new(2);
        let took: Vec<bool> = (0..5).map(|second| queue.push(snapshot(second), Overflow::Miss)).collect();
        assert_eq!(took, [true, true, false, false, false]);
        let first = [queue.pop().unwrap(), queue.pop().unwrap()];
        assert_eq!(seconds(&first), [0, 1]);

        queue.push(snapshot(5), Overflow::Miss);
        let Event::Missed(missed) = queue.pop().unwrap() else { panic!("what was missed comes before what follows") };
        assert_eq!((missed.snapshots, missed.cost.rounds, missed.cost.cpu_ns), (3, 60, 3000));
        assert_eq!(seconds(&[queue.pop().unwrap()]), [5]);
    }

    #[test]
    fn the_end_is_delivered_by_a_full_queue() {
        let queue = Queue::new(1);
        queue.push(snapshot(0), Overflow::Miss);
        queue.push(snapshot(1), Overflow::Miss);
        queue.push(Event::End(EndReason::Stopped), Overflow::Miss);
        queue.end();
        let events: Vec<Event> = std::iter::from_fn(|| queue.pop()).collect();
        assert!(matches!(events[..], [Event::Snapshot(_), Event::Missed(_), Event::End(EndReason::Stopped)]));
    }

    #[test]
    fn marks_are_taken_by_a_full_queue_and_take_no_room_of_others() {
        let mark = |text: &[u8]| Event::Mark(Mark { time: Duration::ZERO, text: MarkText::new(text).unwrap() });
        let queue = Queue::new(1);
        assert!((0..10).all(|_| queue.push(mark(b"early"), Overflow::Miss)));
        assert!(queue.push(snapshot(0), Overflow::Miss));
        assert!(!queue.push(snapshot(1), Overflow::Miss));
        assert!(queue.push(mark(b"late"), Overflow::Miss));
        let events: Vec<Event> = std::iter::repeat_with(|| queue.pop().unwrap()).take(13).collect();
        assert!(matches!(events[10..], [Event::Snapshot(_), Event::Missed(_), Event::Mark(_)]));
        assert!(queue.push(snapshot(2), Overflow::Miss));
    }

    #[test]
    fn a_sender_that_waits_loses_nothing() {
        let queue = Arc::new(Queue::new(2));
        let sender = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            (0..100).for_each(|second| assert!(sender.push(snapshot(second), Overflow::Wait)));
            sender.end();
        });
        let events: Vec<Event> = std::iter::from_fn(|| queue.pop()).collect();
        thread.join().unwrap();
        assert_eq!(seconds(&events), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_receiver_that_goes_away_frees_a_sender_that_waits() {
        let queue = Arc::new(Queue::new(1));
        let sender = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while sender.push(snapshot(sent), Overflow::Wait) {
                sent += 1;
            }
        });
        queue.pop().unwrap();
        queue.abandon();
        thread.join().unwrap();
    }
}
