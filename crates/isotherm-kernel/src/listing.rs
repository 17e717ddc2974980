//! The processes of the machine.

use std::io;
use std::path::{Path, PathBuf};

use crate::names::{stat_field, status_field};

/// What stands for `/`. Processes are opened by pidfds, which no made tree has.
pub(crate) const ROOT: &str = "/";

/// The number of the field of `stat` with the ID of the parent.
const PARENT: usize = 4;

/// The IDs of all processes of the machine, with kernel threads. It opens none of them, which would take ten times as
/// long. `root` stands for `/`.
///
/// # Errors
/// If `/proc` cannot be opened.
pub fn process_ids(root: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = std::fs::read_dir(root.join("proc"))?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The ID of the parent of a process.
pub(crate) fn parent(root: &Path, pid: u32) -> Option<u32> {
    stat_field(&root.join("proc"), pid, PARENT)?.parse().ok()
}

/// The ID of a process in its own PID namespace, if that is another one than the caller's. `root` stands for `/`.
pub fn inner_pid(root: &Path, pid: u32) -> Option<u32> {
    PidNamespace::own(root).inner_pid(root, pid)
}

/// The PID namespace of the caller, which never changes. `None` if it is not known.
#[derive(Clone, Debug)]
pub(crate) struct PidNamespace(Option<PathBuf>);

impl PidNamespace {
    /// Reads it. `root` stands for `/`.
    pub(crate) fn own(root: &Path) -> Self {
        Self(Self::link(root, "self"))
    }

    /// As [`inner_pid`] has it.
    pub(crate) fn inner_pid(&self, root: &Path, pid: u32) -> Option<u32> {
        let other = Self::link(root, &pid.to_string())?;
        if other == *self.0.as_ref()? {
            return None;
        }
        status_field(&root.join("proc"), pid, "NSpid")?.split_ascii_whitespace().next_back()?.parse().ok()
    }

    /// What names the namespace of a process.
    fn link(root: &Path, process: &str) -> Option<PathBuf> {
        std::fs::read_link(root.join(format!("proc/{process}/ns/pid"))).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_process_of_another_namespace_has_another_id_inside() {
        let root = tempfile::tempdir().unwrap();
        for (process, namespace, status) in [
            ("self", 1, "Name:\tisotherm\n"),
            ("10", 1, "Name:\tsame\nNSpid:\t10\n"),
            ("11", 2, "Name:\tserver\nNSpid:\t11\t400\t7\nNSpgid:\t11\t400\t1\n"),
            ("12", 2, "Name:\told kernel\n"),
        ] {
            let proc = root.path().join("proc").join(process);
            create_dir_all(proc.join("ns")).unwrap();
            symlink(format!("pid:[{namespace}]"), proc.join("ns/pid")).unwrap();
            write(proc.join("status"), status).unwrap();
        }
        let found = [10, 11, 12, 13].map(|pid| inner_pid(root.path(), pid));
        assert_eq!(found, [None, Some(7), None, None]);
    }
}
