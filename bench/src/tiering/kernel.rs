//! What the kernel itself offers to keep hot memory on the fast node: DAMON with migrate actions, and NUMA balancing.
//!
//! Both change settings of the whole machine, which is one of the laboratory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::AddrRange;
use isotherm_kernel::pages::SystemRam;
use procfs::process::Process;

use super::ensure_laboratory;
use super::placement::{FAST, SLOW};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// Both modes of `kernel.numa_balancing`: memory follows the processors, and the tiers of memory.
const BOTH_MODES: &str = "3";

/// The migrate actions do no more than isotherm: half of its default rate in each direction, in bytes for each second.
const QUOTA: u64 = isotherm_core::tiering::DEFAULT_RATE / 2;

/// Memory is demoted after it was idle for as long as isotherm waits.
const IDLE: Duration = isotherm_core::tiering::IDLE;

/// The intervals of DAMON, those that its authors used for two tiers: sampling and aggregation.
const SAMPLING: Duration = Duration::from_millis(5);
const AGGREGATION: Duration = Duration::from_millis(100);

/// What the kernel does while this lives.
#[derive(Debug)]
pub(super) enum KernelTiering {
    /// Two kdamonds, one for each node.
    Damon,
    /// NUMA balancing, with demotion in place of reclamation where the kernel knows the tiers.
    Balancing,
}

impl KernelTiering {
    /// Starts a kdamond for each node: as the tools of the authors of the migrate actions do it, one demotes what is
    /// idle, and one promotes what is accessed. Young pages are looked at once more.
    pub(super) fn damon() -> Result<Self> {
        ensure_laboratory()?;
        ensure!(Path::new(KDAMONDS).is_dir(), "this kernel has no DAMON");
        put(KDAMONDS, "nr_kdamonds", 2)?;
        let this = Self::Damon;
        let ram = SystemRam::new(Path::new("/")).read()?;
        let idle = (IDLE.as_millis() / AGGREGATION.as_millis()) as u64;
        for (kdamond, node, to, action, accesses, age, allow_young) in [
            (0, FAST, SLOW, "migrate_cold", (0, 0), idle, false),
            (1, SLOW, FAST, "migrate_hot", (1, u64::MAX), 0, true),
        ] {
            let place = format!("{KDAMONDS}/{kdamond}/contexts");
            put(&place, "nr_contexts", 1)?;
            let place = format!("{place}/0");
            put(&place, "operations", "paddr")?;
            put(&place, "monitoring_attrs/intervals/sample_us", SAMPLING.as_micros())?;
            put(&place, "monitoring_attrs/intervals/aggr_us", AGGREGATION.as_micros())?;
            put(&place, "targets/nr_targets", 1)?;
            let regions: Vec<AddrRange> =
                ram.iter().filter(|ram| ram.node == Some(node)).map(|ram| ram.range).collect();
            put(&place, "targets/0/regions/nr_regions", regions.len())?;
            for (nth, range) in regions.iter().enumerate() {
                put(&place, &format!("targets/0/regions/{nth}/start"), range.start())?;
                put(&place, &format!("targets/0/regions/{nth}/end"), range.end())?;
            }
            put(&place, "schemes/nr_schemes", 1)?;
            let place = format!("{place}/schemes/0");
            put(&place, "action", action).context("migrate actions need Linux 6.11")?;
            put(&place, "target_nid", to)?;
            for (what, min, max) in
                [("sz", 4096, u64::MAX), ("nr_accesses", accesses.0, accesses.1), ("age", age, u64::MAX)]
            {
                put(&place, &format!("access_pattern/{what}/min"), min)?;
                put(&place, &format!("access_pattern/{what}/max"), max)?;
            }
            put(&place, "quotas/bytes", QUOTA)?;
            put(&place, "quotas/reset_interval_ms", 1000)?;
            put(&place, "filters/nr_filters", 1)?;
            put(&place, "filters/0/type", "young")?;
            // The filter rejects what it matches: young pages, or all others.
            put(&place, "filters/0/matching", if allow_young { "N" } else { "Y" })?;
        }
        for kdamond in 0..2 {
            put(KDAMONDS, &format!("{kdamond}/state"), "on")?;
        }
        Ok(this)
    }

    /// Starts NUMA balancing.
    pub(super) fn balancing() -> Result<Self> {
        ensure_laboratory()?;
        let this = Self::Balancing;
        fs::write(DEMOTION, "1").with_context(|| format!("{DEMOTION} cannot be set"))?;
        fs::write(BALANCING, BOTH_MODES).with_context(|| format!("{BALANCING} cannot be set"))?;
        Ok(this)
    }

    /// The CPU time of the kdamonds, in seconds. That of NUMA balancing is a part of the time of the programs.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let Self::Damon = self else { return Ok(0.0) };
        let mut ticks = 0;
        for kdamond in 0..2 {
            let path = format!("{KDAMONDS}/{kdamond}/pid");
            let pid = fs::read_to_string(&path)?.trim().parse().with_context(|| format!("{path} has no number"))?;
            let stat = Process::new(pid)?.stat().context("a kdamond has ended")?;
            ticks += stat.utime + stat.stime;
        }
        Ok(ticks as f64 / procfs::ticks_per_second() as f64)
    }
}

impl Drop for KernelTiering {
    fn drop(&mut self) {
        let ended = match self {
            Self::Damon => (0..2)
                .try_for_each(|kdamond| put(KDAMONDS, &format!("{kdamond}/state"), "off"))
                .and_then(|()| put(KDAMONDS, "nr_kdamonds", 0)),
            Self::Balancing => fs::write(BALANCING, "0").and_then(|()| fs::write(DEMOTION, "0")).map_err(Into::into),
        };
        if let Err(error) = ended {
            eprintln!("the kernel still moves memory: {error:#}");
        }
    }
}

/// Writes a value below a directory of DAMON, which answers that it is busy while a kdamond uses its lock.
fn put(directory: &str, name: &str, value: impl ToString) -> Result<()> {
    let (path, value) = (PathBuf::from(directory).join(name), value.to_string());
    let start = Instant::now();
    loop {
        match fs::write(&path, &value) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && start.elapsed() < Duration::from_secs(1) => {
                sleep(Duration::from_millis(10));
            }
            done => return done.with_context(|| format!("{} does not take {value}", path.display())),
        }
    }
}
