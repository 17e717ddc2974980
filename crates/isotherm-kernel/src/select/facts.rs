//! What one process is, as far as selectors ask for it.

use std::cell::OnceCell;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use isotherm_core::{PAGE_SIZE, text_of};

use super::container::Containers;
use crate::cgroup::of_process;
use crate::names::{command_line, process_name};

/// A process at one moment. Each fact is read when it is asked for, once. What cannot be read matches nothing.
pub(crate) struct Facts<'a> {
    root: &'a Path,
    pid: u32,
    containers: &'a Containers,
    names: OnceCell<Vec<String>>,
    command: OnceCell<String>,
    cgroup: OnceCell<Option<String>>,
}

impl<'a> Facts<'a> {
    /// The process with this ID below `root`, which stands for `/`.
    pub(crate) fn new(root: &'a Path, pid: u32, containers: &'a Containers) -> Self {
        let (names, command, cgroup) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { root, pid, containers, names, command, cgroup }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The name of the process, of which the kernel keeps 15 bytes, and that of its executable file.
    pub(super) fn names(&self) -> &[String] {
        self.names.get_or_init(|| {
            let executable = fs::read_link(self.file("exe")).ok();
            let executable = executable.as_ref().and_then(|path| Some(text_of(path.file_name()?.as_bytes())));
            let executable = executable.map(|name| name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned());
            process_name(self.root, self.pid).ok().into_iter().chain(executable).collect()
        })
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
        let status = fs::read(self.file("status")).ok()?;
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Resident bytes.
    pub(super) fn resident(&self) -> u64 {
        let read = || fs::read_to_string(self.file("statm")).ok()?.split(' ').nth(1)?.parse::<u64>().ok();
        read().unwrap_or(0).saturating_mul(PAGE_SIZE)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(format!("proc/{}/{name}", self.pid))
    }
}
