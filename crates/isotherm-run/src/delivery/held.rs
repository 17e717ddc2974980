//! What a full queue does with an event: it holds those that must not be lost, and counts the others as missed.

use std::sync::Arc;
use std::time::Duration;

use isotherm_record::{Activity, MissedKind};

use crate::{Event, Missed};

/// The events that wait for room in a full queue: of each kind that says what is in force, the newest one, and what
/// schemes have done, added up. So they are few, however long the queue is full.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// In the order in which they come.
    events: Vec<Event>,
}

impl Held {
    /// Takes an event that has no room. Counts what is lost of it.
    pub(super) fn put(&mut self, event: Event, missed: &mut Missed) {
        match event {
            Event::Snapshot(record) => {
                if let Some(cost) = record.cost {
                    missed.cost.add(&cost);
                }
                missed.count(MissedKind::Snapshots, record.snapshot.time, 1);
            }
            Event::Survey(record) => missed.count(MissedKind::Surveys, record.survey.time, 1),
            Event::Mark(mark) => missed.count(MissedKind::Marks, mark.time, 1),
            Event::Allocations(found) => {
                missed.count(MissedKind::Calls, found.time, found.calls.len() as u64 + found.lost);
            }
            Event::Notice(_) => missed.count(MissedKind::Notices, Duration::ZERO, 1),
            Event::Activity(activity) => self.add_activity(activity, missed),
            // What is in force from here on, and how much memory is in use now: earlier readings are of the past.
            Event::Targets(_) | Event::Attributes(_) | Event::Schemes(_) | Event::Pace { .. } | Event::Panel(_) => {
                let kind = std::mem::discriminant(&event);
                self.events.retain(|held| std::mem::discriminant(held) != kind);
                self.events.push(event);
            }
            Event::Missed(found) => missed.add(&found),
            // A queue always takes it.
            Event::End(_) => {}
        }
    }

    /// Adds up an activity and the one that is held. Both are held if schemes were changed in between.
    fn add_activity(&mut self, activity: Arc<Activity>, missed: &mut Missed) {
        let joined = self.events.iter().enumerate().rev().find_map(|(nth, held)| {
            let Event::Activity(earlier) = held else { return None };
            Some((nth, activity.joined(earlier)?))
        });
        let activity = match joined {
            Some((nth, joined)) => {
                self.events.remove(nth);
                missed.count(MissedKind::Activities, joined.time, 1);
                Arc::new(joined)
            }
            None => activity,
        };
        self.events.push(Event::Activity(activity));
    }

    /// What was held.
    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
