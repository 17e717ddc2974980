//! Samples the memory of a program, of isotherm and of the system while the program runs.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_input::Input;
use isotherm_kernel::{Process, SystemCounters, meminfo, monitor_cpu_time, resident, system_counters};

use crate::EvalError;

/// The time between two samples, at least.
const INTERVAL: Duration = Duration::from_millis(100);

/// Samples take at most one part in this many of the time of a CPU.
const SHARE: u32 = 100;

/// What the kernel takes for the proportional size of a GiB, about.
const PROPORTIONAL_COST: Duration = Duration::from_millis(20);

/// Reading proportional sizes takes at most one part in this many of the time of a CPU.
const PROPORTIONAL_SHARE: u32 = 200;

/// The last part of a run that counts as late.
const LATE: f64 = 0.25;

/// One sample, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    rss: u64,
    isotherm: u64,
    used: u64,
    huge: u64,
    swapped: u64,
    zram: u64,
}

/// Samples of a run.
#[derive(Debug)]
pub(crate) struct Samples {
    all: Vec<Sample>,
    before: Sample,
    counters: SystemCounters,
    proportional: Proportional,
}

/// The proportional size (PSS) of a program. The kernel walks its page tables for that, so that it is read rarely.
#[derive(Debug)]
struct Proportional {
    /// The sum of what was read, and that of the resident memory then.
    pss: u64,
    rss: u64,
    /// When it was read last, or when the program began.
    last: Instant,
    /// What the next read is likely to cost, if there was one.
    cost: Option<Duration>,
}

impl Proportional {
    fn begin() -> Self {
        Self { pss: 0, rss: 0, last: Instant::now(), cost: None }
    }

    fn take(&mut self, processes: &[u32], rss: u64) {
        // The first read comes after half of the time, so that a run of some seconds has one.
        let first = || PROPORTIONAL_COST.mul_f64(rss as f64 / (1 << 30) as f64) / 2;
        if rss == 0 || self.last.elapsed() < (self.cost.unwrap_or_else(first) * PROPORTIONAL_SHARE).max(INTERVAL * 5) {
            return;
        }
        let began = monitor_cpu_time();
        self.pss += processes.iter().filter_map(|pid| proportional(*pid)).sum::<u64>();
        self.rss += rss;
        self.cost = Some(monitor_cpu_time().saturating_sub(began));
        self.last = Instant::now();
    }

    /// The proportional size as a share of resident memory, 0 to 1, if it was read.
    fn share(&self) -> Option<f64> {
        (self.pss > 0).then(|| (self.pss as f64 / self.rss as f64).min(1.0))
    }
}

/// The proportional size of a process, in bytes. `None` if it has ended.
fn proportional(pid: u32) -> Option<u64> {
    let rollup = Input::new(Path::new(&format!("/proc/{pid}/smaps_rollup"))).text().ok()?;
    let kib = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

impl Samples {
    /// Begins before the program does.
    pub(crate) fn begin() -> Result<Self, EvalError> {
        let (before, counters) = system()?;
        Ok(Self { all: Vec::new(), before, counters, proportional: Proportional::begin() })
    }

    /// Takes a sample of a program with its descendants and of isotherm. Returns when the next one is due.
    pub(crate) fn take(&mut self, program: u32, isotherm: Option<u32>) -> Result<Instant, EvalError> {
        let (start, began) = (Instant::now(), monitor_cpu_time());
        let rss = |pid: u32| resident(Path::new("/"), pid).unwrap_or(0);
        let mut sample = system()?.0;
        sample.isotherm = isotherm.map_or(0, rss);
        let mut processes = vec![program];
        let mut nth = 0;
        while let Some(pid) = processes.get(nth).copied() {
            sample.rss += rss(pid);
            processes.extend(Process::open(pid).ok().and_then(|process| process.children().ok()).unwrap_or_default());
            nth += 1;
        }
        // The program has ended if it has no memory.
        if sample.rss > 0 {
            self.all.push(sample);
        }
        let cost = monitor_cpu_time().saturating_sub(began);
        self.proportional.take(&processes, sample.rss);
        Ok(start + (cost * SHARE).max(INTERVAL))
    }

    /// The number of samples.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The mean of the resident memory of the program, and of its last quarter, and the most.
    pub(crate) fn rss(&self) -> [f64; 3] {
        let late = &self.all[(self.all.len() as f64 * (1.0 - LATE)) as usize..];
        let most = self.all.iter().map(|sample| sample.rss).max().unwrap_or(0);
        [mean(&self.all, |sample| sample.rss), mean(late, |sample| sample.rss), most as f64]
    }

    /// The mean of the proportional size of the program: its share of resident memory when it was read, of the mean of
    /// that. `None` if the run was too short for a read.
    pub(crate) fn pss(&self) -> Option<f64> {
        Some(self.proportional.share()? * self.rss()[0])
    }

    /// The mean and the most of the resident memory of isotherm.
    pub(crate) fn isotherm(&self) -> [f64; 2] {
        let most = self.all.iter().map(|sample| sample.isotherm).max().unwrap_or(0);
        [mean(&self.all, |sample| sample.isotherm), most as f64]
    }

    /// Means of memory of the system beyond that before the run: what is not free, in huge pages, in swap, in zram.
    pub(crate) fn system(&self) -> [f64; 4] {
        // A command that ended at once was never seen.
        let before = |part: fn(&Sample) -> u64| if self.all.is_empty() { 0.0 } else { part(&self.before) as f64 };
        let of = |part: fn(&Sample) -> u64| mean(&self.all, part) - before(part);
        [of(|sample| sample.used), of(|sample| sample.huge), of(|sample| sample.swapped), of(|sample| sample.zram)]
    }

    /// The counters of the system since the beginning.
    pub(crate) fn counted(&self) -> Result<SystemCounters, EvalError> {
        let (now, before) = (system()?.1, self.counters);
        let stalled = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Ok(SystemCounters {
            major_faults: now.major_faults.saturating_sub(before.major_faults),
            anonymous_refaults: now.anonymous_refaults.saturating_sub(before.anonymous_refaults),
            file_refaults: now.file_refaults.saturating_sub(before.file_refaults),
            swapped_out: now.swapped_out.saturating_sub(before.swapped_out),
            some_stalled: stalled(now.some_stalled, before.some_stalled),
            all_stalled: stalled(now.all_stalled, before.all_stalled),
            zram: now.zram,
        })
    }
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> f64 {
    samples.iter().map(|sample| of(sample) as f64).sum::<f64>() / samples.len().max(1) as f64
}

fn system() -> Result<(Sample, SystemCounters), EvalError> {
    let root = Path::new("/");
    let memory = meminfo(root).map_err(|error| EvalError::Failed(format!("/proc/meminfo cannot be read: {error}")))?;
    let counters = system_counters(root).map_err(EvalError::system("/proc/vmstat cannot be read"))?;
    let sample = Sample {
        used: memory.mem_total.saturating_sub(memory.mem_free),
        huge: memory.anon_hugepages.unwrap_or(0),
        swapped: memory.swap_total.saturating_sub(memory.swap_free),
        zram: counters.zram,
        ..Sample::default()
    };
    Ok((sample, counters))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_sampled_and_means_are_of_all_samples() {
        let mut samples = Samples::begin().unwrap();
        let own = std::process::id();
        assert!(samples.take(own, Some(own)).unwrap() > Instant::now() - INTERVAL);
        let [rss, late, most] = samples.rss();
        assert!(rss > 1e6 && late > 1e6 && most >= rss, "{rss} {late} {most}");
        assert!(samples.isotherm()[0] > 1e6);
        assert_eq!(samples.pss(), None, "it is not read at once");
        samples.proportional.last -= INTERVAL * 10;
        samples.take(own, None).unwrap();
        // Libraries are shared with other processes.
        assert!(samples.pss().is_some_and(|pss| pss > 1e5 && pss < samples.rss()[0]), "{:?}", samples.pss());
        samples.counted().unwrap();

        samples.all = (1..=8).map(|n| Sample { rss: n, used: 100, ..Sample::default() }).collect();
        samples.before = Sample { used: 40, ..Sample::default() };
        assert_eq!(samples.rss(), [4.5, 7.5, 8.0]);
        assert!((samples.system()[0] - 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_process_that_has_ended_gives_no_sample() {
        let mut samples = Samples::begin().unwrap();
        samples.take(u32::MAX >> 1, None).unwrap();
        assert_eq!((samples.len(), samples.rss(), samples.system()), (0, [0.0; 3], [0.0; 4]));
    }
}
