//! What a container keeps from isotherm, and how to start the container so that it does not.

use std::fs;
use std::path::Path;

use crate::names::status_field;

/// The numbers of the machine's first namespaces (`include/linux/proc_ns.h`), each with what another one hides, and
/// what to do.
const NAMESPACES: [(&str, u32, &str); 3] = [
    (
        "pid",
        0xefff_fffc,
        "only processes of this container can be watched; start it with the PID namespace of the machine (--pid=host, \
         hostPID: true)",
    ),
    (
        "cgroup",
        0xefff_fffb,
        "paths of cgroups begin at that of this container, so that units and other containers have other names; start \
         it with the cgroup namespace of the machine (--cgroupns=host), or mount its /sys/fs/cgroup",
    ),
    (
        "user",
        0xefff_fffd,
        "capabilities count for processes of this container only; start it in the first user namespace, as root and \
         not rootless",
    ),
];

/// The capabilities that are needed, by their numbers (capabilities(7)), and what for.
const CAPABILITIES: [(u32, &str, &str); 6] = [
    (39, "BPF", "eBPF programs read page tables"),
    (38, "PERFMON", "eBPF programs read memory of the kernel"),
    (19, "SYS_PTRACE", "other processes are looked into"),
    (23, "SYS_NICE", "accessed bits of other processes are cleared, and pages moved"),
    (21, "SYS_ADMIN", "page frames are known, so that shared memory counts once"),
    (2, "DAC_READ_SEARCH", "files of other users are read"),
];

/// Files that are needed, and how to have them.
const FILES: [(&str, &str); 2] = [
    ("sys/kernel/btf/vmlinux", "the types of the kernel are not there; mount /sys, read-only"),
    ("sys/fs/cgroup/cgroup.controllers", "cgroups are not there; mount /sys/fs/cgroup of the machine, read-only"),
];

/// What the container that this process is in keeps from isotherm: a line each, with what to do. Empty outside of a
/// container, and in one that keeps nothing. `root` stands for `/`.
pub fn confinement(root: &Path) -> Vec<String> {
    if !is_in_container(root) {
        return Vec::new();
    }
    let others = NAMESPACES.iter().filter(|(kind, first, _)| is_other(root, kind, *first));
    let mut lines: Vec<String> = others.map(|(_, _, what)| (*what).into()).collect();
    let effective = status_field(&root.join("proc"), "self", "CapEff");
    if let Some(effective) = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) {
        let missing = CAPABILITIES.iter().filter(|(number, ..)| effective & 1 << number == 0);
        lines.extend(missing.map(|(_, name, what)| {
            format!("CAP_{name} is missing, by which {what} (--cap-add {name}; capabilities: add: [{name}])")
        }));
    }
    lines.extend(FILES.iter().filter(|(file, _)| !root.join(file).exists()).map(|(_, what)| (*what).into()));
    lines
}

/// Whether a runtime has made what this process sees: another PID or cgroup namespace than the first, or its marks.
fn is_in_container(root: &Path) -> bool {
    let marks = ["run/.containerenv", ".dockerenv"];
    let variable = fs::read(root.join("proc/self/environ")).unwrap_or_default();
    NAMESPACES.iter().any(|(kind, first, _)| is_other(root, kind, *first))
        || marks.iter().any(|mark| root.join(mark).exists())
        || variable
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(b"container=") || variable.starts_with(b"KUBERNETES_SERVICE_HOST="))
}

/// Whether this process has another namespace of this kind than the machine's first.
fn is_other(root: &Path, kind: &str, first: u32) -> bool {
    let link = fs::read_link(root.join("proc/self/ns").join(kind));
    link.is_ok_and(|link| link.to_string_lossy() != format!("{kind}:[{first}]"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn made(pid: u32, capabilities: u64, files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let ns = root.path().join("proc/self/ns");
        fs::create_dir_all(&ns).unwrap();
        for (kind, number) in [("pid", pid), ("cgroup", 0xefff_fffb), ("user", 0xefff_fffd)] {
            symlink(format!("{kind}:[{number}]"), ns.join(kind)).unwrap();
        }
        fs::write(root.path().join("proc/self/status"), format!("Name:\tx\nCapEff:\t{capabilities:016x}\n")).unwrap();
        for file in files {
            fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            fs::write(root.path().join(file), "").unwrap();
        }
        root
    }

    #[test]
    fn a_container_says_what_it_lacks_and_a_machine_nothing() {
        assert!(confinement(made(0xefff_fffc, 0, &[]).path()).is_empty(), "an ordinary user of a machine");
        let all = ["sys/kernel/btf/vmlinux", "sys/fs/cgroup/cgroup.controllers"];
        let lines = confinement(made(4026532000, u64::MAX, &all).path());
        assert!(lines.len() == 1 && lines[0].contains("hostPID: true"), "{lines:?}");
        let marked = ["run/.containerenv"];
        let lines = confinement(made(0xefff_fffc, !(1 << 39), &marked).path());
        let has = |words: &str| lines.iter().any(|line| line.contains(words));
        assert!(lines.len() == 3 && has("--cap-add BPF") && has("mount /sys,") && has("/sys/fs/cgroup"), "{lines:?}");
    }
}
