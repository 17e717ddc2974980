//! `isotherm tier run` beside a load, and what it says that it has done.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_record::Recording;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

/// How many surveys are listed with their times: nothing moves before the first ones.
const FIRST_SURVEYS: usize = 12;

/// isotherm, while it runs.
#[derive(Debug)]
pub(super) struct Steering {
    child: Child,
    recording: PathBuf,
    said: tempfile::NamedTempFile,
}

/// What a scheme of isotherm has done, in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheme {
    /// Its name.
    pub name: String,
    /// Bytes that matched.
    pub tried: u64,
    /// Bytes that the filters allowed.
    pub passed: u64,
    /// Bytes that it moved.
    pub applied: u64,
    /// Of the bytes that it moved, those that were watched for a minute, and those of them that came back.
    pub watched: u64,
    /// See [`watched`](Self::watched).
    pub returned: u64,
    /// Bytes that a filter rejected.
    pub rejected: u64,
    /// Bytes that the system refused to move, by reason.
    pub refused: Vec<(String, u64)>,
    /// Periods in which the quota did not suffice.
    pub quota_exceeded: u64,
    /// The quota at the end, in bytes a second.
    pub quota: Option<u64>,
    /// The share of the quota that was in force at the end, if less than all of it.
    pub quota_share: Option<f64>,
    /// Time of the moves and of the filters, in seconds.
    pub seconds: f64,
}

/// What isotherm has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Steered {
    /// Its schemes.
    pub schemes: Vec<Scheme>,
    /// The number of surveys.
    pub surveys: usize,
    /// When the first surveys ended, in seconds since isotherm began.
    #[serde(default)]
    pub surveyed_at: Vec<f64>,
    /// What it wrote to standard error.
    pub said: String,
}

impl Steering {
    /// Starts isotherm with these options.
    pub(super) fn start(isotherm: &Path, place: &Path, options: &[String]) -> Result<Self> {
        let recording = place.join("tiering.rec");
        let _ = std::fs::remove_file(&recording);
        let said = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(isotherm);
        command.args(["tier", "run", "--record"]).arg(&recording).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen()?);
        Ok(Self { child: command.spawn().context("isotherm cannot be started")?, recording, said })
    }

    /// Its CPU time, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let stat = Process::new(self.child.id() as i32)?.stat().context("isotherm has ended")?;
        Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    /// Ends it as Ctrl-C does.
    pub(super) fn end(mut self) -> Result<Steered> {
        let kill = Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status()?;
        ensure!(kill.success(), "isotherm has ended: {}", self.said()?);
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < Duration::from_secs(60), "isotherm had not ended 60 s after SIGINT");
            std::thread::sleep(Duration::from_millis(50));
        };
        ensure!(status.success(), "isotherm ended with {status}: {}", self.said()?);
        let recording = Recording::open(&self.recording)?;
        let last = recording.activities().last().context("the recording has no activity")??;
        let schemes = last.schemes.iter().map(|scheme| Scheme {
            name: scheme.name.to_string(),
            tried: scheme.total.tried_bytes,
            passed: scheme.total.passed_bytes,
            applied: scheme.total.applied_bytes,
            watched: scheme.total.watched_bytes,
            returned: scheme.total.returned_bytes,
            rejected: scheme.total.rejected_bytes,
            refused: scheme
                .total
                .refusals
                .iter()
                .map(|count| (format!("{:?}", count.refusal.reason), count.bytes))
                .collect(),
            quota_exceeded: scheme.total.quota_exceeded,
            quota: scheme.quota,
            quota_share: scheme.quota_share,
            seconds: scheme.total.time.as_secs_f64(),
        });
        let schemes = schemes.collect();
        let mut surveyed_at = Vec::new();
        for survey in recording.surveys() {
            surveyed_at.push(survey?.survey.time.as_secs_f64());
        }
        let surveys = surveyed_at.len();
        surveyed_at.truncate(FIRST_SURVEYS);
        Ok(Steered { schemes, surveys, surveyed_at, said: self.said()? })
    }

    fn said(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.said.path())?)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
