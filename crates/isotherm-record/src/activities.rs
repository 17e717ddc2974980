//! Reading a recording: its activities.

use std::time::Duration;

use crate::activity::Identities;
use crate::batches::Batches;
use crate::source::Source;
use crate::{Activity, RecordError, decode};

/// The activities of a recording, in order of time. After an error there is no further one.
#[derive(Debug)]
pub struct Activities {
    /// None if the recording has no room for activities.
    batches: Option<Batches>,
    /// Of the last one.
    time: Duration,
    identities: Identities,
}

impl Activities {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            batches: source.has_activities().then(|| Batches::new(source)),
            time: Duration::ZERO,
            identities: Identities::default(),
        }
    }
}

impl Iterator for Activities {
    type Item = Result<Activity, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        loop {
            let last = self.time;
            let identities = &mut self.identities;
            let activity = batches.next(|batch, index| match decode::activity(batch, index, identities)? {
                Some(activity) if activity.time < last => Err("the time of activities goes backwards"),
                None => {
                    if let (pid, Some(info)) = decode::target(batch, index) {
                        identities.insert(pid, &info);
                    }
                    Ok(None)
                }
                activity => Ok(activity),
            });
            match activity.transpose()? {
                Ok(None) => {}
                Ok(Some(activity)) => {
                    self.time = activity.time;
                    return Some(Ok(activity));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
