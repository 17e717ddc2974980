//! Cgroups: how the hierarchy is found, and scans of some cgroups only.

use std::fs;

use isotherm_kernel::cgroup::{CgroupVersion, Hierarchy};
use isotherm_probes::idle_scan::{Detail, Scan, Scope};

use crate::made::{LRU, Made, V2, of, pacer};

#[test]
fn the_hierarchy_that_accounts_memory_is_found_if_both_versions_are_mounted() {
    let made = Made::new(128);
    made.write("proc/self/cgroup", "7:cpu,cpuacct:/\n4:memory:/\n1:name=systemd:/user.slice\n0::/user.slice\n");
    made.write(
        "proc/self/mountinfo",
        "29 1 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
         31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         33 1 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         34 1 0:29 /docker/x /var/lib/x rw - cgroup cgroup rw,memory\n",
    );
    made.cgroup("sys/fs/cgroup/unified/a");
    let a = made.cgroup("sys/fs/cgroup/memory/in/v1");
    made.page([1, 2], LRU, a);
    let mut scan = made.marked();
    let findings = made.read(&mut scan);
    assert_eq!(findings.cgroup_version, Some(CgroupVersion::V1));
    assert_eq!(of(&findings, "/in/v1"), Some([2, 0, 0, 0]));

    made.write("proc/9/cgroup", "4:memory:/in/v1\n0::/elsewhere\n");
    let hierarchy = Hierarchy::find(made.root.path()).unwrap();
    assert_eq!(hierarchy.of_process(9).as_deref(), Some("/in/v1"));
    assert_eq!(hierarchy.of_process(10), None);
}

#[test]
fn a_hierarchy_that_is_mounted_elsewhere_is_found_there() {
    let made = Made::new(128);
    made.write("proc/self/mountinfo", "30 1 0:26 / /mnt/control\\040groups rw - cgroup2 none rw\n");
    let a = made.cgroup("mnt/control groups/a");
    made.page([1], LRU, a);
    let mut scan = made.marked();
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([1, 0, 0, 0]));
    let hierarchy = Hierarchy::find(made.root.path()).unwrap();
    let directory = made.path("mnt/control groups/a/b");
    for named in ["/a/b", "a/b", "a/b/", directory.to_str().unwrap()] {
        assert_eq!(hierarchy.path_of(named), "/a/b");
    }
}

#[test]
fn a_partly_mounted_hierarchy_keeps_its_paths_and_other_cgroups_have_inode_numbers() {
    let made = Made::new(128);
    made.write("proc/self/mountinfo", "30 1 0:26 /pod /sys/fs/cgroup rw - cgroup2 none rw\n");
    let (pod, a) = (made.cgroup("sys/fs/cgroup"), made.cgroup("sys/fs/cgroup/a"));
    made.page([1], LRU, a);
    made.page([2], LRU, pod);
    made.page([3], LRU, 987_654_321);
    let mut scan = made.marked();
    let findings = made.read(&mut scan);
    assert_eq!((of(&findings, "/pod/a"), of(&findings, "/pod")), (Some([1, 0, 0, 0]), Some([1, 0, 0, 0])));
    assert!(findings.cgroups.iter().any(|cgroup| cgroup.inode == Some(987_654_321)));
    assert!(findings.notes.iter().any(|note| note.contains("inode number")), "{:?}", findings.notes);
}

#[test]
fn an_unmounted_hierarchy_is_noted_and_its_cgroups_have_inode_numbers() {
    let made = Made::new(128);
    made.write("proc/self/mountinfo", "20 1 0:5 / /proc rw - proc proc rw\n");
    made.page([1, 2], LRU, 4242);
    let mut scan = made.marked();
    let findings = made.read(&mut scan);
    assert_eq!((findings.cgroups[0].inode, findings.cgroups[0].own.idle), (Some(4242), 8192));
    let [note] = &findings.notes[..] else { panic!("{:?}", findings.notes) };
    assert!(note.contains("not mounted") && note.contains("mount -t cgroup2"), "{note}");
    let named = made.scan(Scope::Cgroups(vec!["/a".into()]), Detail::default()).unwrap_err().to_string();
    assert!(named.contains("by cgroup") && named.contains("mount -t cgroup2"), "{named}");
}

#[test]
fn only_memory_of_the_given_cgroups_is_marked_and_reported() {
    let made = Made::new(128);
    let (a, b, c) = (made.cgroup("sys/fs/cgroup/a"), made.cgroup("sys/fs/cgroup/a/b"), made.cgroup("sys/fs/cgroup/ab"));
    made.page([1], LRU, a);
    made.page([2, 3], LRU, b);
    made.page([4], LRU, c);
    let mut scan = made.scan(Scope::Cgroups(vec!["/a".into()]), Detail::default()).unwrap();
    scan.mark(&mut pacer()).unwrap();
    assert_eq!(made.idle(), [1, 2, 3]);
    let findings = made.read(&mut scan);
    assert_eq!((of(&findings, "/a"), of(&findings, "/a/b")), (Some([1, 0, 0, 0]), Some([2, 0, 0, 0])));
    assert_eq!((findings.cgroups.len(), findings.total.size()), (2, 3 * 4096));

    let missing = made.scan(Scope::Cgroups(vec!["/x".into()]), Detail::default()).unwrap_err().to_string();
    assert!(missing.contains("no cgroup /x") && missing.contains("find "), "{missing}");
}

#[test]
fn a_cgroup_that_is_removed_during_the_interval_keeps_its_path_and_is_noted() {
    let made = Made::new(128);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1], LRU, a);
    let mut scan = made.scan(Scope::Cgroups(vec!["/a".into()]), Detail::default()).unwrap();
    scan.mark(&mut pacer()).unwrap();
    fs::remove_dir(made.path("sys/fs/cgroup/a")).unwrap();
    let findings = made.read(&mut scan);
    assert_eq!(of(&findings, "/a"), Some([1, 0, 0, 0]));
    assert!(findings.notes.iter().any(|note| note.contains("/a was removed")), "{:?}", findings.notes);
}

#[test]
fn a_cgroup_that_is_made_during_the_interval_has_its_path() {
    let made = Made::new(128);
    let mut scan = made.marked();
    let new = made.cgroup("sys/fs/cgroup/new");
    made.page([1], LRU, new);
    assert_eq!(of(&made.read(&mut scan), "/new"), Some([0, 1, 0, 0]));
}

#[test]
fn without_cgroups_the_total_is_reported_and_a_note_says_why() {
    let made = Made::new(128);
    made.page([1], LRU, 0);
    made.write("proc/self/cgroup", "");
    fs::remove_file(made.path("proc/kpagecgroup")).unwrap();
    let mut scan = made.marked();
    let findings = made.read(&mut scan);
    assert_eq!((findings.total.idle, findings.cgroups.len()), (4096, 0));
    assert!(findings.notes.iter().any(|note| note.contains("kpagecgroup") && note.contains("CONFIG_MEMCG")));
    made.write("proc/self/mountinfo", V2);
    let named = made.scan(Scope::Cgroups(vec!["/a".into()]), Detail::default()).unwrap_err().to_string();
    assert!(named.contains("kpagecgroup"), "{named}");
}
