//! Schemes that are applied on the source's thread, to each of its snapshots: for sources that need not keep real time.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Actuator, Gauges, PageInspector, Scheme, Schemes};
use isotherm_core::{Sink, Snapshot};
use isotherm_record::Activity;

use super::returns::notice;
use super::wakes;
use crate::outlet::Outlet;
use crate::{Event, RunError};

/// Schemes at work. After each snapshot an activity says what they did.
pub(crate) struct InlineSchemes<A, I, G> {
    engine: Schemes<A, I, G>,
}

impl<A: Actuator, I: PageInspector, G: Gauges> InlineSchemes<A, I, G> {
    /// Puts the schemes in force.
    pub(crate) fn new(
        schemes: Vec<Scheme>,
        actuator: A,
        inspector: I,
        gauges: G,
        outlet: &Outlet,
    ) -> Result<Self, RunError> {
        let engine = Schemes::new(schemes, actuator, inspector, gauges)?;
        outlet.send(Event::Schemes(engine.schemes().cloned().collect()));
        Ok(Self { engine })
    }

    pub(crate) fn inspector_mut(&mut self) -> &mut I {
        self.engine.inspector_mut()
    }

    /// Applies the schemes to a snapshot.
    pub(crate) fn apply(&mut self, snapshot: &Snapshot, outlet: &Outlet) -> Result<(), RunError> {
        self.engine.aggregated(snapshot).map_err(RunError::Schemes)?;
        outlet.send(Event::Activity(Arc::new(Activity {
            time: snapshot.time,
            schemes: self.engine.reports().cloned().collect(),
            ..Activity::default()
        })));
        for wake in self.engine.take_wakes() {
            outlet.send(Event::Notice(wakes::notice(&wake)));
        }
        for returns in self.engine.take_returns() {
            outlet.send(Event::Notice(notice(returns)));
        }
        Ok(())
    }

    /// If all schemes sleep: until when.
    pub(crate) fn sleeps_until(&self) -> Option<Duration> {
        self.engine.sleeps_until()
    }

    /// Looks at the watermarks.
    pub(crate) fn look(&mut self, now: Duration) {
        self.engine.look(now, &Snapshot::default());
    }
}
