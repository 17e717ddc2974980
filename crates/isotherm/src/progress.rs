//! The progress line of a recording: on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use isotherm_core::scheme::Report;
use isotherm_core::units::{bytes, percent};
use isotherm_record::Activity;

use crate::session::Finding;
use crate::tell;

/// How often the line is written anew.
const EVERY: Duration = Duration::from_millis(250);

/// Shows how a recording goes.
pub struct Progress {
    on: bool,
    shown: Option<Instant>,
    late_rounds: u64,
    /// Aggregations that the kernel's DAMON made and that did not reach us.
    lost: u64,
    /// What schemes have done so far.
    acted: String,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        Self { on: !quiet && stderr().is_terminal(), shown: None, late_rounds: 0, lost: 0, acted: String::new() }
    }

    /// Takes note of a finding, and shows it if it is time.
    pub fn update(&mut self, finding: &Finding) {
        self.late_rounds += u64::from(finding.cost.late_rounds);
        self.lost += finding.cost.lost_aggregations(finding.snapshot.samples);
        if !self.on || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let targets = &finding.snapshot.targets;
        let regions: usize = targets.iter().map(|target| target.regions.len()).sum();
        let working_set: u64 = targets.iter().map(|target| target.working_set()).sum();
        let mut line = format!(
            "{:7.1} s  {regions} regions  working set {}  monitor {} of a CPU",
            finding.snapshot.time.as_secs_f64(),
            bytes(working_set),
            percent(cpu_share(finding)),
        );
        if self.late_rounds > 0 {
            line += &format!("  {} late rounds", self.late_rounds);
        }
        if self.lost > 0 {
            line += &format!("  {} aggregations lost", self.lost);
        }
        line += &self.acted;
        self.write(&line);
    }

    /// Takes note of what schemes have done; shows it with the next finding, or at once if there will be none for a while.
    pub fn acted(&mut self, activity: &Activity) {
        let of = |scheme: &Report| format!("  {}: {}", scheme.name, bytes(scheme.total.applied_bytes));
        self.acted = activity.schemes.iter().map(of).collect();
        if self.on && activity.schemes.iter().all(|scheme| !scheme.awake) {
            self.shown = Some(Instant::now());
            self.write(&format!("{:7.1} s  all schemes sleep{}", activity.time.as_secs_f64(), self.acted));
        }
    }

    fn write(&self, line: &str) {
        let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        // A terminal that went away is no reason to stop recording.
        let _ = write!(stderr(), "\r{line}\x1b[K");
    }

    /// Takes the line away, so that something else can be written.
    pub fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    /// Says, whoever reads it, that the recording has gaps.
    pub fn warn_of_gaps(&self) {
        if self.lost > 0 {
            tell(format_args!(
                "isotherm: {} aggregations are missing from the recording: they were not taken from the kernel in time; \
                 lengthen --aggr, lower the maximum of --regions, or mount tracefs if it is not mounted",
                self.lost
            ));
        }
    }

    /// Writes a line that stays.
    pub fn done(&self, line: std::fmt::Arguments<'_>) {
        if self.on {
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

/// The share of one CPU that the monitor took in an aggregation interval.
fn cpu_share(finding: &Finding) -> f64 {
    finding.cost.cpu_ns as f64 / finding.snapshot.aggregation.as_nanos() as f64
}
