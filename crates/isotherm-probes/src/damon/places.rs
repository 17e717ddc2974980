//! Where the kernel's files are: on this machine, or in a tree that a test has made.

use std::path::{Path, PathBuf};

/// The places that the probe `damon` reads and writes.
///
/// Everything in this module goes through one of these, so that a test that hands in a directory of its own can reach
/// nothing of the machine.
#[derive(Clone, Debug)]
pub struct Places {
    /// DAMON's administration, `/sys/kernel/mm/damon/admin`.
    pub admin: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// Where tracefs may be mounted, the likelier place first.
    pub tracefs: Vec<PathBuf>,
    /// The parameters of kernel modules, `/sys/module`.
    pub modules: PathBuf,
    /// Where the claim is kept, `/run/isotherm`: its content must not outlive the machine's uptime.
    pub run: PathBuf,
    /// Where the kernel's configuration may be, for the doctor.
    pub boot: PathBuf,
}

impl Places {
    /// Those of this machine.
    pub fn system() -> Self {
        Self::under(Path::new("/"))
    }

    /// The same below another root.
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

    /// The file that holds, and sets, how many kdamonds there are.
    pub(super) fn nr_kdamonds(&self) -> PathBuf {
        self.kdamonds().join("nr_kdamonds")
    }

    /// The directory of the kdamond of this number.
    pub(super) fn kdamond(&self, index: u32) -> PathBuf {
        self.kdamonds().join(index.to_string())
    }

    /// The file that a run leaves its claim in.
    pub(super) fn claim(&self) -> PathBuf {
        self.run.join("damon.claim")
    }
}
