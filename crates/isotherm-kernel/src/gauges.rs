//! Gauges: the figures of the kernel, and of the user, that watermarks and goals go by.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::scheme::{Gauges, Metric};
use isotherm_core::{BoxError, PAGE_SIZE, PackedRanges, Snapshot, TargetSnapshot};
use procfs::ProcError;
use thiserror::Error;

use crate::pages::{Pagemap, Room};
use crate::usage::{PRESSURE, pressure, stall_time, system_memory};

/// Of the working set, so many pages are looked at: enough for a share that is right to about 1 %, in a few milliseconds.
const PAGES: u64 = 4096;

/// Why a figure cannot be known here.
#[derive(Debug, Error)]
pub enum GaugeError {
    /// The kernel keeps no account of pressure.
    #[error(
        "the pressure on memory cannot be read from /{PRESSURE}: {0}; start a kernel that has CONFIG_PSI with psi=1 on its \
         command line, or go by free_memory"
    )]
    Pressure(#[source] ProcError),
    /// There is no account of memory.
    #[error("the system's memory cannot be read from /proc/meminfo: {0}; is /proc mounted?")]
    Memory(#[source] ProcError),
    /// The user's file holds no figure.
    #[error("no figure can be read from {path}: {why}; write one number to that file, such as 0.7, before the start")]
    Fed {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads metrics from `/proc`, and those that are fed from files of the user's.
#[derive(Debug)]
pub struct SystemGauges {
    root: PathBuf,
    room: Room,
}

impl SystemGauges {
    /// The gauges of this machine.
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// Those below a directory that stands for `/`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into(), room: Room::default() }
    }

    /// The share of the accessed memory that is resident, by pages at even distances through all of it.
    fn resident_share(&mut self, snapshot: &Snapshot) -> Option<f64> {
        let accessed: Vec<_> = snapshot.targets.iter().map(|target| (target.id, accessed(target))).collect();
        let bytes: u64 = accessed.iter().map(|(_, ranges)| ranges.bytes()).sum();
        let step = (bytes / PAGE_SIZE).div_ceil(PAGES).max(1) * PAGE_SIZE;
        let (mut looked_at, mut resident) = (0_u64, 0_u64);
        for (id, ranges) in &accessed {
            // One that has ended has no memory.
            let Some(Ok(pagemap)) = id.pid().map(|pid| Pagemap::open(&self.root, &pid.to_string())) else { continue };
            let tell = |frame: Option<u64>| {
                looked_at += 1;
                resident += u64::from(frame.is_some());
            };
            let offsets = (0..ranges.bytes()).step_by(step as usize);
            pagemap.frames(offsets.map(|offset| ranges.address_at(offset)), &mut self.room, tell).ok()?;
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
            // Of the targets, which are known only once they run.
            Metric::WorkingSetResident => Ok(()),
            Metric::Fed(path) => fed(path).map(|_| ()),
        }
        .map_err(BoxError::from)
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        match metric {
            Metric::FreeMemory => system_memory(&self.root).ok().map(|memory| memory.free_share()),
            Metric::Pressure => pressure(&self.root).ok().map(|pressure| f64::from(pressure.some.avg10) / 100.0),
            Metric::StallTime => pressure(&self.root).ok().map(|pressure| stall_time(&pressure).as_secs_f64()),
            Metric::WorkingSetResident => self.resident_share(snapshot),
            Metric::Fed(path) => fed(path).ok(),
        }
    }
}

/// The mapped parts of the regions that were found accessed.
fn accessed(target: &TargetSnapshot) -> PackedRanges {
    target.mapped_parts().filter(|part| part.region.nr_accesses > 0).map(|part| part.range).collect()
}

/// The number in a file.
fn fed(path: &Arc<str>) -> Result<f64, GaugeError> {
    let error = |why: String| GaugeError::Fed { path: path.to_string(), why };
    let text = fs::read_to_string(&**path).map_err(|source| error(source.to_string()))?;
    let number = text.trim();
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(error(format!("{:?} is no number", number.chars().take(40).collect::<String>()))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::time::Duration;

    use isotherm_core::{AddrRange, Mapping, RegionSnapshot, TargetId};

    use super::*;
    use crate::scratch::Scratch;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, size: u64) -> AddrRange {
        AddrRange::new(start, start + size).unwrap()
    }

    #[test]
    fn the_share_of_the_working_set_that_is_resident_is_that_of_its_accessed_pages() {
        let scratch = Scratch::new(64 * MIB).unwrap();
        // A quarter of what is accessed was ever touched; a part that is not accessed does not count.
        (0..8 * MIB / PAGE_SIZE).for_each(|page| scratch.touch(page * PAGE_SIZE));
        let all = range(scratch.start(), 64 * MIB);
        let region =
            |range, nr_accesses| RegionSnapshot { range, nr_accesses, nr_samples: 20, nr_unobservable: 0, age: 0 };
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
    fn the_kernels_figures_are_read_and_a_kernel_without_them_is_told() {
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
    fn a_figure_is_fed_by_a_file_and_anything_else_in_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figure");
        let metric = Metric::Fed(path.to_str().unwrap().into());
        let mut gauges = SystemGauges::new();
        let check = |gauges: &mut SystemGauges| gauges.supports(&metric).unwrap_err().to_string();
        assert!(check(&mut gauges).contains("No such file"), "{}", check(&mut gauges));
        for (text, value) in [("0.7\n", Some(0.7)), ("  12 ", Some(12.0)), ("", None), ("nan", None), ("7 %", None)] {
            fs::write(&path, text).unwrap();
            assert_eq!(gauges.read(&metric, &Snapshot::default()), value, "{text:?}");
            assert_eq!(gauges.supports(&metric).is_ok(), value.is_some(), "{text:?}");
        }
        assert!(check(&mut gauges).contains("is no number"), "{}", check(&mut gauges));
    }
}
