//! The sink of a shared run that hands each view its part of the events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use isotherm_core::{BoxError, TargetId};
use isotherm_record::{SnapshotRecord, SurveyRecord};

use super::view::ViewState;
use super::{Shared, part};
use crate::{EndReason, Event, EventSink, Missed, Notice};

/// Divides events by the parties of their targets.
pub(super) struct Splitter {
    shared: Arc<Shared>,
    notices: Box<dyn FnMut(&Notice) + Send>,
}

impl Splitter {
    pub(super) fn new(shared: Arc<Shared>, notices: Box<dyn FnMut(&Notice) + Send>) -> Self {
        Self { shared, notices }
    }

    fn views(&self) -> Vec<Arc<ViewState>> {
        self.shared.views().values().cloned().collect()
    }

    fn to_all(&self, event: &Event) {
        self.views().iter().for_each(|view| view.send(event));
    }

    /// Which views the targets of an event belong to.
    fn members(&self, targets: impl Iterator<Item = TargetId>) -> Members {
        Members(targets.map(|id| (id, self.shared.parties.of(id))).collect())
    }

    fn snapshot(&self, all: &Arc<SnapshotRecord>) {
        self.shared.now().time = all.snapshot.time;
        let described = all.infos.iter().map(|(id, _)| *id);
        let members = self.members(all.snapshot.targets.iter().map(|target| target.id).chain(described));
        let views = self.views();
        // Each region is sampled once a round, so that regions divide the cost.
        let regions = |number: u32| -> usize {
            let own = all.snapshot.targets.iter().filter(|target| members.has(number, target.id));
            own.map(|target| target.regions.len()).sum()
        };
        let weights: Vec<usize> = views.iter().map(|view| regions(view.number)).collect();
        let sum: usize = weights.iter().sum();
        for (view, weight) in views.iter().zip(weights) {
            let share = if sum > 0 { weight as f64 / sum as f64 } else { 1.0 / views.len() as f64 };
            let holds = |id: TargetId| members.has(view.number, id);
            view.send_part(|last| {
                let infos = part::infos(&all.infos, last, &holds);
                let is_all = views.len() == 1 && infos.len() == all.infos.len();
                let infos = if is_all { Arc::clone(&all.infos) } else { infos };
                let record = if is_all { Arc::clone(all) } else { Arc::new(part::record(all, &infos, share, &holds)) };
                (infos, Event::Snapshot(record))
            });
        }
    }

    fn survey(&self, all: &Arc<SurveyRecord>) {
        let described = all.infos.iter().map(|(id, _)| *id);
        let members = self.members(all.survey.targets.iter().map(|target| target.id).chain(described));
        let present = part::present(&all.survey.targets);
        for view in self.views() {
            let holds = |id: TargetId| members.has(view.number, id);
            view.send_part(|last| {
                let infos = part::infos(&all.infos, last, &holds);
                let record = part::survey(all, present, &infos, view.number, &holds);
                (infos, Event::Survey(Arc::new(record)))
            });
        }
    }

    /// Events that were missed, of each view in an equal share of their cost.
    fn missed(&self, all: &Missed) {
        let views = self.views();
        let cost = part::shared_cost(&all.cost, 1.0 / views.len().max(1) as f64);
        let event = Event::Missed(Missed { counts: all.counts.clone(), cost });
        views.iter().for_each(|view| view.send(&event));
    }
}

/// The numbers of the views that each target of an event belongs to.
struct Members(HashMap<TargetId, Arc<[u32]>>);

impl Members {
    fn has(&self, view: u32, id: TargetId) -> bool {
        self.0.get(&id).is_some_and(|views| views.contains(&view))
    }
}

impl EventSink for Splitter {
    fn event(&mut self, event: &Event) -> Result<(), BoxError> {
        match event {
            Event::Targets(infos) => {
                let living: HashSet<TargetId> = infos.iter().map(|(id, _)| *id).collect();
                self.shared.parties.retain(&living);
                self.shared.now().infos = Arc::clone(infos);
                let over = |view: &Arc<ViewState>| self.shared.parties.is_over(view.number);
                self.views().iter().filter(|view| over(view)).for_each(|view| view.end(EndReason::Finished));
            }
            Event::Attributes(attributes) => {
                self.shared.now().attributes = Some(*attributes);
                self.to_all(event);
            }
            Event::Pace { pace, not_afforded } => {
                self.shared.now().pace = Some((*pace, *not_afforded));
                self.to_all(event);
            }
            Event::Snapshot(record) => self.snapshot(record),
            Event::Survey(record) => self.survey(record),
            Event::Panel(all) => {
                let members = self.members(all.targets.iter().map(|target| target.id));
                for view in self.views() {
                    let holds = |id: TargetId| members.has(view.number, id);
                    view.send(&Event::Panel(Arc::new(part::panel(all, view.number, &holds))));
                }
            }
            Event::Notice(notice) => (self.notices)(notice),
            Event::Missed(missed) => self.missed(missed),
            Event::Mark(_) => self.to_all(event),
            Event::End(_) => {
                self.shared.is_over.store(true, Ordering::Relaxed);
                self.to_all(event);
            }
            // These come from schemes and from call stacks, of which a shared run has none.
            Event::Schemes(_) | Event::Activity(_) | Event::Allocations(_) => {}
        }
        Ok(())
    }
}
