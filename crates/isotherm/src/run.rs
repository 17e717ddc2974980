//! `isotherm run`: monitor and act.

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use isotherm_core::scheme::Report;
use isotherm_record::{Activity, RecordError, Recorder};
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::siginfo::Cause;

use crate::cli::Run;
use crate::command::{self, Command, ENDING, OF_THE_COMMAND};
use crate::progress::{Progress, size};
use crate::record::{BACKLOG, header};
use crate::session::Control;
use crate::steering::{self, Word};
use crate::tell;
use crate::watch::{Ready, Watching};

/// What the schemes have to say is listened to at least this often, also while they sleep and nothing is found.
const PACE: Duration = Duration::from_millis(500);

pub fn run(options: &Run) -> Result<ExitCode> {
    let watch = &options.watch;
    steering::check("run", watch);
    // Whatever can fail without the command does so before the command is started.
    let ready = Ready::new("run", watch)?;
    let Some(schemes) = steering::Ready::new(&options.schemes)? else {
        return Ok(ExitCode::FAILURE);
    };
    let recorder =
        options.record.as_deref().map(|path| Recorder::create_with_activities(path, &header(&ready))).transpose()?;
    let control = Control::new()?;
    let command = if watch.command.is_empty() { None } else { Some(Command::start(&watch.command)?) };
    handle_signals(command.as_ref(), &schemes, &control)?;
    command::survive_file_size_limit()?;

    let acted = ready.session(watch, command.as_ref());
    let acted = acted.and_then(|session| Log::new(options, recorder).keep(session, schemes, control));
    match command {
        Some(command) => command::attend(command, acted, watch.duration.is_some()),
        None => acted.map(|()| ExitCode::SUCCESS),
    }
}

/// As [`command::handle_signals`], but that the hang-up that someone sends is for the schemes. The terminal's own is the end.
fn handle_signals(command: Option<&Command>, schemes: &steering::Ready, control: &Control) -> Result<()> {
    let (pid, reload, stop) = (command.map(Command::pid), schemes.reload(), control.stop.clone());
    let others = if pid.is_some() { &OF_THE_COMMAND[..] } else { &[] };
    command::on_signals(ENDING.into_iter().chain(others.iter().copied()), move |origin| match pid {
        _ if origin.signal == SIGHUP && origin.cause != Cause::Kernel => reload(),
        Some(command) => command::pass_on(command, origin),
        None => stop.ask(),
    })
}

/// What becomes of a run's findings and doings.
struct Log {
    progress: Progress,
    quiet: bool,
    recorder: Option<Recorder>,
    snapshots: u64,
    /// What the schemes have done so far.
    last: Option<Box<Activity>>,
}

impl Log {
    fn new(options: &Run, recorder: Option<Recorder>) -> Self {
        let quiet = options.quiet;
        Self { progress: Progress::new(quiet), quiet, recorder, snapshots: 0, last: None }
    }

    /// Runs monitor and schemes to their end.
    fn keep(mut self, session: Watching, schemes: steering::Ready, control: Control) -> Result<()> {
        let (sender, findings) = sync_channel(BACKLOG);
        let (speaker, words) = channel();
        let start = Instant::now();
        let schemes = schemes.start(session.roster(), control.clone(), speaker, self.recorder.is_some())?;
        let monitor = session.start(sender, control.clone())?;

        let mut written = Ok(());
        while written.is_ok() {
            match findings.recv_timeout(PACE) {
                Ok(finding) => {
                    self.progress.update(&finding);
                    self.snapshots += 1;
                    if let Some(recorder) = &mut self.recorder {
                        written = recorder.write(&finding.snapshot, &finding.cost, &|id| finding.info(id));
                    }
                    schemes.offer(finding.snapshot);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            written = written.and_then(|()| self.listen(&words));
        }
        control.stop.ask();
        // Findings that nobody takes must not keep the monitor from its end.
        drop(findings);
        let watched = monitor.join().unwrap_or_else(|_| bail!("the monitor's thread died of a bug in isotherm"));
        let acted = schemes.end();
        written = written.and_then(|()| self.listen(&words));
        self.progress.clear();
        // What failed first is the cause of all that followed.
        written?;
        acted?;
        watched?;
        self.tell(start.elapsed())
    }

    /// Takes what the schemes have said.
    fn listen(&mut self, words: &Receiver<Word>) -> Result<(), RecordError> {
        for word in words.try_iter() {
            match word {
                Word::Activity(activity) => {
                    self.progress.acted(&activity);
                    if let Some(recorder) = &mut self.recorder {
                        recorder.write_activity(&activity)?;
                    }
                    self.last = Some(activity);
                }
                Word::Complaint(what) => {
                    self.progress.clear();
                    tell(format_args!("isotherm: {what}"));
                }
                Word::Note(what) if !self.quiet => {
                    self.progress.clear();
                    tell(format_args!("isotherm: {what}"));
                }
                Word::Note(_) | Word::InForce(_) => {}
            }
        }
        Ok(())
    }

    /// Tells what was done, when all is over.
    fn tell(self, lasted: Duration) -> Result<()> {
        self.progress.warn_of_gaps();
        let recorded = self.recorder.map(|recorder| {
            let path = recorder.path().display().to_string();
            recorder
                .finish()
                .map(|bytes| format!("{} in {path}; what next: isotherm report schemes {path}", size(bytes)))
        });
        let recorded = recorded.transpose()?;
        if self.quiet {
            return Ok(());
        }
        let plural = if self.snapshots == 1 { "" } else { "s" };
        tell(format_args!("isotherm: {} snapshot{plural} in {lasted:.1?}", self.snapshots));
        for report in self.last.iter().flat_map(|activity| &activity.schemes) {
            tell(format_args!("  {}", summary(report)));
        }
        if let Some(recorded) = recorded {
            tell(format_args!("  {recorded}"));
        }
        Ok(())
    }
}

/// What a scheme did, in a line.
fn summary(report: &Report) -> String {
    let total = &report.total;
    let mut line = format!(
        "{} ({}): {} in {} ranges",
        report.name,
        report.action,
        size(total.applied_bytes),
        total.applied_regions
    );
    for count in &total.refusals {
        let words = count.refusal.code.map(|code| format!(": {}", std::io::Error::from_raw_os_error(code)));
        line += &format!("; {} refused: {}{}", size(count.bytes), count.refusal.reason, words.unwrap_or_default());
    }
    if total.rejected_bytes > 0 {
        line += &format!("; {} rejected by filters", size(total.rejected_bytes));
    }
    if total.quota_exceeded > 0 {
        line += &format!("; quota exceeded in {} periods", total.quota_exceeded);
    }
    if !total.time.is_zero() {
        line += &format!("; {:.1?} of work", total.time);
    }
    line
}
