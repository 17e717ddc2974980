//! `isotherm run`: watches memory, and acts on it by schemes.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use isotherm_core::scheme::{Action, RefusalCount, RefusalReason, Report};
use isotherm_core::units;
use isotherm_record::Activity;
use isotherm_report::net_freed;
use isotherm_run::{Command, Control, Event, Events, Need, Prepared, SchemeSource, Summary};
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::siginfo::Cause;

use crate::cli::Run;
use crate::command::{self, ENDING, OF_THE_COMMAND};
use crate::ending::{NOT_BY_PAGE, NotSeen};
use crate::progress::Progress;
use crate::watch::Call;
use crate::{marks, tell};

pub fn run(options: &Run) -> Result<ExitCode> {
    let call = Call {
        files: Some(&options.files),
        schemes: Some(SchemeSource::File(options.schemes.clone())),
        memory_use: options.record.is_some(),
        dry_run: options.dry_run,
        recording: options.record.clone(),
        recording_need: options.record_needed.then_some(Need::Needed),
        quiet: options.quiet,
        streams: marks::streams(options.stdin_marks),
        ..Call::new("run", &options.watch).with(&options.physical)
    };
    apply(call, handle_signals, Progress::new(options.quiet))
}

/// Makes a run that acts by the schemes of the call, until its end. Signals are handled by `signals`.
pub fn apply(
    call: Call,
    signals: impl FnOnce(Option<&Command>, Control) -> Result<()>,
    progress: Progress,
) -> Result<ExitCode> {
    let (quiet, dry_run) = (call.quiet, call.dry_run);
    marks::make_run(call, signals, |run, events| act(run, events, (quiet, dry_run), progress))
}

/// Like [`command::handle_signals`], but a SIGHUP from a process reloads the schemes. A SIGHUP from the terminal ends
/// the run.
fn handle_signals(command: Option<&Command>, control: Control) -> Result<()> {
    let pid = command.map(Command::pid);
    let others = if pid.is_some() { &OF_THE_COMMAND[..] } else { &[] };
    command::on_signals(ENDING.into_iter().chain(others.iter().copied()), move |origin| match pid {
        _ if origin.signal == SIGHUP && origin.cause != Cause::Kernel => control.reload_schemes(),
        Some(command) => command::pass_on(command, origin),
        None => control.stop(),
    })
}

/// Watches and acts until the end of the run, and shows the progress.
fn act(run: Prepared, events: Events, (quiet, dry_run): (bool, bool), mut progress: Progress) -> Result<()> {
    let mut not_seen = NotSeen::default();
    let session = run.start()?;
    let mut last: Option<Arc<Activity>> = None;
    let summary = progress.follow(session, events, |event| {
        not_seen.event(event);
        if let Event::Activity(activity) = event {
            last = Some(Arc::clone(activity));
        }
    })?;
    progress.warn_of_gaps();
    if !quiet {
        report(&summary, last.as_deref(), &not_seen, dry_run);
    }
    Ok(())
}

/// Prints a summary of the run.
fn report(summary: &Summary, last: Option<&Activity>, not_seen: &NotSeen, dry_run: bool) {
    let plural = if summary.snapshots == 1 { "" } else { "s" };
    let lasted = units::duration(summary.lasted);
    tell(format_args!("isotherm: {} snapshot{plural} in {}", summary.snapshots, lasted));
    if dry_run {
        tell("a dry run: nothing was done; this is what the schemes would have done");
    }
    for report in last.iter().flat_map(|activity| &activity.schemes) {
        tell(format_args!("  {}", line(report)));
    }
    if let Some(faults) = last.and_then(|activity| activity.major_faults) {
        tell(format_args!("  {} of the targets meanwhile", units::counted(faults, "major fault")));
    }
    let grown = |activity: &Activity| activity.compressed_growth.map(u64::cast_signed);
    if let Some(text) = last.and_then(|activity| net_freed(grown(activity), activity.net_freed())) {
        tell(format_args!("  {text}"));
    }
    // Schemes act on nothing that surveys do not know.
    tell(format_args!("  {}", not_seen.line(NOT_BY_PAGE)));
    if let Some(recording) = &summary.recording {
        let path = recording.path.display();
        tell(format_args!("  {} in {path}; next: isotherm report schemes {path}", units::bytes(recording.bytes)));
    }
}

/// A line that says what a scheme did.
fn line(report: &Report) -> String {
    let total = &report.total;
    let (applied, advised) = (units::bytes(total.applied_bytes), units::bytes(total.passed_bytes));
    let mut line = format!("{} ({}): ", report.name, report.action);
    line += &match Action::named(&report.action.name) {
        Some(action) if action.frees() => {
            format!("{applied} freed of {advised} advised in {} ranges", total.applied_regions)
        }
        _ => format!("{applied} in {} ranges", total.applied_regions),
    };
    if total.unmapped_bytes > 0 {
        line += &format!("; {} unmapped, but in memory still", units::bytes(total.unmapped_bytes));
    }
    if total.watched_bytes > 0 {
        let share = units::percent(total.returned_bytes as f64 / total.watched_bytes as f64);
        line += &format!("; {share} of it came back soon");
    }
    if let Some(share) = report.quota_share {
        line += &format!("; quota reduced to {}", units::percent(share));
    }
    // Memory of a process that has ended is gone, and nothing has to be done about it.
    let is_told = |count: &&RefusalCount| count.refusal.reason != RefusalReason::TargetGone;
    for count in total.refusals.iter().filter(is_told) {
        let error = count.refusal.code.map(|code| format!(": {}", std::io::Error::from_raw_os_error(code)));
        line +=
            &format!("; {} refused: {}{}", units::bytes(count.bytes), count.refusal.reason, error.unwrap_or_default());
    }
    if total.rejected_bytes > 0 {
        line += &format!("; {} rejected by filters", units::bytes(total.rejected_bytes));
    }
    if total.quota_exceeded > 0 {
        line += &format!("; quota exceeded in {} periods", total.quota_exceeded);
    }
    if !total.time.is_zero() {
        line += &format!("; {} of work", units::duration(total.time));
    }
    line
}
