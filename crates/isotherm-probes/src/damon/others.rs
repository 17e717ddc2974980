//! Other users of the kernel's DAMON, and their description for the user.

use std::fmt;

/// The users of DAMON other than this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// The kdamonds in sysfs, on or off.
    pub kdamonds: Vec<Seen>,
    /// The kdamond threads that sysfs does not list: process ID and name.
    pub threads: Vec<(u32, String)>,
    /// The enabled kernel modules that use DAMON.
    pub modules: Vec<&'static str>,
    /// The processes that probably use DAMON: process ID and name.
    pub tools: Vec<(u32, String)>,
}

/// A kdamond in sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of the kdamond.
    pub index: u32,
    /// `on` or `off`, or `unknown` if the state cannot be read.
    pub state: String,
    /// The process ID of the thread, while the kdamond is on.
    pub pid: Option<u32>,
    /// The operations: `vaddr`, `fvaddr` or `paddr`.
    pub operations: Option<String>,
    /// The targets: process IDs, or 0 for physical memory.
    pub targets: Vec<u32>,
    /// The number of schemes.
    pub schemes: u32,
}

impl Others {
    /// Whether DAMON is in use. A running tool alone does not count.
    pub fn any(&self) -> bool {
        !self.kdamonds.is_empty() || !self.threads.is_empty() || !self.modules.is_empty()
    }
}

impl Others {
    /// Says how a kdamond that is on changes the results of probes that read accessed bits themselves. `None` if no
    /// kdamond is on.
    pub fn disturbance(&self) -> Option<String> {
        let listed = self.kdamonds.iter().filter(|seen| seen.state == "on").map(|seen| match seen.pid {
            Some(pid) => format!("kdamond {} (process {pid})", seen.index),
            None => format!("kdamond {}", seen.index),
        });
        let others = self.threads.iter().map(|(pid, name)| format!("{name} (process {pid})"));
        let on: Vec<String> = listed.chain(others).collect();
        (!on.is_empty()).then(|| {
            format!(
                "{} looks at memory too: it clears accessed bits, so that bpf misses what it finds first, and marks \
                 whole pages and large folios, which refs counts for each process that maps them",
                on.join(" and ")
            )
        })
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.kdamonds.iter().map(ToString::to_string).collect();
        for module in &self.modules {
            parts.push(format!("the kernel module {module} is enabled"));
        }
        for (pid, name) in &self.threads {
            parts.push(format!(
                "the kernel thread {name} (process {pid}) belongs to a kdamond that sysfs does not list"
            ));
        }
        for (pid, name) in &self.tools {
            parts.push(format!("{name} is running (process {pid}) and probably uses it"));
        }
        write!(f, "{} ({})", parts.join("; "), self.hint())
    }
}

impl Others {
    /// How to make DAMON available.
    fn hint(&self) -> String {
        if let [module, ..] = self.modules[..] {
            return format!(
                "use another probe, or disable the module: echo N > /sys/module/{module}/parameters/enabled"
            );
        }
        if !self.kdamonds.is_empty() && self.kdamonds.iter().all(|seen| seen.state == "off") {
            return "use another probe, or, if no program needs these settings, remove them: \
                    echo 0 > /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"
                .into();
        }
        "end the program that uses it, or use another probe".into()
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
            1 => write!(f, ", with 1 scheme"),
            n => write!(f, ", with {n} schemes"),
        }
    }
}
