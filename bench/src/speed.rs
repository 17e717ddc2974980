//! How fast a target is while the monitor comes and goes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use isotherm_core::Attributes;
use isotherm_record::{Cost, Recording};
use serde::Deserialize;

use crate::waking;

/// The pattern that is measured: one hot part of 1/64 in memory that is cold otherwise.
pub const PATTERN: &str = "hot-small-in-huge";

/// Its size, in bytes, unless it is scaled.
pub const SIZE: u64 = 256 << 20;

/// Time for caches and clocks to settle after the monitor has come or gone.
const SETTLE: Duration = Duration::from_millis(500);

/// What came of the visits of a monitor to one target.
#[derive(Debug)]
pub struct Visits {
    /// The time of the target with the monitor over that without, less 1, in per cent: median, least and most of the visits.
    pub slowdown_percent: [f64; 3],
    /// What each visit took, aggregation by aggregation, with the time since the visit began.
    pub costs: Vec<Vec<(Duration, Cost)>>,
    /// CPU time of a thread that only wakes up as often as the monitor may, in per cent of one CPU: median over the times after the visits.
    pub waking_percent: f64,
}

/// Lets a monitor with this `probe` come and go `pairs` times to a target of `scale` times [`SIZE`] that touches its hot
/// memory as fast as it can. It stays for `time`, and stays away for as long.
///
/// # Errors
/// If isotherm or the workload fails.
pub fn visit(isotherm: &Path, probe: &str, scale: u32, pairs: u32, time: Duration) -> Result<Visits> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("isotherm.rec");
    let target = Target::start(isotherm, scale)?;
    let mut slowdowns = Vec::new();
    let mut costs = Vec::new();
    let mut waking = Vec::new();
    for _ in 0..pairs {
        let without = target.median_ns(time)?;
        let mut monitor = Command::new(isotherm)
            .args(["record", "--quiet", "--probe", probe, "--duration", &format!("{}s", time.as_secs()), "--pid"])
            .arg(target.child.id().to_string())
            .arg("-o")
            .arg(&file)
            .spawn()?;
        let with = target.median_ns(time)?;
        ensure!(monitor.wait()?.success(), "isotherm failed");
        waking.push(waking::percent(Attributes::default().sampling()));
        slowdowns.push((with / without - 1.0) * 100.0);
        let recording = Recording::open(&file)?;
        let mut visit = Vec::new();
        for record in recording.snapshots()? {
            let record = record?;
            visit.extend(record.cost.map(|cost| (record.snapshot.time, cost)));
        }
        costs.push(visit);
    }
    let median = median(&mut slowdowns);
    let least = slowdowns.iter().copied().fold(f64::INFINITY, f64::min);
    let most = slowdowns.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(Visits { slowdown_percent: [median, least, most], costs, waking_percent: self::median(&mut waking) })
}

/// A workload that tells its speed.
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
        // It is there when it has been as fast as it can for the first time.
        speeds.recv().context("the workload ended at once")?;
        Ok(Self { child, speeds })
    }

    /// The median time of a touch, in nanoseconds, over the next `time`.
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

/// The median of `values`, of which there is one at least.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
