//! The speed of a target with and without a monitor.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use isotherm_core::Attributes;
use isotherm_kernel::unix_ns;
use isotherm_record::Cost;
use isotherm_run::SurveyChoice;
use serde::Deserialize;

use crate::pairs::{Change, Changes, Pairs, median};
use crate::{wakeups, watch};

/// The measured pattern: 1/64 of the memory is hot, the rest is cold.
pub const PATTERN: &str = "hot-small-in-huge";

/// Its size in bytes at scale 1.
pub const SIZE: u64 = 256 << 20;

/// Time for caches and clock frequencies to settle after the monitor starts or ends.
const SETTLE: Duration = Duration::from_millis(500);

/// The results of running a monitor on one target several times.
#[derive(Debug)]
pub struct Visits {
    /// The change of the time of a touch by the monitor.
    pub slowdown: Change,
    /// For each visit, the cost of each aggregation, with the time since the start of the visit.
    pub costs: Vec<Vec<(Duration, Cost)>>,
    /// CPU time of a thread that only wakes up in each sampling interval, in per cent of one CPU. It is
    /// measured after each visit; this is the median.
    pub waking_percent: f64,
}

/// Runs a monitor with `probe` and `survey` for `time`, in pairs with pauses of `time`. Every second pair begins with
/// the monitor. The target has `scale` times [`SIZE`] and touches its hot memory as fast as it can.
///
/// # Errors
/// If isotherm or the workload fails.
pub fn visit(
    isotherm: &Path,
    (probe, survey): (&str, SurveyChoice),
    scale: u32,
    pairs: Pairs,
    time: Duration,
) -> Result<Visits> {
    let target = Target::start(isotherm, scale)?;
    let mut costs = Vec::new();
    let mut waking = Vec::new();
    let mut changes = Changes::default();
    let mut pair = 0;
    while pairs.want_more(&changes) {
        let mut watched = || {
            let (pid, probe) = (target.child.id(), probe.to_owned());
            let monitor = std::thread::spawn(move || watch::costs(pid, &probe, survey, time));
            let with = target.median_ns(time)?;
            costs.push(monitor.join().map_err(|_| anyhow!("the monitor panicked"))??);
            waking.push(wakeups::percent(Attributes::default().sampling()));
            anyhow::Ok(with)
        };
        let (without, with) = if pair % 2 == 0 {
            (target.median_ns(time)?, watched()?)
        } else {
            let with = watched()?;
            (target.median_ns(time)?, with)
        };
        pair += 1;
        changes.add(without, with);
    }
    Ok(Visits { slowdown: changes.change(), costs, waking_percent: median(&mut waking) })
}

/// A workload that prints its speed.
struct Target {
    child: Child,
    speeds: Receiver<Speed>,
}

#[derive(Clone, Copy, Deserialize)]
struct Speed {
    unix_ns: u64,
    touches: u64,
    ns: u64,
}

impl Target {
    fn start(isotherm: &Path, scale: u32) -> Result<Self> {
        let mut child = Command::new(isotherm)
            .args(["workload", PATTERN, "--flat-out", "--time", "1h", "--scale", &scale.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", isotherm.display()))?;
        let out = child.stdout.take().context("the workload has no output")?;
        let (sender, speeds) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Ok(speed) = serde_json::from_str(&line)
                    && sender.send(speed).is_err()
                {
                    break;
                }
            }
        });
        // The first line says that the memory is there and the workload has run for a while.
        speeds.recv().context("the workload ended at once")?;
        Ok(Self { child, speeds })
    }

    /// The median time of a touch over the next `time`, in nanoseconds.
    fn median_ns(&self, time: Duration) -> Result<f64> {
        sleep(SETTLE);
        let from = unix_ns();
        sleep(time.saturating_sub(SETTLE * 2));
        let to = unix_ns();
        sleep(SETTLE);
        let within = |speed: &Speed| speed.unix_ns - speed.ns >= from && speed.unix_ns <= to;
        let mut times: Vec<f64> =
            self.speeds.try_iter().filter(within).map(|speed| speed.ns as f64 / speed.touches as f64).collect();
        ensure!(!times.is_empty(), "the workload said nothing");
        Ok(median(&mut times))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
