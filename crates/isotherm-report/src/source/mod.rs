//! The source of events, the selection of what a report is about, and the walk that hands each event to accumulators.

mod selection;
mod visit;
mod walk;

use std::time::Duration;

use isotherm_core::{BoxError, PanelSnapshot};
use isotherm_record::{Activity, Ending, Event, Header, Joined, Needs, Recording, SurveyRecord};

use crate::ReportError;
use crate::names::Names;
use crate::sanitise;

pub use selection::{SelectedTarget, Selection};
pub(crate) use visit::KnownPiece;
pub use visit::{Piece, Share, Visit, pieces};
pub use walk::{Accumulator, Detail, Seen, Takes, walk};
pub(crate) use walk::{Feed, Walks};

/// The events of one walk over a source.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, BoxError>> + 'a>;

/// A recording, or something like it, whose events can be read several times.
pub trait Source {
    /// The header of the recording.
    fn header(&self) -> &Header;

    /// What is needed of it, in the order of time; of the events of one time, snapshots come first, and readings of the
    /// panel before surveys.
    ///
    /// # Errors
    /// If they cannot be read, at once or at any event.
    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError>;

    /// Why the recording ends before its run, if it does.
    fn cut_short(&self) -> Option<String> {
        None
    }

    /// The time of its last snapshot, if that is known without a walk.
    fn end(&self) -> Option<Duration> {
        None
    }

    /// Whether its events have merged snapshots where these are needed ([`Needs::merged`]).
    fn has_merged(&self) -> bool {
        false
    }
}

/// The events of one kind.
pub(crate) fn only<T: 'static>(
    source: &dyn Source,
    needs: Needs,
    item: fn(Event) -> Option<T>,
) -> Result<Items<'_, T>, ReportError> {
    let events = source.events(needs).map_err(ReportError::Source)?;
    Ok(Box::new(events.filter_map(move |event| event.map_err(ReportError::Source).map(item).transpose())))
}

/// Items of one kind, of one walk over a source, or why they cannot be read.
pub(crate) type Items<'a, T> = Box<dyn Iterator<Item = Result<T, ReportError>> + 'a>;

/// The surveys of a source. What they say by block is left out unless it is needed.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn surveys(source: &dyn Source, blocks: bool) -> Result<Items<'_, SurveyRecord>, ReportError> {
    only(source, Needs { surveys: true, blocks, ..Needs::NOTHING }, |event| {
        if let Event::Survey(record) = event { Some(record) } else { None }
    })
}

/// Whether a source has a survey.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn is_surveyed(source: &dyn Source) -> Result<bool, ReportError> {
    Ok(surveys(source, false)?.next().transpose()?.is_some())
}

/// The readings of the panel of a source.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn panels(source: &dyn Source) -> Result<Items<'_, PanelSnapshot>, ReportError> {
    only(source, Needs::PANELS, |event| if let Event::Panel(panel) = event { Some(panel) } else { None })
}

/// The activities of a source.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn activities(source: &dyn Source) -> Result<Items<'_, Activity>, ReportError> {
    only(source, Needs::ACTIVITIES, |event| if let Event::Activity(activity) = event { Some(activity) } else { None })
}

impl Source for Recording {
    fn header(&self) -> &Header {
        self.header()
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        Ok(Box::new(named(self.events(needs))))
    }

    fn end(&self) -> Option<Duration> {
        self.last_time()
    }

    fn has_merged(&self) -> bool {
        true
    }

    fn cut_short(&self) -> Option<String> {
        let damaged = damaged(self);
        let cut = match self.ending() {
            Ending::Whole => None,
            Ending::Unfinished => {
                Some("the recording has no end: it is still being made, or its recorder was killed".into())
            }
            Ending::CutShort { at } => Some(format!(
                "the recording is cut short: its recorder was killed, or the file was cut; whole up to byte {at}"
            )),
        };
        match (damaged, cut) {
            (Some(damaged), Some(cut)) => Some(format!("{damaged}; {cut}")),
            (damaged, cut) => damaged.or(cut),
        }
    }
}

impl Source for Joined {
    fn header(&self) -> &Header {
        self.header()
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        Ok(Box::new(named(self.events(needs))))
    }

    fn end(&self) -> Option<Duration> {
        self.is_sequence().then(|| self.end())
    }

    fn has_merged(&self) -> bool {
        self.is_sequence()
    }

    fn cut_short(&self) -> Option<String> {
        let each = self.recordings().iter().filter_map(|recording| {
            Some(format!("{}: {}", sanitise(&recording.path().display().to_string()), recording.cut_short()?))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}

/// The events with as many names of mappings as reports tell apart.
pub(crate) fn named<E: Into<BoxError>>(
    events: impl Iterator<Item = Result<Event, E>>,
) -> impl Iterator<Item = Result<Event, BoxError>> {
    let (mut of_snapshots, mut of_surveys) = (Names::default(), Names::default());
    events.map(move |event| {
        let mut event = event.map_err(Into::into)?;
        let time = event.time();
        match &mut event {
            Event::Snapshot(record) => record.snapshot.targets.iter_mut().for_each(|target| {
                target.mappings = of_snapshots.tell(time, target.id, &target.mappings);
            }),
            Event::Survey(record) => record.survey.targets.iter_mut().for_each(|target| {
                target.mappings = of_surveys.tell(time, target.id, &target.mappings);
            }),
            Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
        }
        Ok(event)
    })
}

/// What of a recording is missing because it is damaged.
fn damaged(recording: &Recording) -> Option<String> {
    let damage = recording.damage();
    let bytes: u64 = damage.iter().map(|part| part.end - part.start).sum();
    let parts = if damage.len() == 1 { "part" } else { "parts" };
    (!damage.is_empty()).then(|| {
        format!(
            "the recording is damaged: {} {parts} with {bytes} bytes cannot be read, and what they hold is missing; \
             `isotherm check` says where",
            damage.len()
        )
    })
}
