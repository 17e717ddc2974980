//! The cgroups of a hierarchy, by inode number.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Hierarchy;
use crate::pattern::Glob;

/// The paths of the cgroups of a hierarchy, by inode number. `/proc/kpagecgroup` identifies cgroups by this number.
///
/// Removed cgroups are kept, because the kernel does not use an inode number twice.
#[derive(Clone, Debug, Default)]
pub struct CgroupPaths {
    paths: HashMap<u64, String>,
    there: HashSet<u64>,
}

impl CgroupPaths {
    /// Reads the current cgroups and adds them to the known ones.
    ///
    /// Returns `false` if the hierarchy is not mounted or its mount point cannot be read.
    pub fn read(&mut self, hierarchy: &Hierarchy) -> bool {
        let Some(mount) = hierarchy.mount() else { return false };
        let Ok(top) = fs::metadata(&mount.directory) else { return false };
        self.there.clear();
        self.insert(top.ino(), mount.path(Path::new("")));
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            // A cgroup that was removed meanwhile has no entries.
            for entry in fs::read_dir(mount.directory.join(&below)).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let below = below.join(entry.file_name());
                    self.insert(entry.ino(), mount.path(&below));
                    left.push(below);
                }
            }
        }
        true
    }

    fn insert(&mut self, inode: u64, path: String) {
        self.paths.insert(inode, path);
        self.there.insert(inode);
    }

    /// Whether the cgroup with this inode number existed at the last [`read`](Self::read).
    pub fn is_there(&self, inode: u64) -> bool {
        self.there.contains(&inode)
    }

    /// The path of the cgroup with this inode number, if it is known.
    pub fn path(&self, inode: u64) -> Option<&str> {
        self.paths.get(&inode).map(String::as_str)
    }

    /// The inode numbers of the cgroups at these paths, and of all below them.
    pub fn below(&self, tops: &[Glob]) -> impl Iterator<Item = u64> {
        let found = self.paths.iter().filter(|(_, path)| tops.iter().any(|top| top.matches_at_or_above(path)));
        found.map(|(&inode, _)| inode)
    }
}

/// Whether the cgroup at `path` is the cgroup at `top` or a descendant of it.
pub(crate) fn is_below(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
