//! Figures of runs, and their tables.

use comfy_table::Table;
use serde::Serialize;

use super::run::{Run, Sample};
use super::{Configuration, Distribution};
use crate::table;

/// The last part of a run that counts as late, as a share.
const LATE: f64 = 0.25;

/// The share of the way from the first to the late placement after which a run has converged.
const CONVERGED: f64 = 0.9;

/// Below this change of the share of slow accesses, there is nothing to converge to.
const NO_CHANGE: f64 = 0.01;

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Where memory was.
    pub configuration: Configuration,
    /// The requests.
    pub distribution: Distribution,
    /// Cold memory, as a share of what was free on the fast node before.
    pub cold_share: f64,
    /// Memory of redis, in bytes.
    pub redis_bytes: u64,
    /// Memory of redis on the slow node, in bytes.
    pub slow_bytes: Figure,
    /// The share of the accesses that the slow node serves, 0 to 1.
    pub slow_share: Figure,
    /// The modelled execution time, normalised to the fast node only.
    pub modelled_time: Figure,
    /// Seconds until nine tenths of the way to the late placement were done. `None` if little changed.
    pub converged_after: Option<f64>,
    /// Bytes that moved up, and down.
    pub moved: (u64, u64),
    /// Bytes moved for each access that the fast node served instead of the slow one.
    pub bytes_for_access: Option<f64>,
    /// The share of what moved that moved back within a minute.
    pub back_share: Option<f64>,
    /// CPU time of isotherm or of the kdamonds, in per cent of one CPU.
    pub cpu_percent: f64,
    /// Requests in a second.
    pub requests: f64,
}

/// A figure of a run: when the load began, the mean, and the mean of the last quarter.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figure {
    /// When the load began.
    pub first: f64,
    /// Mean over the run.
    pub mean: f64,
    /// Mean over its last quarter.
    pub late: f64,
}

impl Figure {
    fn of(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> Self {
        let mean = |samples: &[Sample]| samples.iter().map(&figure).sum::<f64>() / samples.len().max(1) as f64;
        let late = (samples.len() as f64 * (1.0 - LATE)) as usize;
        Self { first: samples.first().map_or(0.0, &figure), mean: mean(samples), late: mean(&samples[late..]) }
    }
}

impl Line {
    /// The figures of `run`.
    pub fn of(run: &Run) -> Self {
        let samples = &run.samples[..];
        let slow_share = Figure::of(samples, |sample| sample.slow_share);
        let (last, moves) = samples.last().map_or((0.0, Default::default()), |last| (last.time, last.moves));
        let gained: f64 = samples
            .windows(2)
            .map(|pair| (pair[1].answered - pair[0].answered) as f64 * (slow_share.first - pair[1].slow_share))
            .sum();
        Self {
            configuration: run.configuration,
            distribution: run.distribution,
            cold_share: run.cold_share,
            redis_bytes: run.redis_bytes,
            slow_bytes: Figure::of(samples, |sample| sample.slow_bytes as f64),
            slow_share,
            modelled_time: Figure::of(samples, |sample| run.distribution.modelled_time(sample.slow_share)),
            converged_after: converged_after(samples, slow_share),
            moved: (moves.up, moves.down),
            bytes_for_access: (gained > 0.0 && moves.all() > 0).then(|| moves.all() as f64 / gained),
            back_share: (moves.all() > 0).then(|| moves.back as f64 / moves.all() as f64),
            cpu_percent: run.cpu_seconds / last.max(1e-9) * 100.0,
            requests: samples.last().map_or(0.0, |sample| sample.answered as f64) / last.max(1e-9),
        }
    }
}

fn converged_after(samples: &[Sample], share: Figure) -> Option<f64> {
    let way = share.first - share.late;
    let is_far = |sample: &Sample| sample.slow_share > share.first - CONVERGED * way;
    if way < NO_CHANGE {
        return None;
    }
    let last_far = samples.iter().rposition(is_far)?;
    samples.get(last_far + 1).map(|sample| sample.time)
}

pub(super) fn mib(bytes: f64) -> String {
    format!("{:.1}", bytes / f64::from(1 << 20))
}

pub(super) fn percent(share: f64) -> String {
    // Zero is shown without a sign.
    format!("{:.1}", share * 100.0 + 0.0)
}

/// The cold memory of a run as a share of the fast node.
fn cold(share: f64) -> String {
    if share == 0.0 { "0".into() } else { format!("{:.0} %", share * 100.0) }
}

/// A table of where redis was.
pub fn placement_table(lines: &[Line]) -> Table {
    let header = [
        "requests",
        "placement",
        "cold",
        "slow, MiB",
        "late",
        "% of redis",
        "slow accesses %",
        "late",
        "modelled time",
        "late",
    ];
    let rows = lines.iter().map(|line| {
        vec![
            line.distribution.name().into(),
            line.configuration.name().into(),
            cold(line.cold_share),
            mib(line.slow_bytes.mean),
            mib(line.slow_bytes.late),
            percent(line.slow_bytes.mean / line.redis_bytes.max(1) as f64),
            percent(line.slow_share.mean),
            percent(line.slow_share.late),
            format!("{:.3}", line.modelled_time.mean),
            format!("{:.3}", line.modelled_time.late),
        ]
    });
    table::table(&header, 2, rows)
}

/// A table of what was moved.
pub fn moves_table(lines: &[Line]) -> Table {
    let header = [
        "requests",
        "by",
        "cold",
        "converged after, s",
        "up, MiB",
        "down, MiB",
        "B/access",
        "back %",
        "CPU %",
        "requests/s",
    ];
    let moving = lines.iter().filter(|line| line.configuration.moves());
    let rows = moving.map(|line| {
        let or_none = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
        vec![
            line.distribution.name().into(),
            line.configuration.name().into(),
            cold(line.cold_share),
            or_none(line.converged_after.map(|time| format!("{time:.0}"))),
            mib(line.moved.0 as f64),
            mib(line.moved.1 as f64),
            or_none(line.bytes_for_access.map(|bytes| format!("{bytes:.0}"))),
            or_none(line.back_share.map(percent)),
            // NUMA balancing takes the time of the programs.
            or_none((line.configuration != Configuration::Balancing).then(|| format!("{:.0}", line.cpu_percent))),
            format!("{:.0}", line.requests),
        ]
    });
    table::table(&header, 2, rows)
}

/// The figures of the 2-tier patches for a distribution: execution time by default and with them, and the slow-tier use
/// of redis by default and with them, in GB of [`THEIR_REDIS`].
fn theirs(distribution: Distribution) -> [f64; 4] {
    match distribution {
        Distribution::Zipfian => [1.15, 1.04, 37.4, 7.1],
        Distribution::Latest => [1.17, 1.05, 37.4, 7.8],
    }
}

/// The memory of redis in the measurement of the patches, in GB.
const THEIR_REDIS: f64 = 52.6;

/// Means of the runs of a configuration over the amounts of cold memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mean {
    /// The requests.
    pub distribution: Distribution,
    /// Where memory was.
    pub configuration: Configuration,
    /// The number of amounts of cold memory, without none.
    pub sizes: usize,
    /// Geometric mean of the modelled times.
    pub modelled_time: f64,
    /// The same of the last quarters.
    pub modelled_time_late: f64,
    /// Mean share of the memory of redis on the slow node.
    pub slow_of_redis: f64,
    /// The same of the last quarters.
    pub slow_of_redis_late: f64,
    /// The share of all that moved that moved back within a minute.
    pub back_share: Option<f64>,
}

/// The means of each distribution and configuration over all runs with cold memory.
pub fn means(lines: &[Line]) -> Vec<Mean> {
    let mut means = Vec::new();
    for distribution in [Distribution::Zipfian, Distribution::Latest] {
        for configuration in
            [Configuration::Default, Configuration::Damon, Configuration::Balancing, Configuration::Isotherm]
        {
            let is_one = |line: &&Line| {
                (line.distribution, line.configuration) == (distribution, configuration) && line.cold_share > 0.0
            };
            let of: Vec<&Line> = lines.iter().filter(is_one).collect();
            if of.is_empty() {
                continue;
            }
            let many = of.len() as f64;
            let mean = |figure: &dyn Fn(&Line) -> f64| of.iter().map(|line| figure(line)).sum::<f64>() / many;
            let moved: u64 = of.iter().map(|line| line.moved.0 + line.moved.1).sum();
            let back: f64 =
                of.iter().map(|line| (line.moved.0 + line.moved.1) as f64 * line.back_share.unwrap_or(0.0)).sum();
            means.push(Mean {
                distribution,
                configuration,
                sizes: of.len(),
                modelled_time: mean(&|line| line.modelled_time.mean.ln()).exp(),
                modelled_time_late: mean(&|line| line.modelled_time.late.ln()).exp(),
                slow_of_redis: mean(&|line| line.slow_bytes.mean / line.redis_bytes as f64),
                slow_of_redis_late: mean(&|line| line.slow_bytes.late / line.redis_bytes as f64),
                back_share: (moved > 0).then(|| back / moved as f64),
            });
        }
    }
    means
}

/// A table of the means beside the figures of the 2-tier patches, and the aims.
pub fn means_table(means: &[Mean]) -> Table {
    let header = [
        "requests",
        "placement",
        "modelled time",
        "late",
        "aim",
        "theirs (measured)",
        "slow % of redis",
        "late",
        "aim",
        "theirs",
        "back %",
        "aim",
    ];
    let rows = means.iter().map(|mean| {
        let [time, time_moved, slow, slow_moved] = theirs(mean.distribution);
        let is_ours = mean.configuration == Configuration::Isotherm;
        let (time, slow) = if mean.configuration.moves() { (time_moved, slow_moved) } else { (time, slow) };
        let aim = |aim: &str| if is_ours { aim.into() } else { "-".into() };
        vec![
            mean.distribution.name().into(),
            mean.configuration.name().into(),
            format!("{:.3}", mean.modelled_time),
            format!("{:.3}", mean.modelled_time_late),
            aim("≤ 1.03"),
            format!("{time:.2}"),
            percent(mean.slow_of_redis),
            percent(mean.slow_of_redis_late),
            aim("≤ 5"),
            format!("{} ({slow} GB)", percent(slow / THEIR_REDIS)),
            mean.back_share.map_or("-".into(), percent),
            aim("< 5"),
        ]
    });
    table::table(&header, 2, rows)
}

#[cfg(test)]
mod tests {
    use super::super::placement::Moves;
    use super::*;

    /// A run whose share of slow accesses, every ten seconds, is this.
    fn run(configuration: Configuration, shares: &[f64]) -> Run {
        let sample = |(nth, share): (usize, &f64)| Sample {
            time: nth as f64 * 10.0,
            slow_bytes: (share * 1000.0) as u64,
            slow_share: *share,
            answered: nth as u64 * 1000,
            moves: Moves { up: nth as u64 * 4096, down: 0, back: nth as u64 * 1024 },
            fast_free: 0,
        };
        Run {
            configuration,
            distribution: Distribution::Zipfian,
            cold_share: 0.9,
            cold_bytes: 0,
            cold_slow_bytes: 0,
            redis_bytes: 1000,
            samples: shares.iter().enumerate().map(sample).collect(),
            cpu_seconds: 7.0,
            steered: None,
        }
    }

    #[test]
    fn a_line_sums_up_its_run() {
        let line = Line::of(&run(Configuration::Isotherm, &[0.8, 0.4, 0.04, 0.0, 0.0, 0.0, 0.0, 0.0]));
        assert_eq!(line.converged_after, Some(20.0));
        assert_eq!(line.modelled_time.late, 1.0);
        assert!((line.modelled_time.first - 1.168).abs() < 1e-9);
        assert!((line.slow_share.mean - 0.155).abs() < 1e-9);
        assert_eq!(line.back_share, Some(0.25));
        assert!((line.cpu_percent - 10.0).abs() < 1e-9);
        // 400 accesses in the first interval, 760 in the second, 800 in each of five.
        let bytes = line.bytes_for_access.unwrap_or_default();
        assert!((bytes - 7.0 * 4096.0 / (400.0 + 760.0 + 5.0 * 800.0)).abs() < 1e-9, "{bytes}");
    }

    #[test]
    fn placement_that_does_not_change_has_not_converged() {
        let line = Line::of(&run(Configuration::Default, &[0.8; 8]));
        assert_eq!((line.converged_after, line.bytes_for_access), (None, None));
        assert!((line.modelled_time.mean - 1.168).abs() < 1e-9);
    }

    #[test]
    fn means_leave_out_runs_without_cold_memory() {
        let mut alone = run(Configuration::Isotherm, &[0.0; 8]);
        alone.cold_share = 0.0;
        let runs = [alone, run(Configuration::Isotherm, &[0.5; 8]), run(Configuration::Isotherm, &[0.1; 8])];
        let lines: Vec<Line> = runs.iter().map(Line::of).collect();
        let means = means(&lines);
        assert_eq!((means.len(), means[0].sizes), (1, 2));
        assert!((means[0].slow_of_redis - 0.3).abs() < 1e-9);
        assert!((means[0].modelled_time - (1.105_f64 * 1.021).sqrt()).abs() < 1e-9);
        assert!(means_table(&means).to_string().contains("13.5 (7.1 GB)"));
    }
}
