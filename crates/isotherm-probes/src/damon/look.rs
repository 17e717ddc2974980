//! Finds other users of the kernel's DAMON without changing anything.

use std::fs;
use std::path::Path;

use isotherm_core::text_of;
use isotherm_kernel::hold::held;

use super::others::{Others, Seen};
use super::{DamonError, DamonPaths, files};

/// The kernel modules that run a kdamond that sysfs does not list (Linux `Documentation/admin-guide/mm/damon/`).
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];

impl Others {
    /// Finds the other users. Writes nothing.
    ///
    /// # Errors
    /// Fails if the kernel has no sysfs interface of DAMON or its files cannot be read.
    pub fn look(places: &DamonPaths) -> Result<Self, DamonError> {
        let nr_kdamonds = places.nr_kdamonds();
        if !fs::exists(&nr_kdamonds).is_ok_and(|exists| exists) {
            return Err(DamonError::NoSysfs(nr_kdamonds));
        }
        let count: u32 = files::read_number(&nr_kdamonds)?;
        let kdamonds: Vec<Seen> = (0..count).map(|index| Seen::read(places, index)).collect();
        let mut threads = Vec::new();
        let mut tools = Vec::new();
        for (pid, name) in processes(&places.proc) {
            if name.starts_with("kdamond") && !kdamonds.iter().any(|seen| seen.pid == Some(pid)) {
                threads.push((pid, name));
            } else if name == "damo" || runs_damo(&places.proc, pid, &name) {
                tools.push((pid, "damo".into()));
            }
        }
        let enabled = |module: &&str| {
            let parameter = places.modules.join(module).join("parameters/enabled");
            files::read(&parameter).is_ok_and(|value| value == "Y" || value == "1")
        };
        Ok(Self { kdamonds, threads, modules: MODULES.into_iter().filter(enabled).collect(), tools })
    }
}

impl Seen {
    /// Reads what is available of a kdamond, which can disappear at any time.
    pub(super) fn read(places: &DamonPaths, index: u32) -> Self {
        let seen = Self::read_once(places, index);
        // The kdamond was turned off between the reading of its state and of its thread.
        if seen.state == "on" && seen.pid.is_none() { Self::read_once(places, index) } else { seen }
    }

    fn read_once(places: &DamonPaths, index: u32) -> Self {
        let kdamond = places.kdamond(index);
        let context = kdamond.join("contexts/0");
        let nr_targets = files::read_number(&context.join("targets/nr_targets")).unwrap_or(0_u32);
        let pid_target = |target: u32| files::read_number(&context.join(format!("targets/{target}/pid_target"))).ok();
        Self {
            index,
            state: files::read(&kdamond.join("state")).unwrap_or_else(|_| "unknown".into()),
            // The file contains -1 if the kdamond is off.
            pid: files::read_number(&kdamond.join("pid")).ok(),
            operations: files::read(&context.join("operations")).ok(),
            targets: (0..nr_targets).filter_map(pid_target).collect(),
            schemes: files::read_number(&context.join("schemes/nr_schemes")).unwrap_or(0),
        }
    }
}

/// The IDs and names of all processes, including kernel threads.
fn processes(proc: &Path) -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // A process that has ended meanwhile has no name.
        let name = fs::read(entry.path().join("comm")).ok()?;
        Some((pid, text_of(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()))
    })
}

/// Whether the process is a Python interpreter that runs `damo`.
fn runs_damo(proc: &Path, pid: u32, name: &str) -> bool {
    let damo = |argument: &[u8]| argument == b"damo" || argument.ends_with(b"/damo") || argument.ends_with(b"/damo.py");
    name.starts_with("python")
        && held(|| fs::read(proc.join(pid.to_string()).join("cmdline")))
            .0
            .is_ok_and(|line| line.split(|&byte| byte == 0).take(3).any(damo))
}
