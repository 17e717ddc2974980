//! Delivery of events to several sinks, each behind a bounded queue and on a thread of its own.

mod held;
mod queue;
mod size;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use isotherm_core::BoxError;
use isotherm_kernel::scheduling::GivingWay;

use crate::pace::{HelperCpu, HelperThread};
use crate::suspended::Suspensions;
use crate::{Control, Event, Notice, RunError, chain};
use queue::{CAPACITY, Queue};

pub(crate) use queue::Overflow;

/// The name of the sink that records.
pub(crate) const RECORDING: &str = "recording";

/// Takes the events of a run, on a thread of its own.
///
/// A closure `FnMut(&Event) -> Result<(), BoxError>` is a sink.
pub trait EventSink: Send {
    /// Takes one event. The last is [`Event::End`].
    ///
    /// # Errors
    /// The sink gets no further event. [`Need`] says what becomes of the run.
    fn event(&mut self, event: &Event) -> Result<(), BoxError>;
}

impl<F: FnMut(&Event) -> Result<(), BoxError> + Send> EventSink for F {
    fn event(&mut self, event: &Event) -> Result<(), BoxError> {
        self(event)
    }
}

/// Whether a run goes on when one of its sinks fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The run ends, and fails with the error of the sink.
    Needed,
    /// The run goes on without the sink. A notice tells all others ([`NoticeKind::Detached`](crate::NoticeKind)), and
    /// [`Summary::detached`](crate::Summary::detached) has the error.
    Optional,
}

/// The events of a run, in their order: an iterator that ends after [`Event::End`].
///
/// Dropping it before is allowed; the run continues without it. The CPU time of the thread that iterates counts as that
/// of the run.
#[derive(Debug)]
pub struct Events {
    queue: Arc<Queue>,
    helpers: HelperCpu,
    thread: Option<HelperThread>,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let event = self.queue.pop();
        self.thread.get_or_insert_with(|| self.helpers.thread()).count();
        event
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

/// The sinks of a run that has not started yet.
#[derive(Default)]
pub(crate) struct Sinks {
    queues: Vec<Arc<Queue>>,
    named: Vec<NamedSink>,
    helpers: HelperCpu,
}

struct NamedSink {
    name: String,
    need: Need,
    sink: Box<dyn EventSink>,
    queue: Arc<Queue>,
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named.iter().map(|of| &of.name)).finish()
    }
}

impl Sinks {
    /// What the threads of the sinks cost.
    pub(crate) fn helpers(&self) -> &HelperCpu {
        &self.helpers
    }

    /// A further receiver.
    pub(crate) fn subscribe(&mut self) -> Events {
        Events { queue: self.queue(), helpers: self.helpers.clone(), thread: None }
    }

    /// A further sink. `name` names it in error messages, and its thread.
    pub(crate) fn add(&mut self, name: &str, need: Need, sink: Box<dyn EventSink>) {
        let queue = self.queue();
        self.named.push(NamedSink { name: name.into(), need, sink, queue });
    }

    fn queue(&mut self) -> Arc<Queue> {
        let queue = Arc::new(Queue::new(CAPACITY));
        self.queues.push(Arc::clone(&queue));
        queue
    }

    /// Starts a thread for each sink. A needed sink that fails stops the run by `control`.
    pub(crate) fn start(self, overflow: Overflow, control: &Control) -> Result<(Delivery, SinkThreads), RunError> {
        let (suspensions, failures) = (Suspensions::default(), Arc::default());
        let (queues, helpers) = (self.queues.into(), self.helpers);
        let delivery = Delivery { queues, overflow, helpers, suspensions, failures, view: None };
        let mut threads = SinkThreads { delivery: delivery.clone(), threads: Vec::new() };
        for of in self.named {
            let (name, control, delivery) = (of.name.clone(), control.clone(), delivery.clone());
            let work = move || of.run(&delivery, &control);
            let thread = std::thread::Builder::new().name(name.clone()).spawn(work);
            let thread = thread.map_err(|source| RunError::Thread { name, source })?;
            threads.threads.push(thread);
        }
        Ok((delivery, threads))
    }
}

impl NamedSink {
    /// Takes events until the last one, or until the sink fails.
    fn run(mut self, delivery: &Delivery, control: &Control) {
        let mut thread = delivery.helpers.thread();
        // What is recorded or drawn can wait.
        let _giving_way = GivingWay::begin();
        while let Some(event) = self.queue.pop() {
            // The sink is not used after a panic.
            let error = match catch_unwind(AssertUnwindSafe(|| self.sink.event(&event))) {
                Ok(Ok(())) => {
                    thread.count();
                    continue;
                }
                Ok(Err(source)) => RunError::Sink { name: self.name.clone(), source },
                Err(_) => RunError::Panicked { thread: self.name.clone() },
            };
            self.queue.abandon();
            match self.need {
                Need::Needed => {
                    delivery.failures().needed.get_or_insert(Arc::new(error));
                    control.stop();
                }
                Need::Optional => {
                    if self.name == RECORDING {
                        control.lose_recording(chain(&error));
                    }
                    delivery.send(Event::Notice(Notice::detached(&self.name, &chain(&error))));
                    delivery.failures().detached.push(Arc::new(error));
                }
            }
            return;
        }
    }
}

/// The errors of sinks.
#[derive(Debug, Default)]
struct Failures {
    /// The first error of a needed sink.
    needed: Option<Arc<RunError>>,
    /// The errors of optional sinks, in their order.
    detached: Vec<Arc<RunError>>,
}

/// Hands events to every sink.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    queues: Arc<[Arc<Queue>]>,
    overflow: Overflow,
    helpers: HelperCpu,
    suspensions: Suspensions,
    failures: Arc<Mutex<Failures>>,
    /// If it is the delivery of a view, where its events go.
    view: Option<Arc<ToView>>,
}

/// Where the events of a view go that come from the view itself.
struct ToView {
    run: Delivery,
    send: Box<dyn Fn(Event) + Send + Sync>,
}

impl fmt::Debug for ToView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToView").finish_non_exhaustive()
    }
}

impl Delivery {
    /// A delivery of events of one view of the run, at once and on the calling thread. Threads that use it help the
    /// run.
    pub(crate) fn of_view(&self, send: impl Fn(Event) + Send + Sync + 'static) -> Self {
        let view = ToView { run: self.clone(), send: Box::new(send) };
        Self { queues: Arc::new([]), view: Some(Arc::new(view)), ..self.clone() }
    }

    /// Moves the times of events.
    pub(crate) fn suspensions(&self) -> &Suspensions {
        &self.suspensions
    }

    /// What the threads of the sinks cost.
    pub(crate) fn helpers(&self) -> &HelperCpu {
        &self.helpers
    }

    /// Whether the source keeps to a clock, so that events wait for sinks.
    pub(crate) fn is_live(&self) -> bool {
        self.overflow == Overflow::Miss
    }

    /// Hands over an event. Never waits for a sink unless the source has no clock to keep to.
    pub(crate) fn send(&self, event: Event) {
        let (mark, event) = self.suspensions.place(event);
        if let Some(view) = &self.view {
            mark.into_iter().for_each(|mark| view.run.push(Event::Mark(mark)));
            (view.send)(event);
            return;
        }
        mark.into_iter().for_each(|mark| self.push(Event::Mark(mark)));
        self.push(event);
    }

    /// Hands over an event whose time is as sinks get it.
    fn push(&self, event: Event) {
        let bytes = size::bytes(&event);
        for queue in self.queues.iter() {
            queue.push(event.clone(), bytes, self.overflow);
        }
    }

    /// Says that no event follows.
    pub(crate) fn end(&self) {
        self.queues.iter().for_each(|queue| queue.end());
    }

    /// The first error of a needed sink.
    pub(crate) fn failure(&self) -> Option<Arc<RunError>> {
        self.failures().needed.clone()
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads of the sinks. Dropping them, as at the start of a run that fails, ends the delivery and waits for them:
/// no sink waits for events that never come, and each closes its files.
#[derive(Debug)]
pub(crate) struct SinkThreads {
    delivery: Delivery,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for SinkThreads {
    fn drop(&mut self) {
        self.delivery.end();
        for thread in self.threads.drain(..) {
            // What made the start fail is told, and not what followed from it.
            let _ = thread.join();
        }
    }
}

impl SinkThreads {
    /// Waits until every sink has taken its last event. Returns the errors of optional sinks.
    ///
    /// # Errors
    /// The first error of a needed sink.
    pub(crate) fn join(mut self) -> Result<Vec<Arc<RunError>>, Arc<RunError>> {
        for thread in self.threads.drain(..) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            thread.join().map_err(|_| RunError::Panicked { thread: name })?;
        }
        let Failures { needed, detached } = std::mem::take(&mut *self.delivery.failures());
        needed.map_or(Ok(detached), Err)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::{EndReason, MarkSocket, NoticeKind, RunningRecording, Severity};

    #[test]
    fn a_recording_that_is_given_up_takes_no_marks_and_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let control = Control::new().unwrap();
        let _socket = MarkSocket::open(&path, control.clone()).unwrap();
        let mark = || {
            let running = RunningRecording::all().unwrap().into_iter().find(|running| running.is_at(&path));
            running.unwrap().mark(b"here").map_err(|error| error.to_string())
        };
        assert_eq!(mark(), Ok(()));
        let mut sinks = Sinks::default();
        sinks.add(RECORDING, Need::Optional, Box::new(|_: &Event| -> Result<(), BoxError> { Err("no space".into()) }));
        let (delivery, threads) = sinks.start(Overflow::Miss, &control).unwrap();
        delivery.send(Event::End(EndReason::Finished));
        delivery.end();
        threads.join().unwrap();
        let why = "its recorder refused it: it is written no longer: the sink \"recording\" failed: no space";
        assert_eq!(mark(), Err(why.into()));
    }

    #[test]
    fn the_others_are_told_at_once_of_an_optional_sink_that_failed() {
        let mut sinks = Sinks::default();
        sinks.add("full", Need::Optional, Box::new(|_: &Event| -> Result<(), BoxError> { Err("no space".into()) }));
        let mut events = sinks.subscribe();
        let (delivery, threads) = sinks.start(Overflow::Miss, &Control::new().unwrap()).unwrap();
        delivery.send(Event::Notice(Notice::new(Severity::Info, "the first event")));
        events.next().unwrap();
        // Comes while the run goes on.
        let Some(Event::Notice(notice)) = events.next() else { panic!("no word of the sink") };
        assert_eq!(notice.kind, NoticeKind::Detached { sink: "full".into() });
        assert_eq!(&*notice.text, "the sink \"full\" failed: no space; the run goes on without it");
        delivery.send(Event::End(EndReason::Finished));
        delivery.end();
        assert!(matches!(events.next(), Some(Event::End(EndReason::Finished))));
        assert_eq!((threads.join().unwrap().len(), delivery.failure().is_none()), (1, true));
    }
}
