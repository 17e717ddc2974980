//! A running session, and its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::command::Command;
use crate::delivery::SinkThreads;
use crate::outlet::Outlet;
use crate::recording::{RecordingSlot, RecordingSummary};
use crate::schemes::SchemeThread;
use crate::source::Source;
use crate::stacks::StackThread;
use crate::{Control, EndReason, RunError};

/// The name of the thread that the source runs on.
const THREAD: &str = "monitor";

/// A running session. Dropping it stops the run and waits for its end; [`wait`](Self::wait) waits for it to end by
/// itself.
pub struct Session {
    control: Control,
    command: Option<Command>,
    source: Option<JoinHandle<Ended>>,
    sinks: Option<SinkThreads>,
    recorded: Option<RecordingSlot>,
}

/// The threads that run in addition to that of the source.
pub(crate) struct Helpers {
    pub(crate) schemes: Option<SchemeThread>,
    pub(crate) stacks: Option<StackThread>,
}

impl Helpers {
    /// Ends them. The error is the first one.
    fn end(self) -> Result<(), RunError> {
        // The calls of the targets up to here are taken in, whatever happened to the schemes.
        let stacks = self.stacks.map_or(Ok(()), StackThread::end);
        self.schemes.map_or(Ok(()), SchemeThread::end).and(stacks)
    }
}

/// The result of the source's thread.
struct Ended {
    reason: EndReason,
    snapshots: u64,
    lasted: Duration,
}

/// The summary of a run.
#[derive(Debug)]
pub struct Summary {
    /// Why it ended. Never [`EndReason::Failed`]: a failed run is an error of [`Session::wait`].
    pub reason: EndReason,
    /// How many snapshots with a target there were.
    pub snapshots: u64,
    /// How long it lasted.
    pub lasted: Duration,
    /// The recording, if one was asked for and could be written to its end.
    pub recording: Option<RecordingSummary>,
    /// The errors of the optional sinks that failed ([`Need::Optional`](crate::Need::Optional)).
    pub detached: Vec<Arc<RunError>>,
    /// The command, if [`Prepared::start`](crate::Prepared::start) started one. It may still run, if the run ended
    /// before it.
    pub command: Option<Command>,
}

impl Session {
    pub(crate) fn start(
        source: Box<dyn Source>,
        mut outlet: Outlet,
        helpers: Helpers,
        sinks: SinkThreads,
        control: Control,
        command: Option<Command>,
        recorded: Option<RecordingSlot>,
    ) -> Result<Self, RunError> {
        let work = move || {
            let start = Instant::now();
            let run = AssertUnwindSafe(|| source.run(&mut outlet));
            let ran = catch_unwind(run).unwrap_or_else(|_| Err(RunError::Panicked { thread: THREAD.into() }));
            let lasted = start.elapsed();
            // The schemes tell what they did last before the end. What failed first is the cause of all that followed:
            // schemes that cannot go on stop the source, not the other way round.
            let acted = helpers.end();
            let reason = match acted.and(ran) {
                // A sink that the run needs and that failed has stopped the source.
                Ok(reason) => outlet.failure().map_or(reason, EndReason::Failed),
                Err(error) => EndReason::Failed(Arc::new(error)),
            };
            outlet.end(reason.clone());
            Ended { reason, snapshots: outlet.snapshots(), lasted }
        };
        let source = std::thread::Builder::new().name(THREAD.into()).spawn(work);
        let source = source.map_err(|source| RunError::Thread { name: THREAD.into(), source })?;
        Ok(Self { control, command, source: Some(source), sinks: Some(sinks), recorded })
    }

    /// Gives commands to the run.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The process ID of the command that [`Prepared::start`](crate::Prepared::start) started.
    pub fn command_pid(&self) -> Option<u32> {
        self.command.as_ref().map(Command::pid)
    }

    /// Waits until the run is over and every sink has taken its last event.
    ///
    /// # Errors
    /// The error that ended the run early: of a sink that it needs, of the schemes, or of the source.
    pub fn wait(mut self) -> Result<Summary, Arc<RunError>> {
        self.join()
    }

    /// Stops the run, and waits as [`wait`](Self::wait) does.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn stop(self) -> Result<Summary, Arc<RunError>> {
        self.control.stop();
        self.wait()
    }

    fn join(&mut self) -> Result<Summary, Arc<RunError>> {
        let panicked = || Arc::new(RunError::Panicked { thread: THREAD.into() });
        let ended = self.source.take().ok_or_else(panicked)?.join().map_err(|_| panicked())?;
        let detached = self.sinks.take().map_or(Ok(Vec::new()), SinkThreads::join)?;
        if let EndReason::Failed(error) = ended.reason {
            return Err(error);
        }
        let recorded = self.recorded.take();
        let recording = recorded.and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(Summary {
            reason: ended.reason,
            snapshots: ended.snapshots,
            lasted: ended.lasted,
            recording,
            detached,
            command: self.command.take(),
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.source.is_some() {
            self.control.stop();
            // Whoever drops a run does not ask what came of it.
            let _ = self.join();
        }
    }
}
