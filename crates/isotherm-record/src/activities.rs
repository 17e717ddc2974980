//! Reading a recording: its activities.

use std::time::Duration;

use crate::batches::Batches;
use crate::decode::{Kind, Rows};
use crate::identities::Identities;
use crate::source::Source;
use crate::{Activity, RecordError, activity, columns};

/// The activities of a recording, in order of time. After an error there is no further one.
#[derive(Debug)]
pub struct Activities {
    /// `None` if the recording has no column for activities.
    batches: Option<Batches>,
    reader: ActivityReader,
}

/// Reads the rows of activities.
#[derive(Debug, Default)]
struct ActivityReader {
    /// The time of the last activity.
    time: Duration,
    identities: Identities,
}

impl Activities {
    pub(crate) fn new(source: Source) -> Self {
        Self { batches: Batches::with(columns::ACTIVITY, source), reader: ActivityReader::default() }
    }
}

impl ActivityReader {
    /// The activity in row `index`, if it is one.
    fn read(&mut self, rows: &Rows, index: usize) -> Result<Option<Activity>, &'static str> {
        match rows.kind(index) {
            Kind::Activity => {
                let found = rows.row(index).activity.ok_or("the row of an activity has none")?;
                let activity = activity::read(found, &self.identities)?;
                if activity.time < self.time {
                    return Err("the time of activities goes backwards");
                }
                self.time = activity.time;
                Ok(Some(activity))
            }
            Kind::Target | Kind::Survey => {
                self.identities.take(rows, index)?;
                Ok(None)
            }
            Kind::Mark | Kind::Allocations | Kind::Missed | Kind::Panel | Kind::Unknown => Ok(None),
        }
    }
}

impl Iterator for Activities {
    type Item = Result<Activity, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = &mut self.reader;
        self.batches.as_mut()?.find(|rows, index, _| reader.read(rows, index))
    }
}
