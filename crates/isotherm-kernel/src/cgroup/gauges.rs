//! The figures of cgroups that goals of schemes depend on: pressure, and memory that came back.

use std::collections::BTreeMap;

use isotherm_core::Snapshot;
use isotherm_core::scheme::{CameBack, CgroupPressure, PressureWindow, Waiting};
use procfs::MemoryPressure;

use super::{CgroupMemory, NoMemoryCgroup, SelectedCgroups};

/// Reads the figures of the cgroups of targets.
#[derive(Debug)]
pub struct CgroupGauges {
    cgroups: SelectedCgroups,
    /// The bytes that had come back by the last reading of each cgroup.
    before: BTreeMap<String, u64>,
    /// The bytes that came back between two readings.
    refaults: CameBack,
}

impl CgroupGauges {
    /// The figures of these cgroups.
    pub fn new(cgroups: SelectedCgroups) -> Self {
        Self { cgroups, before: BTreeMap::new(), refaults: CameBack::default() }
    }

    /// Checks that there are such figures here.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), NoMemoryCgroup> {
        self.cgroups.check()
    }

    /// The share of time for which tasks have waited for memory: of the cgroups of the targets, the largest. `None` if
    /// none can be read.
    pub fn pressure(&self, of: &CgroupPressure, snapshot: &Snapshot) -> Option<f64> {
        let share = |pressure: MemoryPressure| {
            let line = match of.waiting {
                Waiting::Some => pressure.some,
                Waiting::Full => pressure.full,
            };
            let percent = match of.window {
                PressureWindow::TenSeconds => line.avg10,
                PressureWindow::Minute => line.avg60,
            };
            // The kernel tells two digits after the point.
            (f64::from(percent) * 100.0).round() / 1e4
        };
        let all = match &of.cgroup {
            Some(path) => self.cgroups.at(path).ok().into_iter().collect(),
            None => self.all(snapshot),
        };
        all.iter().filter_map(|cgroup| cgroup.pressure().ok()).map(share).reduce(f64::max)
    }

    /// The bytes that came back within the last minute after the kernel had reclaimed them, as a share of the working
    /// set. `None` if there is none.
    pub fn refaults(&mut self, snapshot: &Snapshot) -> Option<f64> {
        // What came back before the first reading of a cgroup does not count.
        let mut after = BTreeMap::new();
        let mut more = 0;
        for cgroup in self.all(snapshot) {
            let Ok(counters) = cgroup.counters() else { continue };
            let before = self.before.get(cgroup.path()).copied().unwrap_or(counters.refaulted);
            more += counters.refaulted.saturating_sub(before);
            after.insert(cgroup.path().to_owned(), counters.refaulted);
        }
        self.before = after;
        self.refaults.take(snapshot.time, more);
        self.refaults.share_of_working_set(snapshot)
    }

    /// The cgroups of the targets, each once.
    fn all(&self, snapshot: &Snapshot) -> Vec<CgroupMemory> {
        let pids = snapshot.targets.iter().filter_map(|target| target.id.pid());
        self.cgroups.of_each(pids).into_iter().map(|(cgroup, _)| cgroup).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::time::Duration;

    use isotherm_core::{AddrRange, Figures, Mapping};
    use isotherm_core::{PAGE_SIZE, RegionSnapshot, TargetId, TargetSnapshot};

    use super::super::made::{mounted_at_cg, write};
    use super::*;
    use crate::pattern::Glob;
    use crate::select::{Selection, Selector};

    /// Processes 1 and 2, each with 1,000 pages that are in use.
    fn snapshot() -> Snapshot {
        let range = AddrRange::new(0, 1000 * PAGE_SIZE).unwrap();
        let pages = Figures { present: range.size(), touched: range.size(), ..Figures::default() };
        let region = RegionSnapshot { pages: Some(pages), ..RegionSnapshot::new(range) };
        let target = |pid| TargetSnapshot {
            id: TargetId::process(pid, Duration::ZERO),
            regions: vec![region],
            mappings: [Mapping::anonymous(range)].into(),
        };
        Snapshot { targets: vec![target(1), target(2)], ..Snapshot::default() }
    }

    #[test]
    fn the_pressure_is_that_of_the_cgroup_that_waits_most_and_refaults_count_for_a_minute() {
        let root = mounted_at_cg();
        let file = |path: &str, text: &str| write(root.path(), path, text);
        let pressure = |some: &str| {
            format!(
                "some avg10={some} avg60=0.50 avg300=0.00 total=1\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=1\n"
            )
        };
        let refaults = |pages: u64| format!("workingset_refault_anon {pages}\nworkingset_refault_file 1\n");
        for (pid, path, some) in [(1, "a", "1.00"), (2, "b", "2.00"), (3, "other", "9.00")] {
            file(&format!("proc/{pid}/cgroup"), &format!("0::/{path}\n"));
            file(&format!("cg/{path}/memory.current"), "1");
            file(&format!("cg/{path}/memory.pressure"), &pressure(some));
            file(&format!("cg/{path}/memory.stat"), &refaults(100));
        }
        let any = ["/a", "/b"].map(|path| Selector::Cgroup(Glob::new(path).unwrap())).into();
        let selection = Selection { any, ..Selection::default() };
        let mut gauges = CgroupGauges::new(SelectedCgroups::new(root.path(), selection));
        let read = |gauges: &CgroupGauges, waiting, window, cgroup: Option<&str>| {
            gauges.pressure(&CgroupPressure { cgroup: cgroup.map(Into::into), waiting, window }, &snapshot())
        };
        let (ten, minute) = (PressureWindow::TenSeconds, PressureWindow::Minute);
        assert_eq!(read(&gauges, Waiting::Some, ten, None), Some(0.02));
        assert_eq!(read(&gauges, Waiting::Some, minute, None), Some(0.005));
        assert_eq!(read(&gauges, Waiting::Full, ten, None), Some(0.0025));
        assert_eq!(read(&gauges, Waiting::Some, ten, Some("/other")), Some(0.09));
        assert_eq!(read(&gauges, Waiting::Some, ten, Some("/gone")), None);

        assert_eq!(gauges.refaults(&snapshot()), Some(0.0), "what came back before does not count");
        file("cg/a/memory.stat", &refaults(104));
        file("cg/b/memory.stat", &refaults(116));
        assert_eq!(gauges.refaults(&snapshot()), Some(0.01));
        assert_eq!(gauges.refaults(&snapshot()), Some(0.01), "each page counts once");
        assert_eq!(gauges.refaults(&Snapshot::default()), None);
        let later = Snapshot { time: Duration::from_secs(60), ..snapshot() };
        assert_eq!(gauges.refaults(&later), Some(0.0), "that was a minute ago");
    }
}
