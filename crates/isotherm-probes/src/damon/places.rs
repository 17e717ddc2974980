//! The paths of the kernel's files, on this machine or in the directory tree of a test.

use std::path::{Path, PathBuf};

/// The paths that the probe `damon` reads and writes.
///
/// The probe uses no other paths, so a test that uses a directory tree of its own cannot change the machine.
#[derive(Clone, Debug)]
pub struct DamonPaths {
    /// DAMON's sysfs interface, `/sys/kernel/mm/damon/admin`.
    pub admin: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// The possible mount points of tracefs, the most common one first.
    pub tracefs: Vec<PathBuf>,
    /// The parameters of kernel modules, `/sys/module`.
    pub modules: PathBuf,
    /// The directory of the claim, `/run/isotherm`. A claim is valid only until the next boot.
    pub run: PathBuf,
    /// The directory that may contain the kernel's configuration, for `isotherm doctor`.
    pub boot: PathBuf,
}

impl DamonPaths {
    /// The paths of this machine.
    pub fn system() -> Self {
        Self::under(Path::new("/"))
    }

    /// The paths below `root`, which stands for `/`.
    pub fn under(root: &Path) -> Self {
        Self {
            admin: root.join("sys/kernel/mm/damon/admin"),
            proc: root.join("proc"),
            tracefs: vec![root.join("sys/kernel/tracing"), root.join("sys/kernel/debug/tracing")],
            modules: root.join("sys/module"),
            run: root.join("run/isotherm"),
            boot: root.join("boot"),
        }
    }

    /// The directory of all kdamonds.
    pub(super) fn kdamonds(&self) -> PathBuf {
        self.admin.join("kdamonds")
    }

    /// The file that contains and sets the number of kdamonds.
    pub(super) fn nr_kdamonds(&self) -> PathBuf {
        self.kdamonds().join("nr_kdamonds")
    }

    /// The directory of the kdamond with this number.
    pub(super) fn kdamond(&self, index: u32) -> PathBuf {
        self.kdamonds().join(index.to_string())
    }

    /// The file of the claim.
    pub(super) fn claim(&self) -> PathBuf {
        self.run.join("damon.claim")
    }
}
