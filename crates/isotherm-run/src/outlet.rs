//! The interface through which a source delivers its results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::Attributes;
use isotherm_record::{Mark, MarkText, SnapshotRecord, SurveyRecord, TargetInfos};

use crate::delivery::Delivery;
use crate::pace::HelperCpu;
use crate::{Control, EndReason, Event, RunError, trace};

/// Takes the results of a source, and returns the requests of the session.
pub(crate) struct Outlet {
    pub(crate) control: Control,
    /// How long the run lasts at most.
    pub(crate) duration: Option<Duration>,
    delivery: Delivery,
    infos: TargetInfos,
    snapshots: u64,
    /// The time of the last snapshot, or of the last mark of the source if that is later.
    last: Duration,
}

impl Outlet {
    pub(crate) fn new(control: Control, duration: Option<Duration>, delivery: Delivery) -> Self {
        Self { control, duration, delivery, infos: Arc::default(), snapshots: 0, last: Duration::ZERO }
    }

    /// Hands over a snapshot, after the targets if they have changed. The schemes' thread gets it as well.
    pub(crate) fn snapshot(&mut self, record: Arc<SnapshotRecord>) {
        self.marks(self.control.marks.take());
        // One without targets is not recorded.
        self.snapshots += u64::from(!record.snapshot.targets.is_empty());
        self.last = record.snapshot.time;
        if !Arc::ptr_eq(&self.infos, &record.infos) {
            self.infos = Arc::clone(&record.infos);
            self.delivery.send(Event::Targets(Arc::clone(&record.infos)));
        }
        trace::aggregated(&record.snapshot);
        self.control.mailbox.put_snapshot(Arc::clone(&record));
        self.control.viewers.put_snapshot(&record);
        self.delivery.send(Event::Snapshot(self.for_sinks(record)));
    }

    /// The snapshot as sinks get it. A history that waits for a slow sink would keep all that has changed since, in
    /// each of the snapshots. Only the schemes need it.
    fn for_sinks(&self, record: Arc<SnapshotRecord>) -> Arc<SnapshotRecord> {
        if !self.delivery.is_live() || record.snapshot.histories.is_empty() {
            return record;
        }
        // Without schemes nothing else holds the snapshot, and nothing is copied.
        let mut record = Arc::unwrap_or_clone(record);
        record.snapshot.histories.clear();
        Arc::new(record)
    }

    /// Hands over a survey.
    pub(crate) fn survey(&self, record: SurveyRecord) {
        trace::surveyed(&record.survey);
        self.delivery.send(Event::Survey(Arc::new(record)));
    }

    /// Says which attributes are in force.
    pub(crate) fn attributes(&self, attributes: Attributes) {
        self.delivery.send(Event::Attributes(attributes));
    }

    /// Hands over a mark of the source.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.marks(self.control.marks.take());
        self.last = mark.time;
        self.delivery.send(Event::Mark(mark));
    }

    /// Hands over marks that were made since the last snapshot, in a run without a clock.
    fn marks(&self, texts: Vec<MarkText>) {
        for text in texts {
            self.delivery.send(Event::Mark(Mark { time: self.last, text }));
        }
    }

    /// Hands over any other event.
    pub(crate) fn send(&self, event: Event) {
        self.delivery.send(event);
    }

    /// What the threads that help the run cost.
    pub(crate) fn helpers(&self) -> HelperCpu {
        self.delivery.helpers().clone()
    }

    /// The first error of a sink that the run needs.
    pub(crate) fn failure(&self) -> Option<Arc<RunError>> {
        self.delivery.failure()
    }

    /// Hands over the last event.
    pub(crate) fn end(&self, reason: EndReason) {
        self.marks(self.control.marks.end());
        self.delivery.send(Event::End(reason));
        self.delivery.end();
    }

    /// How many snapshots with a target were handed over.
    pub(crate) fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Says that the run goes by the clock, and began at `start`. Returns when it is over.
    pub(crate) fn begin(&self, start: Instant) -> Option<Instant> {
        let delivery = self.delivery.clone();
        delivery.suspensions().begin();
        self.control.begin(start);
        self.control.marks.start(start, move |mark| delivery.send(Event::Mark(mark)));
        self.duration.and_then(|duration| start.checked_add(duration))
    }
}
