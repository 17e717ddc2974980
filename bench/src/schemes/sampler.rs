//! Samples the memory of a program and of the system while the program runs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{Current, Meminfo};

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// The last part of a run that counts as late, as a share.
const LATE: f64 = 0.25;

/// One sample, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    rss: u64,
    used: u64,
    huge: u64,
    swapped: u64,
}

/// The samples of a run.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
    /// CPU time of isotherm at its last sample.
    pub(crate) isotherm_cpu: Duration,
    used_before: u64,
}

impl Samples {
    /// Starts before the program does.
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self { used_before: system()?.used, ..Self::default() })
    }

    /// Takes samples until `over` returns true. The file `pids` lists the program's processes, one a line; nothing is
    /// sampled before it exists. Processes that have ended count as zero.
    pub(crate) fn take(
        &mut self,
        pids: &Path,
        isotherm: Option<u32>,
        mut over: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let ticks = procfs::ticks_per_second();
        let mut next = Instant::now();
        while !over()? {
            let known: Vec<i32> = std::fs::read_to_string(pids)
                .unwrap_or_default()
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect();
            let rss = known.iter().filter_map(|pid| resident(*pid)).sum();
            if rss > 0 {
                self.all.push(Sample { rss, ..system()? });
            }
            if let Some(stat) = isotherm.and_then(|pid| Process::new(pid as i32).ok()?.stat().ok())
                && stat.state != 'Z'
            {
                self.isotherm_cpu = Duration::from_secs_f64((stat.utime + stat.stime) as f64 / ticks as f64);
            }
            next += INTERVAL;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Resident memory: mean, mean of the last quarter, maximum.
    pub(crate) fn rss(&self) -> (f64, f64, f64) {
        let most = self.all.iter().map(|sample| sample.rss).max().unwrap_or(0);
        (mean(&self.all, |sample| sample.rss), mean(self.late(), |sample| sample.rss), most as f64)
    }

    /// Memory of the system that is not free, minus the same before the run: mean, and mean of the last quarter.
    pub(crate) fn system(&self) -> (f64, f64) {
        let used = |samples: &[Sample]| mean(samples, |sample| sample.used) - self.used_before as f64;
        (used(&self.all), used(self.late()))
    }

    /// Means of memory in huge pages and in swap.
    pub(crate) fn huge_and_swapped(&self) -> (f64, f64) {
        (mean(&self.all, |sample| sample.huge), mean(&self.all, |sample| sample.swapped))
    }

    fn late(&self) -> &[Sample] {
        &self.all[(self.all.len() as f64 * (1.0 - LATE)) as usize..]
    }
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> f64 {
    samples.iter().map(|sample| of(sample) as f64).sum::<f64>() / samples.len().max(1) as f64
}

fn resident(pid: i32) -> Option<u64> {
    Some(Process::new(pid).ok()?.statm().ok()?.resident * procfs::page_size())
}

fn system() -> Result<Sample> {
    let meminfo = Meminfo::current().context("/proc/meminfo cannot be read")?;
    Ok(Sample {
        rss: 0,
        used: meminfo.mem_total - meminfo.mem_free,
        huge: meminfo.anon_hugepages.unwrap_or(0),
        swapped: meminfo.swap_total - meminfo.swap_free,
    })
}
