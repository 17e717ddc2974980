//! Reads the metrics that the watermarks and the goals of schemes use, from `/proc` and from files that the user
//! writes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Feed, Gauges, Metric};
use isotherm_core::{BoxError, PAGE_SIZE, PackedRanges, Snapshot, TargetSnapshot};
use isotherm_input::{Background, Input, Problem};
use procfs::ProcError;
use thiserror::Error;

use crate::cgroup::{CgroupGauges, NoMemoryCgroup};
use crate::node_use::{NodeUseError, node_size, node_used_share};
use crate::pages::{PageBuffer, Pagemap};
use crate::usage::{PRESSURE, pressure, stall_time, system_memory};

/// The number of pages of the working set that are checked.
///
/// The standard error of a share p of n pages is √(p(1 − p) / n), which is at most 0.8 % here. The check takes a few
/// milliseconds.
const PAGES: u64 = 4096;

/// The most bytes that are read of a file of the user, which holds one number.
const MAX_FED: u64 = 4096;

/// How long a file of the user may take to be read when schemes are checked.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);
/// How long it may take when a goal is read. Meanwhile schemes do not act.
const READ_PATIENCE: Duration = Duration::from_millis(100);

/// Why a metric is not available.
#[derive(Debug, Error)]
pub enum GaugeError {
    /// The kernel has no pressure stall information.
    #[error(
        "the memory pressure cannot be read from /{PRESSURE} (boot a kernel built with CONFIG_PSI and add psi=1 to its \
         command line, or use the metric free_memory)"
    )]
    Pressure(#[source] ProcError),
    /// `/proc/meminfo` cannot be read.
    #[error("the system's memory cannot be read from /proc/meminfo (is /proc mounted?)")]
    Memory(#[source] ProcError),
    /// The use of a memory node cannot be read.
    #[error(transparent)]
    Node(#[from] NodeUseError),
    /// The figures of cgroups cannot be read.
    #[error("the pressure and the refaults of cgroups cannot be read")]
    Cgroup(#[source] NoMemoryCgroup),
    /// A file of the user cannot be read.
    #[error("no number can be read from {path} (write one number, such as 0.7, to the file before the start)")]
    Unread {
        /// The path of the file.
        path: String,
        /// Why.
        #[source]
        problem: Problem,
    },
    /// A file of the user does not contain a number.
    #[error("no number can be read from {path}: {why} (write one number, such as 0.7, to the file before the start)")]
    Fed {
        /// The path of the file.
        path: String,
        /// The error.
        why: String,
    },
    /// Nobody can give a value by a name here.
    #[error(
        "the metric {0} gets its values from a daemon (isotherm ctl feed); write from: FILE instead of metric: {0} to \
         read it from a file"
    )]
    Named(Arc<str>),
}

/// Reads the kernel's metrics from `/proc`, and [`Feed::File`] from files of the user.
#[derive(Debug)]
pub struct SystemGauges {
    root: PathBuf,
    buffer: PageBuffer,
    /// The figures of the cgroups of the targets. `None` if no processes are selected.
    cgroups: Option<CgroupGauges>,
    /// The files of the user that are read. A file system may hang, and nobody waits for it for long.
    fed: HashMap<Arc<str>, Background<Result<f64, GaugeError>>>,
}

impl SystemGauges {
    /// Reads the metrics of this machine.
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// Like [`new`](Self::new), with `root` in place of `/`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into(), buffer: PageBuffer::default(), cgroups: None, fed: HashMap::new() }
    }

    /// The same, which read the figures of cgroups, too.
    #[must_use]
    pub fn with_cgroups(self, cgroups: CgroupGauges) -> Self {
        Self { cgroups: Some(cgroups), ..self }
    }

    /// The number in a file of the user.
    fn fed(&mut self, path: &Arc<str>, patience: Duration) -> Result<f64, GaugeError> {
        let background = self.fed.entry(Arc::clone(path)).or_default();
        let read = Arc::clone(path);
        let unread = |problem| GaugeError::Unread { path: path.to_string(), problem };
        match background.get(patience, move || fed(&read)) {
            Ok(answer) => answer.unwrap_or_else(|| Err(unread(Problem::NoAnswer(patience)))),
            Err(error) => Err(unread(error.into())),
        }
    }

    fn check_cgroups(&self) -> Result<(), GaugeError> {
        let checked = self.cgroups.as_ref().map_or(Err(NoMemoryCgroup::NotSelected), CgroupGauges::check);
        checked.map_err(GaugeError::Cgroup)
    }

    /// The share of the accessed memory that is resident, from 0 to 1, measured on evenly spaced pages. `None` if no
    /// memory was accessed or a pagemap cannot be read.
    fn resident_share(&mut self, snapshot: &Snapshot) -> Option<f64> {
        let accessed: Vec<_> = snapshot.targets.iter().map(|target| (target.id, accessed(target))).collect();
        let bytes: u64 = accessed.iter().map(|(_, ranges)| ranges.bytes()).sum();
        let step = (bytes / PAGE_SIZE).div_ceil(PAGES).max(1) * PAGE_SIZE;
        let (mut looked_at, mut resident) = (0_u64, 0_u64);
        for (id, ranges) in &accessed {
            // A process that has ended has no memory.
            let Some(Ok(pagemap)) = id.pid().map(|pid| Pagemap::open(&self.root, &pid.to_string())) else { continue };
            let tell = |frame: Option<u64>| {
                looked_at += 1;
                resident += u64::from(frame.is_some());
            };
            let offsets = (0..ranges.bytes()).step_by(step as usize);
            pagemap.frames(offsets.map(|offset| ranges.address_at(offset)), &mut self.buffer, tell).ok()?;
        }
        (looked_at > 0).then(|| resident as f64 / looked_at as f64)
    }
}

impl Default for SystemGauges {
    fn default() -> Self {
        Self::new()
    }
}

impl Gauges for SystemGauges {
    fn supports(&mut self, metric: &Metric) -> Result<(), BoxError> {
        match metric {
            Metric::FreeMemory => system_memory(&self.root).map(|_| ()).map_err(GaugeError::Memory),
            Metric::Pressure | Metric::StallTime => pressure(&self.root).map(|_| ()).map_err(GaugeError::Pressure),
            // The targets are known only when the run has started, and what comes back is known to the schemes.
            Metric::WorkingSetResident | Metric::Returns => Ok(()),
            Metric::CgroupPressure(_) => {
                let checked = pressure(&self.root).map(|_| ()).map_err(GaugeError::Pressure);
                checked.and_then(|()| self.check_cgroups())
            }
            Metric::Refaults => self.check_cgroups(),
            Metric::NodeUsed(part) | Metric::NodeFree(part) => {
                node_used_share(&self.root, part).map(|_| ()).map_err(GaugeError::Node)
            }
            Metric::Fed(Feed::File(path)) => self.fed(path, CHECK_PATIENCE).map(|_| ()),
            Metric::Fed(Feed::Named(name)) => Err(GaugeError::Named(Arc::clone(name))),
        }
        .map_err(BoxError::from)
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        match metric {
            Metric::FreeMemory => system_memory(&self.root).ok().map(|memory| memory.free_share()),
            Metric::Pressure => pressure(&self.root).ok().map(|pressure| f64::from(pressure.some.avg10) / 100.0),
            Metric::StallTime => pressure(&self.root).ok().map(|pressure| stall_time(&pressure).as_secs_f64()),
            Metric::WorkingSetResident => self.resident_share(snapshot),
            Metric::NodeUsed(part) => node_used_share(&self.root, part).ok(),
            Metric::NodeFree(part) => node_used_share(&self.root, part).ok().map(|used| 1.0 - used),
            Metric::CgroupPressure(of) => self.cgroups.as_ref()?.pressure(of, snapshot),
            Metric::Refaults => self.cgroups.as_mut()?.refaults(snapshot),
            Metric::Fed(Feed::File(path)) => self.fed(path, READ_PATIENCE).ok(),
            Metric::Fed(Feed::Named(_)) | Metric::Returns => None,
        }
    }

    fn size(&mut self, metric: &Metric) -> Option<u64> {
        match metric {
            Metric::NodeUsed(part) | Metric::NodeFree(part) => node_size(&self.root, part.node).ok(),
            // What becomes free elsewhere than in the memory acted on, or is used meanwhile, is not known beforehand.
            Metric::FreeMemory
            | Metric::Pressure
            | Metric::StallTime
            | Metric::WorkingSetResident
            | Metric::CgroupPressure(_)
            | Metric::Refaults
            | Metric::Returns
            | Metric::Fed(_) => None,
        }
    }
}

/// The mapped parts of the regions that were accessed.
fn accessed(target: &TargetSnapshot) -> PackedRanges {
    target.mapped_parts().filter(|part| part.region.nr_accesses > 0).map(|part| part.range).collect()
}

/// Reads the number in a file of the user.
fn fed(path: &Arc<str>) -> Result<f64, GaugeError> {
    let error = |why: String| GaugeError::Fed { path: path.to_string(), why };
    let text = Input::new(Path::new(&**path)).limited_to(MAX_FED).text();
    let text = text.map_err(|error| GaugeError::Unread { path: path.to_string(), problem: error.problem })?;
    let number = text.trim();
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(error(format!("{:?} is not a number", number.chars().take(40).collect::<String>()))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use isotherm_core::{AddrRange, Mapping, RegionSnapshot, TargetId};

    use super::*;
    use crate::scratch::Scratch;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, size: u64) -> AddrRange {
        AddrRange::new(start, start + size).unwrap()
    }

    #[test]
    fn the_resident_share_counts_only_accessed_pages() {
        let scratch = Scratch::new(64 * MIB).unwrap();
        // The test touches 8 MiB. The accessed region has 32 MiB, so its resident share is a quarter.
        (0..8 * MIB / PAGE_SIZE).for_each(|page| scratch.touch(page * PAGE_SIZE));
        let all = range(scratch.start(), 64 * MIB);
        let region = |range, nr_accesses| RegionSnapshot { nr_accesses, nr_samples: 20, ..RegionSnapshot::new(range) };
        let target = TargetSnapshot {
            id: TargetId::process(std::process::id(), Duration::ZERO),
            regions: vec![region(range(all.start(), 32 * MIB), 7), region(range(all.start() + 32 * MIB, 32 * MIB), 0)],
            mappings: Arc::new([Mapping::anonymous(all)]),
        };
        let snapshot = Snapshot { samples: 20, targets: vec![target], ..Snapshot::default() };
        let share = SystemGauges::new().read(&Metric::WorkingSetResident, &snapshot).unwrap();
        assert!((share - 0.25).abs() < 0.07, "{share}");
        assert_eq!(SystemGauges::new().read(&Metric::WorkingSetResident, &Snapshot::default()), None);
    }

    #[test]
    fn kernel_metrics_are_read_and_missing_ones_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("pressure")).unwrap();
        let mut gauges = SystemGauges::below(root.path());
        let nothing = Snapshot::default();
        let refused = gauges.supports(&Metric::StallTime).unwrap_err().to_string();
        assert!(refused.contains("proc/pressure/memory") && refused.contains("CONFIG_PSI"), "{refused}");
        assert_eq!(gauges.read(&Metric::Pressure, &nothing), None);
        assert!(gauges.supports(&Metric::FreeMemory).unwrap_err().to_string().contains("/proc/meminfo"));

        let pressure = "some avg10=1.50 avg60=0.00 avg300=0.00 total=2500000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        fs::write(proc.join("pressure/memory"), pressure).unwrap();
        gauges.supports(&Metric::StallTime).unwrap();
        assert_eq!(gauges.read(&Metric::StallTime, &nothing), Some(Duration::from_millis(2500).as_secs_f64()));
        let share = gauges.read(&Metric::Pressure, &nothing).unwrap();
        assert!((share - 0.015).abs() < 1e-6, "{share}");
        let free = SystemGauges::new().read(&Metric::FreeMemory, &nothing).unwrap();
        assert!(free > 0.0 && free < 1.0, "{free}");
    }

    #[test]
    fn a_fed_metric_reads_one_number_and_rejects_anything_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figure");
        let metric = Metric::Fed(Feed::File(path.to_str().unwrap().into()));
        let mut gauges = SystemGauges::new();
        let check = |gauges: &mut SystemGauges| isotherm_core::chain(&*gauges.supports(&metric).unwrap_err());
        assert!(check(&mut gauges).contains("No such file"), "{}", check(&mut gauges));
        for (text, value) in [("0.7\n", Some(0.7)), ("  12 ", Some(12.0)), ("", None), ("nan", None), ("7 %", None)] {
            fs::write(&path, text).unwrap();
            assert_eq!(gauges.read(&metric, &Snapshot::default()), value, "{text:?}");
            assert_eq!(gauges.supports(&metric).is_ok(), value.is_some(), "{text:?}");
        }
        assert!(check(&mut gauges).contains("is not a number"), "{}", check(&mut gauges));
        fs::write(&path, [b' '; 5000]).unwrap();
        assert!(check(&mut gauges).contains("more than 4096 bytes"), "{}", check(&mut gauges));
    }

    #[test]
    fn a_fed_metric_is_a_regular_file() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut gauges = SystemGauges::new();
        for (path, what) in [(pipe.to_str().unwrap(), "a pipe"), ("/dev/zero", "a device")] {
            let metric = Metric::Fed(Feed::File(path.into()));
            let refused = isotherm_core::chain(&*gauges.supports(&metric).unwrap_err());
            assert!(refused.contains(path) && refused.contains(what), "{refused}");
            assert_eq!(gauges.read(&metric, &Snapshot::default()), None);
        }
    }
}
