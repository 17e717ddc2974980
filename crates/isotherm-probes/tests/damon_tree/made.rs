//! A directory tree that stands for the kernel's files.
//!
//! Plain files do not behave like sysfs. Writing a number makes no directories, so the directories exist from the
//! start. A state stays as it was written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, Attributes};
use isotherm_probes::damon::{DamonPaths, Scope, Settings};

/// The process ID of the kdamond in the tree.
pub const KDAMOND: u32 = 77;

pub struct Made {
    pub dir: tempfile::TempDir,
    pub places: DamonPaths,
}

impl Made {
    /// A kernel whose DAMON is not in use, with `tried_regions` and without tracefs.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let places = DamonPaths::under(dir.path());
        let made = Self { dir, places };
        made.file("nr_kdamonds", "0\n");
        made.file("0/state", "off\n");
        made.file("0/pid", &format!("{KDAMOND}\n"));
        made.file("0/contexts/nr_contexts", "0\n");
        made.context("avail_operations", "vaddr\nfvaddr\npaddr\n");
        for name in [
            "operations",
            "monitoring_attrs/intervals/sample_us",
            "monitoring_attrs/intervals/aggr_us",
            "monitoring_attrs/intervals/update_us",
            "monitoring_attrs/nr_regions/min",
            "monitoring_attrs/nr_regions/max",
            "targets/nr_targets",
            "targets/0/pid_target",
            "targets/1/pid_target",
            "targets/0/regions/nr_regions",
            "targets/0/regions/0/start",
            "targets/0/regions/0/end",
            "targets/0/regions/1/start",
            "targets/0/regions/1/end",
            "schemes/nr_schemes",
            "schemes/0/action",
            "schemes/0/quotas/bytes",
            "schemes/0/quotas/reset_interval_ms",
            "schemes/0/stats/sz_tried",
            "schemes/0/stats/sz_applied",
        ] {
            made.context(name, "0\n");
        }
        for what in ["sz", "nr_accesses", "age"] {
            made.context(&format!("schemes/0/access_pattern/{what}/min"), "0\n");
            made.context(&format!("schemes/0/access_pattern/{what}/max"), "0\n");
        }
        made.context("schemes/0/tried_regions/total_bytes", "0\n");
        // The thread exists before the kdamond is on. Its name does not start with `kdamond`, so it is not found.
        made.thread(KDAMOND, "made", 5000);
        made.proc("sys/kernel/random/boot_id", "0a1b2c3d\n");
        made
    }

    /// A kernel on which another program runs a kdamond.
    pub fn busy() -> Self {
        let made = Self::new();
        made.file("nr_kdamonds", "1\n");
        made.file("0/state", "on\n");
        made.thread(KDAMOND, "kdamond.0", 5000);
        made.context("operations", "vaddr\n");
        made.context("targets/nr_targets", "2\n");
        made.context("targets/0/pid_target", "4321\n");
        made.context("targets/1/pid_target", "4322\n");
        made
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.places.admin.join("kdamonds").join(name)
    }

    pub fn file(&self, name: &str, content: &str) {
        put(&self.path(name), content);
    }

    pub fn context(&self, name: &str, content: &str) {
        self.file(&format!("0/contexts/0/{name}"), content);
    }

    pub fn proc(&self, name: &str, content: &str) {
        put(&self.places.proc.join(name), content);
    }

    /// Adds a thread with this start time, in clock ticks since boot.
    pub fn thread(&self, pid: u32, name: &str, started: u64) {
        self.proc(&format!("{pid}/stat"), &format!("{pid} (a (b) c) S{} {started} 0 0\n", " 1".repeat(18)));
        self.proc(&format!("{pid}/schedstat"), "123456789 5 6\n");
        self.proc(&format!("{pid}/comm"), &format!("{name}\n"));
    }

    /// Removes the thread of the kdamond.
    pub fn end_thread(&self) {
        fs::remove_dir_all(self.places.proc.join(KDAMOND.to_string())).unwrap();
    }

    pub fn region(&self, index: u32, range: (u64, u64), nr_accesses: u32, age: u32) {
        let file = |name: &str, value: u64| {
            self.context(&format!("schemes/0/tried_regions/{index}/{name}"), &format!("{value}\n"));
        };
        file("start", range.0);
        file("end", range.1);
        file("nr_accesses", nr_accesses.into());
        file("age", age.into());
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    pub fn read_context(&self, name: &str) -> String {
        self.read(&format!("0/contexts/0/{name}"))
    }

    pub fn claim(&self) -> PathBuf {
        self.places.run.join("damon.claim")
    }

    /// The paths and the content of all files.
    pub fn all(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.dir.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    files.insert(path.clone(), fs::read_to_string(path).unwrap());
                }
            }
        }
        files
    }
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub fn settings(scope: Scope) -> Settings {
    Settings { attributes: Attributes::default(), scope, goal: None }
}

pub fn processes(pids: &[u32]) -> Settings {
    settings(Scope::Processes(pids.to_vec()))
}

pub fn range(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start, end).unwrap()
}
