//! Whether the multi-generational LRU may be asked to age, on made trees.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;

use isotherm_kernel::lru_gen::{LruGen, LruGenError, memcg_of};
use tempfile::TempDir;

/// A machine on which everything is there and on.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in ["sys/kernel/mm/lru_gen", "sys/kernel/debug", "proc/self/ns"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    write(&root, "sys/kernel/mm/lru_gen/enabled", "0x0007\n");
    write(&root, "sys/kernel/mm/lru_gen/min_ttl_ms", "0\n");
    write(&root, "sys/kernel/debug/lru_gen", "memcg     1 /\n node     0\n          5          0       1       2 \n");
    std::os::unix::fs::symlink("cgroup:[4026531835]", root.path().join("proc/self/ns/cgroup")).unwrap();
    root
}

fn write(root: &TempDir, path: &str, text: &str) {
    fs::write(root.path().join(path), text).unwrap();
}

#[test]
fn a_machine_that_has_it_on_lists_its_memcgs() {
    let root = machine();
    let memcgs = LruGen::open(root.path()).unwrap().memcgs().unwrap();
    assert_eq!(memcg_of(&memcgs, "/some/cgroup").unwrap().nodes[0].youngest, 5);
}

#[test]
fn one_without_it_is_told_from_one_on_which_it_is_off() {
    let root = machine();
    for off in ["0x0000", "0x0001", "0x0006"] {
        write(&root, "sys/kernel/mm/lru_gen/enabled", off);
        let error = LruGen::open(root.path()).unwrap_err();
        assert!(matches!(&error, LruGenError::Off { value, .. } if value == off), "{error}");
        assert!(error.to_string().contains("echo y"), "{error}");
    }
    write(&root, "sys/kernel/mm/lru_gen/enabled", "on");
    assert!(matches!(LruGen::open(root.path()), Err(LruGenError::Format { .. })));
    fs::remove_dir_all(root.path().join("sys/kernel/mm/lru_gen")).unwrap();
    assert!(matches!(LruGen::open(root.path()), Err(LruGenError::Missing { .. })));
}

#[test]
fn a_machine_that_protects_memory_by_its_age_is_not_aged() {
    let root = machine();
    write(&root, "sys/kernel/mm/lru_gen/min_ttl_ms", "1000\n");
    assert!(matches!(LruGen::open(root.path()), Err(LruGenError::Protected { min_ttl_ms: 1000, .. })));
}

#[test]
fn without_debugfs_or_in_another_namespace_it_is_not_available() {
    let root = machine();
    fs::remove_file(root.path().join("sys/kernel/debug/lru_gen")).unwrap();
    assert!(matches!(LruGen::open(root.path()), Err(LruGenError::Read { .. })));
    let root = machine();
    fs::remove_file(root.path().join("proc/self/ns/cgroup")).unwrap();
    std::os::unix::fs::symlink("cgroup:[4026532999]", root.path().join("proc/self/ns/cgroup")).unwrap();
    assert!(matches!(LruGen::open(root.path()), Err(LruGenError::Namespace { .. })));
}
