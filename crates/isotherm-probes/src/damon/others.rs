//! Who else uses the kernel's DAMON, and how that is told to the user.

use std::fmt;

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
    /// Whether anything of DAMON is there. A tool alone is nothing yet.
    pub fn any(&self) -> bool {
        !self.kdamonds.is_empty() || !self.threads.is_empty() || !self.modules.is_empty()
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
