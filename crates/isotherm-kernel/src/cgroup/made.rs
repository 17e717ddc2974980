//! A made tree with a cgroup hierarchy, for tests.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A root directory in which the hierarchy of version 2 is mounted at `/cg`.
pub(super) fn mounted_at_cg() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "proc/self/cgroup", "0::/\n");
    write(root.path(), "proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    root
}

/// Writes the file `path` below `root`.
pub(super) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
