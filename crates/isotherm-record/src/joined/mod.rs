//! Several recordings, read as one stream of events.
//!
//! The recordings are laid on one time axis by the time at which they started. In a recording, a snapshot has all
//! targets that are watched at its time, and so does a survey; reports rely on that. Therefore snapshots of recordings
//! that cover the same time are joined: at the time of a snapshot of the stream, each recording has the snapshot that
//! covers this time ([`join`]). The same holds for surveys and activities. Targets of different machines are different
//! targets, also where their process IDs are the same.

mod error;
mod header;
mod join;
mod pass;
mod place;
mod sums;

use std::iter::Peekable;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::{Contents, Event, Header, Needs, Recording};
use pass::Pass;
use place::Place;

pub use error::JoinError;

/// Several recordings that are read as one: rotated files, or those of several machines.
#[derive(Debug)]
pub struct Joined {
    /// In the order of their starts.
    recordings: Vec<Recording>,
    places: Vec<Place>,
    /// What the machines are called, by their numbers. Empty if there is one.
    machines: Vec<Arc<str>>,
    header: Header,
}

impl Joined {
    /// Lays recordings on one time axis: time 0 is the start of the one that started first, by the wall clock. It reads
    /// how long each is.
    ///
    /// # Errors
    /// If `recordings` is empty, or if sums over the recordings would be wrong.
    pub fn new(mut recordings: Vec<Recording>) -> Result<Self, JoinError> {
        recordings.sort_by_key(|recording| recording.header().started_unix_ns);
        let (first, others) = recordings.split_first().ok_or(JoinError::Nothing)?;
        for other in others {
            if let Some(what) = header::difference(first.header(), other.header()) {
                return Err(JoinError::Differ { first: first.path().into(), second: other.path().into(), what });
            }
        }
        let mut machines = vec![];
        let places: Vec<Place> = recordings
            .iter()
            .map(|recording| {
                let host = &recording.header().host;
                let known = machines.iter().position(|known| header::difference_of_machines(known, host).is_none());
                let machine = known.unwrap_or_else(|| {
                    machines.push(host.clone());
                    machines.len() - 1
                });
                Place::new(recording, machine as u32, first.header().started_unix_ns)
            })
            .collect();
        let headers: Vec<_> =
            recordings.iter().zip(&places).map(|(recording, place)| (recording.header(), place.time())).collect();
        let header = header::together(&headers).ok_or(JoinError::Nothing)?;
        let names = machines.iter().map(|host| host.name.as_str().into());
        let machines = if machines.len() > 1 { names.collect() } else { vec![] };
        Ok(Self { recordings, places, machines, header })
    }

    /// What is true for all of them.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The recordings, in the order of their starts.
    pub fn recordings(&self) -> &[Recording] {
        &self.recordings
    }

    /// The time of the last snapshot or survey.
    pub fn end(&self) -> Duration {
        self.places.iter().map(|place| place.time().end).max().unwrap_or_default()
    }

    /// Whether each recording begins when the one before has ended, as rotated files do. Only then are there merged
    /// snapshots ([`Needs::merged`]): those of several recorders cover different times.
    pub fn is_sequence(&self) -> bool {
        self.places.is_sorted_by(|one, next| one.time().end <= next.time().start)
    }

    /// What the recordings have columns for.
    pub fn contents(&self) -> Contents {
        let has = |of: fn(&Contents) -> bool| self.recordings.iter().any(|recording| of(&recording.contents()));
        Contents {
            activities: has(|contents| contents.activities),
            surveys: has(|contents| contents.surveys),
            live: has(|contents| contents.live),
            marks: has(|contents| contents.marks),
            allocations: has(|contents| contents.allocations),
        }
    }

    /// What is needed of them, in the order of time. Each recording is opened when the time of the stream reaches it.
    /// Of those that are open, a few snapshots, surveys and batches are in memory.
    ///
    /// An error of one recording ends its events; those of the others follow. After any other error there is no further
    /// event.
    pub fn events(&self, needs: Needs) -> JoinedEvents<'_> {
        let needs = Needs { merged: needs.merged && self.is_sequence(), ..needs };
        let pass = Rc::new(Pass::new(self));
        let kinds = pass.kinds(needs).into_iter().map(Iterator::peekable).collect();
        JoinedEvents { pass, kinds }
    }

    /// Fails if they are of several machines.
    ///
    /// # Errors
    /// [`JoinError::Differ`], with what differs.
    pub fn must_be_of_one_machine(&self) -> Result<(), JoinError> {
        let Some((first, others)) = self.recordings.split_first() else { return Ok(()) };
        let differing = others.iter().find_map(|other| {
            Some((other, header::difference_of_machines(&first.header().host, &other.header().host)?))
        });
        match differing {
            Some((other, what)) => {
                Err(JoinError::Differ { first: first.path().into(), second: other.path().into(), what })
            }
            None => Ok(()),
        }
    }
}

/// The events of several recordings, in the order of time; of those of one time, in the order of
/// [`Events`](crate::Events).
pub struct JoinedEvents<'a> {
    pass: Rc<Pass<'a>>,
    /// The events of each kind.
    kinds: Vec<Peekable<Box<dyn Iterator<Item = Event> + 'a>>>,
}

impl Iterator for JoinedEvents<'_> {
    type Item = Result<Event, JoinError>;

    fn next(&mut self) -> Option<Self::Item> {
        let orders = self.kinds.iter_mut().enumerate().filter_map(|(nth, kind)| Some((kind.peek()?.order(), nth)));
        let first = orders.min();
        if let Some(error) = self.pass.take_error() {
            return Some(Err(error));
        }
        let (_, nth) = first.filter(|_| !self.pass.is_refused())?;
        self.kinds.get_mut(nth)?.next().map(Ok)
    }
}
