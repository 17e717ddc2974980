//! Which hierarchy memory is accounted in, and where it is mounted.

use std::ffi::OsStr;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, MountInfos};
use procfs::{FromBufRead, ProcessCGroups};
use thiserror::Error;

/// What the kernel adds to the path of a cgroup that was removed while a process was in it.
const REMOVED: &str = " (deleted)";

/// The kind of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One of several, with the controllers that it was mounted with.
    V1,
    /// The unified one.
    V2,
}

impl CgroupVersion {
    /// 1 or 2.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// Why it cannot be told whose memory is.
#[derive(Debug, Error)]
pub enum NoHierarchy {
    /// The kernel does not tell of cgroups.
    #[error("{path} cannot be read ({why}); is /proc mounted, and does the kernel have cgroups (CONFIG_CGROUPS)?")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// There are hierarchies, but no controller of memory in any.
    #[error(
        "no cgroup hierarchy accounts memory: {path} tells of none with the controller `memory`, and none of version 2; \
         use a kernel with CONFIG_MEMCG, and without cgroup_disable=memory"
    )]
    WithoutMemory {
        /// The file.
        path: PathBuf,
    },
}

/// The hierarchy that memory is accounted in.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    root: PathBuf,
    version: CgroupVersion,
    mount: Option<Mount>,
}

/// Where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The directory, below which directories are cgroups.
    pub(super) directory: PathBuf,
    /// The cgroup that this directory is: `/`, unless only a part of the hierarchy is mounted.
    pub(super) cgroup: String,
}

impl Hierarchy {
    /// Finds it on the machine whose files lie below `root`.
    ///
    /// # Errors
    /// If the kernel has no cgroups, or accounts memory in none.
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
        // Where it is mounted is worth knowing, but it can do without.
        let mounts = read::<MountInfos>(&root.join("proc/self/mountinfo")).map(|mounts| mounts.0).unwrap_or_default();
        let mount = mounts.iter().filter(|mount| is_of(mount, version)).map(|mount| {
            let directory = unescaped(mount.mount_point.as_os_str().as_bytes());
            let directory = Path::new(OsStr::from_bytes(&directory));
            let cgroup = String::from_utf8_lossy(&unescaped(mount.root.as_bytes())).into_owned();
            Mount { directory: root.join(directory.strip_prefix("/").unwrap_or(directory)), cgroup }
        });
        // The whole of it rather than a part, and the usual place rather than one deep down.
        let mount = mount.min_by_key(|mount| (mount.cgroup.len(), mount.directory.as_os_str().len()));
        Ok(Self { root: root.into(), version, mount })
    }

    /// Its kind.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The directory that it is mounted at, if it is.
    pub fn directory(&self) -> Option<&Path> {
        self.mount.as_ref().map(|mount| mount.directory.as_path())
    }

    pub(super) fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// The path within the hierarchy of the cgroup that process `pid` belongs to; see [`of_process`].
    pub fn of_process(&self, pid: u32) -> Option<String> {
        of_process(&self.root, pid)
    }

    /// The path within the hierarchy of what a user names: by that path, with or without a slash before it, or by a directory in the
    /// mounted hierarchy.
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
    /// The path of the cgroup at `below`, relative to the directory.
    pub(super) fn path(&self, below: &Path) -> String {
        let (top, below) = (self.cgroup.trim_end_matches('/'), below.to_string_lossy());
        if below.is_empty() && top.is_empty() {
            "/".into()
        } else if below.is_empty() {
            top.into()
        } else {
            format!("{top}/{below}")
        }
    }
}

/// The path of the cgroup that the memory of process `pid` is accounted in, such as `/system.slice/cron.service`, within its hierarchy:
/// the one of version 1 with the controller `memory`, else the one of version 2 (`cgroups(7)`, "/proc/pid/cgroup"). Nothing if
/// the process is not there any more, or the kernel has no cgroups.
pub fn of_process(root: &Path, pid: u32) -> Option<String> {
    let lines = read::<ProcessCGroups>(&root.join(format!("proc/{pid}/cgroup"))).ok()?.0;
    let v1 = lines.iter().find(|line| line.controllers.iter().any(|name| name == "memory"));
    let line = v1.or_else(|| lines.iter().find(|line| line.hierarchy == 0))?;
    Some(line.pathname.strip_suffix(REMOVED).unwrap_or(&line.pathname).to_owned())
}

/// Whether this is a mount of the hierarchy that memory is accounted in.
fn is_of(mount: &MountInfo, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::V1 => mount.fs_type == "cgroup" && mount.super_options.contains_key("memory"),
        CgroupVersion::V2 => mount.fs_type == "cgroup2",
    }
}

/// A path of mountinfo, in which the kernel writes blanks and backslashes as octal numbers (`\040`).
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

fn read<T: FromBufRead>(path: &Path) -> Result<T, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    T::from_buf_read(BufReader::new(file)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use super::*;

    #[test]
    fn the_cgroup_of_a_process_is_the_one_that_accounts_its_memory() {
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
        assert_eq!(of(""), None);
        assert_eq!(of_process(root.path(), 8), None);
    }
}
