//! The bounded queue between a run and one of its sinks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::held::Held;
use crate::{Event, Missed};

/// How many bytes of events wait for a sink at most. It is the memory of about half a minute of snapshots with the
/// default aggregation interval and the maximum number of regions.
pub(crate) const CAPACITY: usize = 32 << 20;

/// What a full queue does with a further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The event is counted as missed, or held if it must not be lost ([`Held`]). The sender never waits: for sources
    /// that follow the clock.
    Miss,
    /// The sender waits for free space. For sources without a clock, such as a replayed recording.
    Wait,
}

/// A queue with one sender side and one receiver.
#[derive(Debug)]
pub(crate) struct Queue {
    /// In bytes.
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The events, each with its bytes.
    events: VecDeque<(Event, usize)>,
    /// The sum of their bytes.
    bytes: usize,
    /// What was not delivered since the last event that was.
    missed: Missed,
    /// What waits for room, because it must not be lost. It comes after what was missed.
    held: Held,
    /// No event follows.
    ended: bool,
    /// Nobody takes events any more.
    abandoned: bool,
}

impl Queue {
    /// An empty queue that holds so many bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state whole, so a panic of another thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event of so many bytes. Returns whether the queue took it.
    pub(crate) fn push(&self, event: Event, bytes: usize, overflow: Overflow) -> bool {
        let mut state = self.lock();
        while overflow == Overflow::Wait && !state.has_room(self.capacity, bytes) && !state.abandoned && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.abandoned || state.ended {
            return false;
        }
        // The end is always delivered: a sink that waits for it would wait forever.
        let is_always_taken = matches!(event, Event::End(_));
        if !state.has_room(self.capacity, bytes) && !is_always_taken {
            let State { held, missed, .. } = &mut *state;
            held.put(event, missed);
            return false;
        }
        state.catch_up();
        state.ended = is_always_taken;
        state.add(event, bytes);
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
        *state = State { abandoned: true, ended: state.ended, ..State::default() };
        drop(state);
        self.changed.notify_all();
    }

    /// The next event, or `None` after the last. Waits for one if there is none yet.
    pub(crate) fn pop(&self) -> Option<Event> {
        let waiting = |state: &mut State| {
            if state.events.is_empty() {
                state.catch_up();
            }
            state.events.is_empty() && !state.ended
        };
        let waited = self.changed.wait_while(self.lock(), waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let (event, bytes) = state.events.pop_front()?;
        state.bytes -= bytes;
        drop(state);
        self.changed.notify_all();
        Some(event)
    }
}

impl State {
    /// Whether an event of so many bytes has room. One that is larger than the queue has room if nothing else waits.
    fn has_room(&self, capacity: usize, bytes: usize) -> bool {
        self.events.is_empty() || self.bytes.saturating_add(bytes) <= capacity
    }

    fn add(&mut self, event: Event, bytes: usize) {
        self.bytes += bytes;
        self.events.push_back((event, bytes));
    }

    /// Adds what was missed, and what was held.
    fn catch_up(&mut self) {
        if !self.missed.is_empty() {
            let missed = std::mem::take(&mut self.missed);
            self.add(Event::Missed(missed), 0);
        }
        for event in self.held.take() {
            let bytes = super::size::bytes(&event);
            self.add(event, bytes);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::scheme::{ActedRegion, Action, Application, Report, Statistics};
    use isotherm_core::{AddrRange, Snapshot, TargetId};
    use isotherm_record::{Activity, Cost, Mark, MarkText, MissedKind, SnapshotRecord, SurveyRecord};

    use super::*;
    use crate::EndReason;

    /// The bytes that each event of these tests takes.
    const ONE: usize = 10;

    fn push(queue: &Queue, event: Event) -> bool {
        queue.push(event, ONE, Overflow::Miss)
    }

    fn snapshot(second: u64) -> Event {
        let snapshot = Snapshot { time: Duration::from_secs(second), ..Snapshot::default() };
        let cost = Some(Cost { rounds: 20, cpu_ns: 1000, ..Cost::default() });
        Event::Snapshot(Arc::new(SnapshotRecord { snapshot, cost, ..SnapshotRecord::default() }))
    }

    fn mark(text: &[u8]) -> Event {
        Event::Mark(Mark { time: Duration::ZERO, text: MarkText::new(text).unwrap() })
    }

    /// What a scheme has done after so many applications, the last of which acted on a page at this address.
    fn activity(applications: u64, acted: Option<u64>) -> Event {
        let range = |at| AddrRange::new(at, at + 4096).unwrap();
        let acted = acted.map(|at| ActedRegion { target: TargetId::PhysicalMemory, range: range(at), applied: 4096 });
        let report = Report {
            total: Statistics { applications, ..Statistics::default() },
            last: Application { regions: acted.into_iter().collect(), ..Application::default() },
            ..Report::new("cold", Action::PageOut)
        };
        Event::Activity(Arc::new(Activity {
            time: Duration::from_secs(applications),
            schemes: vec![report],
            memory: vec![],
            system: isotherm_core::SystemMemory::default(),
            ..Activity::default()
        }))
    }

    fn seconds(events: &[Event]) -> Vec<u64> {
        let second = |event: &Event| match event {
            Event::Snapshot(record) => Some(record.snapshot.time.as_secs()),
            _ => None,
        };
        events.iter().filter_map(second).collect()
    }

    fn rest(queue: &Queue) -> Vec<Event> {
        queue.end();
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn a_full_queue_counts_what_it_misses_by_kind_and_says_so_in_its_place() {
        let queue = Queue::new(2 * ONE);
        let took: Vec<bool> = (0..5).map(|second| push(&queue, snapshot(second))).collect();
        assert_eq!(took, [true, true, false, false, false]);
        push(&queue, Event::Survey(Arc::new(SurveyRecord::default())));
        push(&queue, mark(b"late"));
        let first = [queue.pop().unwrap(), queue.pop().unwrap()];
        assert_eq!(seconds(&first), [0, 1]);

        push(&queue, snapshot(5));
        let Event::Missed(missed) = queue.pop().unwrap() else { panic!("what was missed comes before what follows") };
        assert_eq!((missed.cost.rounds, missed.cost.cpu_ns), (60, 3000));
        let counts: Vec<_> = missed.counts.iter().map(|of| (of.kind, of.count, of.time.as_secs())).collect();
        assert_eq!(counts, [(MissedKind::Snapshots, 3, 4), (MissedKind::Surveys, 1, 0), (MissedKind::Marks, 1, 0)]);
        assert_eq!(seconds(&[queue.pop().unwrap()]), [5]);
    }

    #[test]
    fn the_activities_that_a_full_queue_has_no_room_for_are_added_up_and_come_at_the_end_at_the_latest() {
        let queue = Queue::new(ONE);
        push(&queue, snapshot(0));
        for (applications, acted) in [(1, Some(0x1000)), (2, Some(0x2000)), (3, None)] {
            push(&queue, activity(applications, acted));
        }
        let events = rest(&queue);
        let [Event::Snapshot(_), Event::Missed(missed), Event::Activity(sum)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((missed.counts[0].kind, missed.counts[0].count), (MissedKind::Activities, 2));
        assert_eq!((sum.time.as_secs(), sum.schemes[0].total.applications), (3, 3));
        // The last application that acted on something since the activity before.
        assert_eq!(sum.schemes[0].last.regions[0].range.start(), 0x2000);
    }

    #[test]
    fn sums_of_schemes_that_begin_anew_while_a_queue_is_full_are_all_kept() {
        let queue = Queue::new(ONE);
        push(&queue, snapshot(0));
        for applications in [5, 9, 1, 2] {
            push(&queue, activity(applications, None));
        }
        let sums: Vec<u64> = rest(&queue)
            .iter()
            .filter_map(|event| match event {
                Event::Activity(activity) => Some(activity.schemes[0].total.applications),
                _ => None,
            })
            .collect();
        assert_eq!(sums, [9, 2]);
    }

    #[test]
    fn what_is_in_force_comes_when_a_full_queue_has_room_again() {
        let queue = Queue::new(ONE);
        push(&queue, snapshot(0));
        push(&queue, Event::Schemes(Arc::default()));
        push(&queue, Event::Targets([(TargetId::PhysicalMemory, Arc::default())].into()));
        push(&queue, Event::Targets(Arc::default()));
        queue.pop();
        let events = [queue.pop().unwrap(), queue.pop().unwrap()];
        assert!(matches!(&events[..], [Event::Schemes(_), Event::Targets(newest)] if newest.is_empty()), "{events:?}");
    }

    #[test]
    fn a_queue_is_bounded_by_bytes_and_takes_one_event_that_is_larger() {
        let queue = Queue::new(100);
        assert!(queue.push(snapshot(0), 1000, Overflow::Miss));
        assert!(!queue.push(snapshot(1), 1, Overflow::Miss));
        queue.pop();
        assert!((0..100).all(|second| queue.push(snapshot(second), 1, Overflow::Miss)));
        assert!(!queue.push(snapshot(100), 1, Overflow::Miss));
    }

    #[test]
    fn the_end_is_delivered_by_a_full_queue_and_nothing_follows_it() {
        let queue = Queue::new(ONE);
        push(&queue, snapshot(0));
        push(&queue, snapshot(1));
        push(&queue, Event::End(EndReason::Stopped));
        assert!(!push(&queue, snapshot(2)));
        let events = rest(&queue);
        assert!(matches!(events[..], [Event::Snapshot(_), Event::Missed(_), Event::End(EndReason::Stopped)]));
    }

    #[test]
    fn marks_are_within_the_bound() {
        let queue = Queue::new(10 * ONE);
        assert_eq!((0..20).filter(|_| push(&queue, mark(b"many"))).count(), 10);
        let Some(Event::Missed(missed)) = rest(&queue).pop() else { panic!("no word of what is missing") };
        assert_eq!((missed.counts[0].kind, missed.counts[0].count), (MissedKind::Marks, 10));
    }

    #[test]
    fn a_sender_that_waits_loses_nothing() {
        let queue = Arc::new(Queue::new(2 * ONE));
        let sender = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            (0..100).for_each(|second| assert!(sender.push(snapshot(second), ONE, Overflow::Wait)));
            sender.end();
        });
        let events: Vec<Event> = std::iter::from_fn(|| queue.pop()).collect();
        thread.join().unwrap();
        assert_eq!(seconds(&events), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_receiver_that_goes_away_frees_a_sender_that_waits() {
        let queue = Arc::new(Queue::new(ONE));
        let sender = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while sender.push(snapshot(sent), ONE, Overflow::Wait) {
                sent += 1;
            }
        });
        queue.pop().unwrap();
        queue.abandon();
        thread.join().unwrap();
    }
}
