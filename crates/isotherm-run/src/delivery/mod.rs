//! Delivery of events to several sinks, each behind a bounded queue and on a thread of its own.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use isotherm_core::BoxError;

use crate::pace::{HelperCpu, HelperThread};
use crate::suspended::Suspensions;
use crate::{Control, Event, RunError};
use queue::{CAPACITY, Queue};

pub(crate) use queue::Overflow;

/// Takes the events of a run, on a thread of its own.
///
/// A closure `FnMut(&Event) -> Result<(), BoxError>` is a sink.
pub trait EventSink: Send {
    /// Takes one event. The last is [`Event::End`].
    ///
    /// # Errors
    /// Ends the run, which then fails with this error. The sink gets no further event.
    fn event(&mut self, event: &Event) -> Result<(), BoxError>;
}

impl<F: FnMut(&Event) -> Result<(), BoxError> + Send> EventSink for F {
    fn event(&mut self, event: &Event) -> Result<(), BoxError> {
        self(event)
    }
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
    named: Vec<(String, Box<dyn EventSink>, Arc<Queue>)>,
    helpers: HelperCpu,
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named.iter().map(|(name, ..)| name)).finish()
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
    pub(crate) fn add(&mut self, name: &str, sink: Box<dyn EventSink>) {
        let queue = self.queue();
        self.named.push((name.into(), sink, queue));
    }

    fn queue(&mut self) -> Arc<Queue> {
        let queue = Arc::new(Queue::new(CAPACITY));
        self.queues.push(Arc::clone(&queue));
        queue
    }

    /// Starts a thread for each sink. A sink that fails stops the run by `control`.
    pub(crate) fn start(self, overflow: Overflow, control: &Control) -> Result<(Delivery, SinkThreads), RunError> {
        let suspensions = Suspensions::default();
        let delivery = Delivery { queues: self.queues.into(), overflow, helpers: self.helpers, suspensions };
        let mut threads = SinkThreads { delivery: delivery.clone(), threads: Vec::new() };
        for (name, mut sink, queue) in self.named {
            let control = control.clone();
            let helpers = delivery.helpers.clone();
            let work = move || {
                let mut thread = helpers.thread();
                while let Some(event) = queue.pop() {
                    if let Err(error) = sink.event(&event) {
                        queue.abandon();
                        control.stop();
                        return Err(error);
                    }
                    thread.count();
                }
                Ok(())
            };
            let thread = std::thread::Builder::new().name(name.clone()).spawn(work);
            let thread = thread.map_err(|source| RunError::Thread { name: name.clone(), source })?;
            threads.threads.push((name, thread));
        }
        Ok((delivery, threads))
    }
}

/// Hands events to every sink.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    queues: Arc<[Arc<Queue>]>,
    overflow: Overflow,
    helpers: HelperCpu,
    suspensions: Suspensions,
}

impl Delivery {
    /// Moves the times of events.
    pub(crate) fn suspensions(&self) -> &Suspensions {
        &self.suspensions
    }

    /// What the threads of the sinks cost.
    pub(crate) fn helpers(&self) -> &HelperCpu {
        &self.helpers
    }

    /// Hands over an event. Never waits for a sink unless the source has no clock to keep to.
    pub(crate) fn send(&self, event: Event) {
        let (mark, event) = self.suspensions.place(event);
        for event in mark.map(Event::Mark).into_iter().chain([event]) {
            for queue in self.queues.iter() {
                queue.push(event.clone(), self.overflow);
            }
        }
    }

    /// Says that no event follows.
    pub(crate) fn end(&self) {
        self.queues.iter().for_each(|queue| queue.end());
    }
}

/// The threads of the sinks. Dropping them, as at the start of a run that fails, ends the delivery and waits for them:
/// no sink waits for events that never come, and each closes its files.
#[derive(Debug)]
pub(crate) struct SinkThreads {
    delivery: Delivery,
    threads: Vec<(String, JoinHandle<Result<(), BoxError>>)>,
}

impl Drop for SinkThreads {
    fn drop(&mut self) {
        self.delivery.end();
        for (_, thread) in self.threads.drain(..) {
            // What made the start fail is told, and not what followed from it.
            let _ = thread.join();
        }
    }
}

impl SinkThreads {
    /// Waits until every sink has taken its last event.
    ///
    /// # Errors
    /// The first error of a sink.
    pub(crate) fn join(mut self) -> Result<(), RunError> {
        let mut first = Ok(());
        for (name, thread) in self.threads.drain(..) {
            let ended = match thread.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(RunError::Sink { name, source }),
                Err(_) => Err(RunError::Panicked { thread: name }),
            };
            first = first.and(ended);
        }
        first
    }
}
