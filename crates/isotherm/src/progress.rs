//! The progress line of a run. It is shown on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm_core::scheme::Report;
use isotherm_core::units::{bytes, duration, percent};
use isotherm_core::{chain, sanitise};
use isotherm_record::{Activity, SnapshotRecord, missed_words};
use isotherm_report::wss::InUse;
use isotherm_run::{Event, Events, Missed, Session, Severity, Summary};

use crate::moves_line::MovesLine;
use crate::tell;

/// The minimum time from one display of the line to the next.
const EVERY: Duration = Duration::from_millis(250);

/// Shows the progress of a run.
pub struct Progress {
    on: bool,
    quiet: bool,
    shown: Option<Instant>,
    late_rounds: u64,
    /// Aggregations of the kernel's DAMON that were lost.
    lost: u64,
    in_use: InUse,
    /// The bytes on which each scheme has acted, as text.
    acted: String,
    /// Tells of memory that moves between tiers, instead of schemes and regions.
    moves: Option<MovesLine>,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        let on = !quiet && stderr().is_terminal();
        Self {
            on,
            quiet,
            shown: None,
            late_rounds: 0,
            lost: 0,
            in_use: InUse::default(),
            acted: String::new(),
            moves: None,
        }
    }

    /// The progress of a run that moves memory between tiers.
    pub fn of_moves(quiet: bool, moves: MovesLine) -> Self {
        Self { moves: Some(moves), ..Self::new(quiet) }
    }

    /// Follows a run to its end: shows the progress, and calls `seen` with each event.
    pub fn follow(&mut self, session: Session, events: Events, mut seen: impl FnMut(&Event)) -> Result<Summary> {
        let mut told = 0;
        for event in events {
            told += usize::from(matches!(&event, Event::Notice(notice) if notice.kind.is_detached()));
            self.event(&event);
            seen(&event);
        }
        self.clear();
        let summary = session.wait()?;
        // A sink that failed at its last event has no notice.
        for error in summary.detached.iter().skip(told) {
            tell(format_args!("isotherm: {}", chain(&**error)));
        }
        let missed = summary.recording.iter().flat_map(|recording| &recording.missed);
        if let Some(words) = missed_words(&missed.map(|missed| (missed.kind, missed.count)).collect()) {
            tell(format_args!("isotherm: {words}"));
        }
        Ok(summary)
    }

    /// Processes an event of the run.
    fn event(&mut self, event: &Event) {
        match event {
            Event::Snapshot(record) => self.snapshot(record),
            Event::Activity(activity) => self.activity(activity),
            Event::Missed(Missed { cost, .. }) => self.late_rounds += u64::from(cost.late_rounds),
            Event::Notice(notice) if !self.quiet || notice.severity == Severity::Warning => {
                self.clear();
                tell(format_args!("isotherm: {}", notice.text));
            }
            Event::Survey(record) => self.in_use.survey(&record.survey),
            Event::Panel(panel) => self.in_use.panel(panel),
            Event::Mark(_)
            | Event::Allocations(_)
            | Event::Pace { .. }
            | Event::Notice(_)
            | Event::Targets(_)
            | Event::Attributes(_)
            | Event::Schemes(_)
            | Event::End(_) => {}
        }
    }

    fn snapshot(&mut self, record: &SnapshotRecord) {
        let cost = record.cost.unwrap_or_default();
        self.late_rounds += u64::from(cost.late_rounds);
        self.lost += cost.lost_aggregations(record.snapshot.samples);
        if !self.on || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let (time, isotherm) = (record.snapshot.time.as_secs_f64(), percent(cpu_share(record)));
        if self.moves.is_some() {
            return self.write(&format!("{time:7.1} s{}  isotherm {isotherm} of a CPU", self.acted));
        }
        let regions = record.snapshot.regions().count();
        let working_set = match self.in_use.latest() {
            Some((window, used)) => format!("{used} within {}", duration(window)),
            None => bytes(record.snapshot.working_set()),
        };
        let mut line =
            format!("{time:7.1} s  {regions} regions  working set {working_set}  isotherm {isotherm} of a CPU");
        if self.late_rounds > 0 {
            line += &format!("  {} late rounds", self.late_rounds);
        }
        if self.lost > 0 {
            line += &format!("  {} aggregations lost", self.lost);
        }
        line += &self.acted;
        self.write(&line);
    }

    /// Processes an activity of schemes. It is shown with the next snapshot. If all schemes sleep, no snapshot follows,
    /// and it is shown at once.
    fn activity(&mut self, activity: &Activity) {
        let of = |scheme: &Report| format!("  {}: {}", scheme.name, bytes(scheme.total.applied_bytes));
        self.acted = match &mut self.moves {
            Some(moves) => moves.text(activity),
            None => activity.schemes.iter().map(of).collect(),
        };
        if self.on && activity.schemes.iter().all(|scheme| !scheme.awake) {
            self.shown = Some(Instant::now());
            self.write(&format!("{:7.1} s  all schemes sleep{}", activity.time.as_secs_f64(), self.acted));
        }
    }

    fn write(&self, line: &str) {
        let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
        let line: String = sanitise(line).chars().take(width.saturating_sub(1)).collect();
        // This fails if the terminal has been closed. The run continues.
        let _ = write!(stderr(), "\r{line}\x1b[K");
    }

    /// Removes the line, so that something else can be written.
    pub fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    /// Warns if the recording has gaps. The warning is written even if standard error is not a terminal.
    pub fn warn_of_gaps(&self) {
        if self.lost > 0 {
            tell(format_args!(
                "isotherm: {} aggregations are missing from the recording: they were not read from the kernel in \
                 time; lengthen --aggr, lower the maximum of --regions, or mount tracefs if it is not mounted",
                self.lost
            ));
        }
    }

    /// Writes a line that is not replaced.
    pub fn done(&self, line: std::fmt::Arguments<'_>) {
        if self.on {
            tell(line);
        }
    }
}

/// The share of one CPU that isotherm took in an aggregation interval.
fn cpu_share(record: &SnapshotRecord) -> f64 {
    record.cost.unwrap_or_default().cpu_time().as_secs_f64() / record.snapshot.aggregation.as_secs_f64()
}
