//! The alternative to regions, for comparison: every page is checked in every sampling interval.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use isotherm_core::{AccessProbe, AddressSpace, Observation, PAGE_SIZE, Sample};
use isotherm_kernel::{Processes, monitor_cpu_time};
use isotherm_record::Cost;
use isotherm_run::SurveyChoice;
use serde::Serialize;

use crate::pairs::median;
use crate::real::Announced;
use crate::speed::PATTERN;
use crate::watch;

/// Measured rounds.
const ROUNDS: usize = 7;
/// Rounds before them, which clear all memory for the first time.
const ROUNDS_BEFORE: usize = 2;

/// How long isotherm watches.
const WATCHED: Duration = Duration::from_secs(10);
/// Snapshots up to this time are left out: `overhead` measures the cost of the start.
const STEADY: Duration = Duration::from_secs(2);

/// The cost of one sampling round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Pages checked.
    pub checks: f64,
    /// CPU time, in milliseconds.
    pub cpu_ms: f64,
}

/// A process that runs the measured pattern.
#[derive(Debug)]
pub struct Target {
    child: Child,
    /// Kept open: the workload ends when its output is closed.
    _output: BufReader<ChildStdout>,
    announced: Announced,
}

impl Target {
    /// Starts the workload with areas `scale` times as large, and waits until its memory is there.
    ///
    /// # Errors
    /// If the workload fails, or prints something unexpected.
    pub fn start(isotherm: &Path, scale: u32) -> Result<Self> {
        let mut child = Command::new(isotherm)
            .args(["workload", PATTERN, "--announce", "--time", "1h", "--scale", &scale.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", isotherm.display()))?;
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().context("the workload has no output")?);
        output.read_line(&mut line)?;
        let announced = serde_json::from_str(&line).with_context(|| format!("the workload said {line}"))?;
        Ok(Self { child, _output: output, announced })
    }

    /// Checks every page of the pattern's areas. A round clears, waits for `sampling` and reads; the result
    /// is the median.
    ///
    /// # Errors
    /// If the probe or the target fails.
    pub fn check_every_page(&self, probe: &mut dyn AccessProbe, sampling: Duration) -> Result<Round> {
        let mut processes = Processes::new([self.child.id()], false)?;
        let spaces = processes.read_targets().map_err(anyhow::Error::from_boxed)?;
        let id = spaces.first().context("the workload has ended")?.id;
        let pages = self.announced.areas.iter().flat_map(|area| (area.start..area.end).step_by(PAGE_SIZE as usize));
        let samples: Vec<Sample> = pages.map(|addr| Sample { target: id, addr }).collect();
        let mut answers = vec![Observation::Idle; samples.len()];
        probe.update(&spaces).map_err(anyhow::Error::from_boxed)?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS_BEFORE + ROUNDS {
            let before = monitor_cpu_time();
            probe.clear(&samples).map_err(anyhow::Error::from_boxed)?;
            let cleared = monitor_cpu_time();
            sleep(sampling);
            let slept = monitor_cpu_time();
            probe.read(&samples, &mut answers).map_err(anyhow::Error::from_boxed)?;
            times.push((cleared - before + (monitor_cpu_time() - slept)).as_secs_f64() * 1e3);
        }
        ensure!(answers.contains(&Observation::Accessed), "not a page was found accessed");
        Ok(Round { checks: samples.len() as f64, cpu_ms: median(&mut times[ROUNDS_BEFORE..]) })
    }

    /// Watches the target with isotherm: the mean cost of its rounds after the start.
    ///
    /// # Errors
    /// If isotherm fails.
    pub fn watch(&self, probe: &str) -> Result<Round> {
        let mut costs: Vec<Cost> = Vec::new();
        for (time, cost) in watch::costs(self.child.id(), probe, SurveyChoice::Off, WATCHED)? {
            costs.extend((time > STEADY).then_some(cost));
        }
        let sum = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>() as f64;
        let rounds = sum(|cost| cost.rounds.into());
        ensure!(rounds > 0.0, "isotherm took no snapshot");
        Ok(Round { checks: sum(|cost| cost.reads) / rounds, cpu_ms: sum(|cost| cost.cpu_ns) / rounds / 1e6 })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
