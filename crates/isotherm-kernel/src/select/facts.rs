//! The properties of one process that selectors depend on.

use std::cell::OnceCell;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use isotherm_core::text_of;

use super::container::Containers;
use crate::cgroup::of_process;
use crate::names::{command_line, process_name, status_field};
use crate::usage::resident;

/// A process at one moment. Each fact is read when it is asked for, once. What cannot be read matches nothing.
pub(crate) struct Facts<'a> {
    root: &'a Path,
    pid: u32,
    containers: &'a Containers,
    name: OnceCell<Option<String>>,
    executable: OnceCell<Option<String>>,
    command: OnceCell<String>,
    cgroup: OnceCell<Option<String>>,
}

impl<'a> Facts<'a> {
    /// The process with this ID below `root`, which stands for `/`.
    pub(crate) fn new(root: &'a Path, pid: u32, containers: &'a Containers) -> Self {
        Self {
            root,
            pid,
            containers,
            name: OnceCell::new(),
            executable: OnceCell::new(),
            command: OnceCell::new(),
            cgroup: OnceCell::new(),
        }
    }

    /// The process with its cgroup, if that has been read.
    pub(crate) fn with_cgroup(self, cgroup: Option<String>) -> Self {
        Self { cgroup: cgroup.into(), ..self }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The name of the process, of which the kernel keeps 15 bytes.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.get_or_init(|| process_name(self.root, self.pid).ok()).as_deref()
    }

    /// The name of its executable file.
    pub(super) fn executable(&self) -> Option<&str> {
        let read = || {
            let path = fs::read_link(self.file("exe")).ok()?;
            let name = text_of(path.file_name()?.as_bytes());
            Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
        };
        self.executable.get_or_init(read).as_deref()
    }

    pub(super) fn command(&self) -> &str {
        self.command.get_or_init(|| command_line(self.root, self.pid))
    }

    pub(super) fn cgroup(&self) -> Option<&str> {
        self.cgroup.get_or_init(|| of_process(self.root, self.pid)).as_deref()
    }

    pub(super) fn containers(&self) -> &Containers {
        self.containers
    }

    /// The ID of the user as whom the process runs: the effective one.
    pub(super) fn user(&self) -> Option<u32> {
        status_field(&self.root.join("proc"), self.pid, "Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Resident bytes.
    pub(super) fn resident(&self) -> u64 {
        resident(self.root, self.pid).unwrap_or(0)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(format!("proc/{}/{name}", self.pid))
    }
}
