//! Finds the cgroup hierarchy that accounts memory, and its mount point.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use isotherm_core::{bytes_of, text_of};
use procfs::process::{MountInfo, MountInfos};
use procfs::{FromBufRead, ProcessCGroups};
use thiserror::Error;

/// The suffix that the kernel adds to the path of a removed cgroup that a process still belongs to.
const REMOVED: &str = " (deleted)";

/// The version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One of several hierarchies, with the controllers that it was mounted with.
    V1,
    /// The unified hierarchy.
    V2,
}

impl CgroupVersion {
    /// The number of the version, 1 or 2.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// Why no hierarchy that accounts memory is found.
#[derive(Clone, Debug, Error)]
pub enum NoHierarchy {
    /// The list of the hierarchies cannot be read.
    #[error("{path} cannot be read: {why} (is /proc mounted, and is the kernel built with CONFIG_CGROUPS?)")]
    Unknown {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// There are hierarchies, but none has the controller `memory`.
    #[error(
        "no cgroup hierarchy accounts memory: {path} lists neither a hierarchy with the controller `memory` nor one of \
         version 2 (use a kernel built with CONFIG_MEMCG and booted without cgroup_disable=memory)"
    )]
    WithoutMemory {
        /// The path of the file.
        path: PathBuf,
    },
}

/// The hierarchy that accounts memory.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    root: PathBuf,
    version: CgroupVersion,
    mount: Option<Mount>,
}

/// A mount of the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The mount point. Each directory below it is a cgroup.
    pub(super) directory: PathBuf,
    /// The cgroup at the mount point: `/`, unless only a part of the hierarchy is mounted.
    pub(super) cgroup: String,
}

impl Hierarchy {
    /// Finds the hierarchy from the files below `root`, which stands for `/`.
    ///
    /// # Errors
    /// Fails if the kernel has no cgroups, or if no hierarchy accounts memory.
    pub fn find(root: &Path) -> Result<Self, NoHierarchy> {
        let path = root.join("proc/self/cgroup");
        let unknown = |why: String| NoHierarchy::Unknown { path: path.clone(), why };
        let own = read::<ProcessCGroups>(&path).map_err(unknown)?.0;
        let version = if own.iter().any(|line| line.controllers.iter().any(|name| name == "memory")) {
            CgroupVersion::V1
        } else if own.iter().any(|line| line.hierarchy == 0) {
            CgroupVersion::V2
        } else {
            return Err(NoHierarchy::WithoutMemory { path });
        };
        // The mount point is optional: without it, only the paths of processes are known.
        let mounts = read::<MountInfos>(&root.join("proc/self/mountinfo")).map(|mounts| mounts.0).unwrap_or_default();
        let mount = mounts.iter().filter(|mount| is_of(mount, version)).map(|mount| {
            // The kernel escapes each backslash itself, so that only those of `text_of` are left.
            let bytes = |text: &[u8]| unescaped(&bytes_of(&String::from_utf8_lossy(text)));
            let directory = bytes(mount.mount_point.as_os_str().as_bytes());
            let directory = Path::new(OsStr::from_bytes(&directory));
            let cgroup = text_of(&bytes(mount.root.as_bytes())).into_owned();
            Mount { directory: root.join(directory.strip_prefix("/").unwrap_or(directory)), cgroup }
        });
        // Prefer a mount of the whole hierarchy to a mount of a part, then the shortest mount point.
        let mount = mount.min_by_key(|mount| (mount.cgroup.len(), mount.directory.as_os_str().len()));
        Ok(Self { root: root.into(), version, mount })
    }

    /// The version of the hierarchy.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The mount point, if the hierarchy is mounted.
    pub fn directory(&self) -> Option<&Path> {
        self.mount.as_ref().map(|mount| mount.directory.as_path())
    }

    /// The command that mounts the hierarchy.
    pub fn mount_command(&self) -> &'static str {
        match self.version {
            CgroupVersion::V1 => "mount -t cgroup -o memory none DIRECTORY",
            CgroupVersion::V2 => "mount -t cgroup2 none DIRECTORY",
        }
    }

    pub(super) fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// The path, within the hierarchy, of the cgroup that process `pid` belongs to. See [`of_process`].
    pub fn of_process(&self, pid: u32) -> Option<String> {
        of_process(&self.root, pid)
    }

    /// The path, within the hierarchy, of the cgroup that a user names. The name is that path, with or without a
    /// leading slash, or a directory below the mount point.
    pub fn path_of(&self, named: &str) -> String {
        let within = self.mount.as_ref().and_then(|mount| {
            let below = Path::new(named).strip_prefix(&mount.directory).ok()?;
            Some(mount.path(below))
        });
        within.unwrap_or_else(|| {
            let trimmed = named.trim_matches('/');
            format!("/{trimmed}")
        })
    }
}

impl Mount {
    /// The directory of the cgroup at `path`. `None` if it is not below the mount point.
    pub(super) fn directory_of(&self, path: &str) -> Option<PathBuf> {
        let below = bytes_of(path);
        let top = bytes_of(&self.cgroup);
        Some(self.directory.join(Path::new(OsStr::from_bytes(&below)).strip_prefix(OsStr::from_bytes(&top)).ok()?))
    }

    /// The path of the cgroup whose directory is `below`, relative to the mount point.
    pub(super) fn path(&self, below: &Path) -> String {
        let (top, below) = (self.cgroup.trim_end_matches('/'), text_of(below.as_os_str().as_bytes()));
        if below.is_empty() && top.is_empty() {
            "/".into()
        } else if below.is_empty() {
            top.into()
        } else {
            format!("{top}/{below}")
        }
    }
}

/// The path, within its hierarchy, of the cgroup that accounts the memory of process `pid`, such as
/// `/system.slice/cron.service`.
///
/// The hierarchy is that of version 1 with the controller `memory`, or else that of version 2 (`cgroups(7)`,
/// "/proc/pid/cgroup"). Returns `None` if the process no longer exists or the kernel has no cgroups.
pub fn of_process(root: &Path, pid: u32) -> Option<String> {
    let text = std::fs::read(root.join(format!("proc/{pid}/cgroup"))).ok()?;
    // A line has the number of the hierarchy, its controllers, and the path, which may contain colons.
    let mut v2 = None;
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
            return Some(without_mark(path));
        }
        if number == b"0" {
            v2 = Some(path);
        }
    }
    v2.map(without_mark)
}

/// The path of a cgroup as text, without the mark of a removed one.
fn without_mark(path: &[u8]) -> String {
    text_of(path.strip_suffix(REMOVED.as_bytes()).unwrap_or(path)).into_owned()
}

/// Whether this is a mount of the hierarchy that accounts memory.
fn is_of(mount: &MountInfo, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::V1 => mount.fs_type == "cgroup" && mount.super_options.contains_key("memory"),
        CgroupVersion::V2 => mount.fs_type == "cgroup2",
    }
}

/// Decodes a path of `/proc/PID/mountinfo`. The kernel writes white space and backslashes as octal numbers (`\040`).
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let octal = others
            .first_chunk::<3>()
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(*first));
        rest = &others[if octal.is_some() { 3 } else { 0 }..];
    }
    out
}

/// Reads a file that may hold paths. A path that is no UTF-8 is as [`text_of`] has it.
fn read<T: FromBufRead>(path: &Path) -> Result<T, String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    T::from_buf_read(text_of(&bytes).as_bytes()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use super::*;

    #[test]
    fn a_process_belongs_to_the_cgroup_that_accounts_its_memory() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let of = |lines: &str| {
            std::fs::write(root.path().join("proc/7/cgroup"), lines).unwrap();
            of_process(root.path(), 7)
        };
        assert_eq!(of("0::/system.slice/redis.service\n").as_deref(), Some("/system.slice/redis.service"));
        assert_eq!(of("5:cpu,cpuacct:/a\n4:memory:/b:c\n0::/\n").as_deref(), Some("/b:c"));
        assert_eq!(of("1:name=systemd:/a\n0::/d\n").as_deref(), Some("/d"));
        assert_eq!(of("0::/gone (deleted)\n").as_deref(), Some("/gone"));
        std::fs::write(root.path().join("proc/7/cgroup"), b"0::/\xff\xfe.slice\n").unwrap();
        assert_eq!(of_process(root.path(), 7).as_deref(), Some("/\\xff\\xfe.slice"));
        assert_eq!(of(""), None);
        assert_eq!(of_process(root.path(), 8), None);
    }
}
