//! Commands to a run, from any thread.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use isotherm_core::Attributes;
use isotherm_core::scheme::Scheme;
use isotherm_kernel::{Rest, Stop};

use crate::RunError;
use crate::mailbox::Mailbox;
use crate::marks::{MarkError, Marks};
use crate::viewers::Viewers;

/// Gives commands to a run. Clones control the same run; a command to a run that is over does nothing.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Stop,
    pub(crate) rest: Rest,
    pending: Arc<Mutex<Pending>>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) marks: Arc<Marks>,
    /// The views of a shared run.
    pub(crate) viewers: Arc<Viewers>,
    /// When a run that goes by the clock began.
    began: Arc<OnceLock<Instant>>,
    /// Why there is no recording any longer, if there was one.
    lost_recording: Arc<OnceLock<String>>,
}

/// Commands that the source has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The attributes to put in force at the end of the aggregation.
    pub attributes: Option<Attributes>,
    /// The bounds of the number of regions to put in force with them.
    pub regions: Option<(usize, usize)>,
    /// Whether to read the mappings without waiting for the update interval.
    pub update: bool,
    /// Whether the run is to end. A source that waits by the clock learns it from the stop signal, and at once.
    pub stop: bool,
}

impl Pending {
    /// The attributes to put in force instead of these. `None` if they stay.
    pub fn attributes(&self, now: Attributes) -> Option<Attributes> {
        let Some((min, max)) = self.regions else { return self.attributes };
        // Bounds that contradict each other change nothing.
        self.attributes.unwrap_or(now).with_regions(min, max).ok().or(self.attributes)
    }
}

impl Control {
    pub(crate) fn new() -> Result<Self, RunError> {
        Ok(Self {
            stop: Stop::new().map_err(RunError::Descriptors)?,
            rest: Rest::new().map_err(RunError::Descriptors)?,
            pending: Arc::default(),
            mailbox: Arc::default(),
            marks: Arc::default(),
            viewers: Arc::default(),
            began: Arc::default(),
            lost_recording: Arc::default(),
        })
    }

    /// Control of a view of the run that `of` controls. Its times are those of the run.
    pub(crate) fn of_view(of: &Self) -> Result<Self, RunError> {
        Ok(Self { began: Arc::clone(&of.began), ..Self::new()? })
    }

    /// Ends the run after the round that it is in. It may be called in a signal handler's thread.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.stop.ask();
    }

    /// Changes the attributes at the end of the current aggregation interval.
    /// [`Event::Attributes`](crate::Event::Attributes)
    /// says when they are in force. Rates and the times that ages mean are carried over. A replay ignores it.
    pub fn set_attributes(&self, attributes: Attributes) {
        self.lock().attributes = Some(attributes);
    }

    /// Changes the bounds of the number of regions at the end of the current aggregation interval. The intervals stay,
    /// and follow from what is observed if they did before. Without effect if the minimum is below 3 or above the
    /// maximum. A replay ignores it.
    pub fn set_regions(&self, min: usize, max: usize) {
        self.lock().regions = Some((min, max));
    }

    /// Reads the mappings of the targets in the next sampling round, without waiting for the update interval.
    pub fn update(&self) {
        self.lock().update = true;
    }

    /// Puts other schemes in force. A scheme that has the name of one in force continues its statistics and its quota.
    /// [`Event::Schemes`](crate::Event::Schemes) says when they are in force; a warning says that they cannot work
    /// here.
    /// Without effect in a run that was prepared without schemes.
    pub fn set_schemes(&self, schemes: Vec<Scheme>) {
        self.mailbox.replace(schemes);
    }

    /// Reads the scheme file again. Without effect in a run without one.
    pub fn reload_schemes(&self) {
        self.mailbox.reload();
    }

    /// Gives this moment of the run a name, in UTF-8 or not, which the recording keeps. White space at its ends is left
    /// out, and what is longer than [`MarkText::LONGEST`](isotherm_record::MarkText::LONGEST) is cut.
    /// [`Event::Mark`](crate::Event::Mark) hands it to the sinks. It never waits.
    ///
    /// A mark that is made before the run starts is at its start. A simulation and a replay have no clock: there it is
    /// at the last snapshot.
    ///
    /// # Errors
    /// If there is no text, the run has too many marks, or it is over.
    pub fn mark(&self, text: impl AsRef<[u8]>) -> Result<(), MarkError> {
        self.marks.make(text.as_ref())
    }

    /// Notes that the run goes on without its recording, and why.
    pub(crate) fn lose_recording(&self, why: String) {
        // The first reason stays.
        let _ = self.lost_recording.set(why);
    }

    /// Why there is no recording any longer. `None` if there is one, or was none.
    pub(crate) fn lost_recording(&self) -> Option<&str> {
        self.lost_recording.get().map(String::as_str)
    }

    /// Notes that the run goes by the clock, and began at `start`.
    pub(crate) fn begin(&self, start: Instant) {
        // A run begins once.
        let _ = self.began.set(start);
    }

    /// When the run began. `None` if it has not, or does not go by the clock.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began.get().copied()
    }

    pub(crate) fn stop_signal(&self) -> Stop {
        self.stop.clone()
    }

    /// The commands since the last call.
    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
