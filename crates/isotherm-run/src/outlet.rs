//! Where a source hands over what it finds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::Attributes;
use isotherm_record::{SnapshotRecord, SurveyRecord, TargetInfos};

use crate::delivery::Delivery;
use crate::pace::HelperCpu;
use crate::{Control, EndReason, Event};

/// Takes what a source finds, and tells it what the session wants.
pub(crate) struct Outlet {
    pub(crate) control: Control,
    /// How long the run lasts at most.
    pub(crate) duration: Option<Duration>,
    delivery: Delivery,
    infos: TargetInfos,
    snapshots: u64,
}

impl Outlet {
    pub(crate) fn new(control: Control, duration: Option<Duration>, delivery: Delivery) -> Self {
        Self { control, duration, delivery, infos: Arc::default(), snapshots: 0 }
    }

    /// Hands over a snapshot, after the targets if they have changed. The schemes' thread gets it as well.
    pub(crate) fn snapshot(&mut self, record: Arc<SnapshotRecord>) {
        self.snapshots += 1;
        if !Arc::ptr_eq(&self.infos, &record.infos) {
            self.infos = Arc::clone(&record.infos);
            self.delivery.send(Event::Targets(Arc::clone(&record.infos)));
        }
        self.control.mailbox.put_snapshot(Arc::clone(&record));
        self.delivery.send(Event::Snapshot(record));
    }

    /// Hands over a survey.
    pub(crate) fn survey(&self, record: SurveyRecord) {
        self.delivery.send(Event::Survey(Arc::new(record)));
    }

    /// Says which attributes are in force.
    pub(crate) fn attributes(&self, attributes: Attributes) {
        self.delivery.send(Event::Attributes(attributes));
    }

    /// Hands over any other event.
    pub(crate) fn send(&self, event: Event) {
        self.delivery.send(event);
    }

    /// What the threads that help the run cost.
    pub(crate) fn helpers(&self) -> HelperCpu {
        self.delivery.helpers().clone()
    }

    /// Hands over the last event.
    pub(crate) fn end(&self, reason: EndReason) {
        self.delivery.send(Event::End(reason));
        self.delivery.end();
    }

    /// How many snapshots were handed over.
    pub(crate) fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// When a run that starts now is over.
    pub(crate) fn deadline(&self, start: Instant) -> Option<Instant> {
        self.duration.and_then(|duration| start.checked_add(duration))
    }
}
