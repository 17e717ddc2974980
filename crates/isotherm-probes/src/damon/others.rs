//! Who else uses the kernel's DAMON, as far as can be seen without changing anything.

use std::fmt;
use std::fs;
use std::path::Path;

use super::{DamonError, Places, files};

/// Kernel modules that run a kdamond of their own, which sysfs does not list: Linux `Documentation/admin-guide/mm/damon/`.
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];

/// What of DAMON there is that isotherm did not start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Those that the administration lists, running or not.
    pub kdamonds: Vec<Seen>,
    /// Kernel threads that it does not list: process ID and name.
    pub threads: Vec<(u32, String)>,
    /// Modules that are switched on.
    pub modules: Vec<&'static str>,
    /// Processes that look like users of DAMON: process ID and name.
    pub tools: Vec<(u32, String)>,
}

/// One kdamond of the administration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub index: u32,
    /// `on` or `off`.
    pub state: String,
    /// The process ID of its thread, while it is on.
    pub pid: Option<u32>,
    /// What it watches: `vaddr`, `fvaddr`, `paddr`.
    pub operations: Option<String>,
    /// Its targets: process IDs, 0 for physical memory.
    pub targets: Vec<u32>,
    /// The schemes that it applies.
    pub schemes: u32,
}

impl Others {
    /// Looks around. Nothing is written.
    ///
    /// # Errors
    /// If the kernel has no DAMON to administrate, or its state may not be read.
    pub fn look(places: &Places) -> Result<Self, DamonError> {
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

    /// Whether anything of DAMON is there. A tool alone is nothing yet.
    pub fn any(&self) -> bool {
        !self.kdamonds.is_empty() || !self.threads.is_empty() || !self.modules.is_empty()
    }
}

impl Seen {
    /// What can be read of it; it may go at any time.
    pub(super) fn read(places: &Places, index: u32) -> Self {
        let seen = Self::read_once(places, index);
        // It went off between the reading of its state and of its thread.
        if seen.state == "on" && seen.pid.is_none() { Self::read_once(places, index) } else { seen }
    }

    fn read_once(places: &Places, index: u32) -> Self {
        let kdamond = places.kdamond(index);
        let context = kdamond.join("contexts/0");
        let nr_targets = files::read_number(&context.join("targets/nr_targets")).unwrap_or(0_u32);
        let pid_target = |target: u32| files::read_number(&context.join(format!("targets/{target}/pid_target"))).ok();
        Self {
            index,
            state: files::read(&kdamond.join("state")).unwrap_or_else(|_| "unknown".into()),
            // Off, the kernel says -1.
            pid: files::read_number(&kdamond.join("pid")).ok(),
            operations: files::read(&context.join("operations")).ok(),
            targets: (0..nr_targets).filter_map(pid_target).collect(),
            schemes: files::read_number(&context.join("schemes/nr_schemes")).unwrap_or(0),
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.kdamonds.iter().map(ToString::to_string).collect();
        for module in &self.modules {
            parts.push(format!("the kernel module {module} is switched on"));
        }
        for (pid, name) in &self.threads {
            parts.push(format!("the kernel thread {name} (process {pid}) belongs to no kdamond of sysfs"));
        }
        for (pid, name) in &self.tools {
            parts.push(format!("{name} runs (process {pid}), and may be its user"));
        }
        write!(f, "{}; {}", parts.join("; "), self.mend())
    }
}

impl Others {
    fn mend(&self) -> String {
        if let [module, ..] = self.modules[..] {
            return format!("end its use (echo N > /sys/module/{module}/parameters/enabled), or use another probe");
        }
        if !self.kdamonds.is_empty() && self.kdamonds.iter().all(|seen| seen.state == "off") {
            return "it does not run; if nobody needs its settings, remove it \
                    (echo 0 > /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds), or use another probe"
                .into();
        }
        "end its user, or use another probe".into()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kdamond {} is {}", self.index, self.state)?;
        if let Some(pid) = self.pid {
            write!(f, " (process {pid})")?;
        }
        match self.operations.as_deref() {
            Some("paddr") => write!(f, " and watches physical memory (paddr)")?,
            Some(operations) => {
                let targets: Vec<_> = self.targets.iter().map(ToString::to_string).collect();
                let watched = if targets.is_empty() { "none yet".into() } else { targets.join(", ") };
                write!(f, " and watches processes ({operations}): {watched}")?;
            }
            None => write!(f, ", without settings")?,
        }
        match self.schemes {
            0 => Ok(()),
            1 => write!(f, ", with a scheme"),
            n => write!(f, ", with {n} schemes"),
        }
    }
}

/// All processes, kernel threads included, and their names.
fn processes(proc: &Path) -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // One that has ended in between has no name any more.
        Some((pid, fs::read_to_string(entry.path().join("comm")).ok()?.trim_end().to_owned()))
    })
}

/// Whether it is a Python that runs `damo`.
fn runs_damo(proc: &Path, pid: u32, name: &str) -> bool {
    let damo = |argument: &[u8]| argument == b"damo" || argument.ends_with(b"/damo") || argument.ends_with(b"/damo.py");
    name.starts_with("python")
        && fs::read(proc.join(pid.to_string()).join("cmdline"))
            .is_ok_and(|line| line.split(|&byte| byte == 0).take(3).any(damo))
}
