//! What a cgroup is charged for besides the memory that its processes map, and whether it is short of memory.

use std::fs;
use std::path::Path;

use procfs::{FromRead, MemoryPressure};

use super::{CgroupVersion, Hierarchy};

/// What a cgroup is charged for, with the cgroups below it (Linux `Documentation/admin-guide/cgroup-v2.rst`,
/// "memory.stat", and `cgroup-v1/memory.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupCharges {
    /// Bytes that need swap to make room: anonymous and shared memory.
    pub anonymous: u64,
    /// Bytes of the page cache that no process maps and that the kernel has found in use (its active list), at most.
    pub unmapped_cache: u64,
    /// Bytes of the kernel that it cannot reclaim: stacks, page tables, sockets and the like. In version 1 all bytes of
    /// the kernel. 0 if they are not counted.
    pub kernel: u64,
    /// As [`may_swap`] says.
    pub may_swap: bool,
    /// The share of the last five minutes for which some task has waited for memory. `None` in version 1, and without
    /// pressure stall information.
    pub pressure: Option<f64>,
}

/// Whether the cgroup at `path` may have memory in swap, if there is swap: neither it nor one above it has a
/// `memory.swap.max` of 0, as containers of Kubernetes do. It is not known of version 1, and counts as true.
pub fn may_swap(hierarchy: &Hierarchy, path: &str) -> bool {
    let Some(mount) = hierarchy.mount() else { return true };
    let mut limits = Path::new(path)
        .ancestors()
        .filter_map(|above| fs::read_to_string(mount.directory_of(above.to_str()?)?.join("memory.swap.max")).ok());
    limits.all(|limit| limit.trim() != "0")
}

/// The charges of the cgroup at `path`. `None` if its `memory.stat` cannot be read.
pub fn charges(hierarchy: &Hierarchy, path: &str) -> Option<CgroupCharges> {
    let directory = hierarchy.mount()?.directory_of(path)?;
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let text = read("memory.stat")?;
    // In version 1, the names without `total_` leave out the cgroups below.
    let total = if hierarchy.version() == CgroupVersion::V1 { "total_" } else { "" };
    let found = |name: &str| -> Option<u64> {
        let value = |line: &str| line.strip_prefix(total)?.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        text.lines().find_map(value)
    };
    let count = |name: &str| found(name).unwrap_or(0);
    let sum = |names: &[&str]| names.iter().map(|name| count(name)).fold(0, u64::saturating_add);
    let shared = count("shmem");
    let (cached, mapped, anonymous, kernel) = match hierarchy.version() {
        CgroupVersion::V1 => {
            let kernel = read("memory.kmem.usage_in_bytes").and_then(|text| text.trim().parse().ok());
            (count("cache"), count("mapped_file"), count("rss"), kernel.unwrap_or(0))
        }
        CgroupVersion::V2 => {
            // `kernel` has them all since Linux 5.18.
            let parts = || sum(&["kernel_stack", "pagetables", "percpu", "vmalloc", "slab"]);
            let kernel = found("kernel").unwrap_or_else(parts).saturating_sub(count("slab_reclaimable"));
            (count("file"), count("file_mapped"), count("anon"), kernel.saturating_add(count("sock")))
        }
    };
    let unmapped = cached.saturating_sub(shared).saturating_sub(mapped);
    let pressure = read("memory.pressure").and_then(|text| MemoryPressure::from_read(text.as_bytes()).ok());
    Some(CgroupCharges {
        anonymous: anonymous.saturating_add(shared),
        unmapped_cache: unmapped.min(count("active_file")),
        kernel,
        may_swap: may_swap(hierarchy, path),
        // The kernel tells two digits after the point.
        pressure: pressure.map(|pressure| (f64::from(pressure.some.avg300) * 100.0).round() / 1e4),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::super::made::{mounted_at_cg, write};
    use super::*;

    #[test]
    fn page_cache_counts_if_no_process_maps_it_and_the_kernel_has_found_it_in_use() {
        let root = mounted_at_cg();
        let file = |name: &str, text: &str| write(root.path(), &format!("cg/a/{name}"), text);
        let of = || charges(&Hierarchy::find(root.path()).unwrap(), "/a");
        assert_eq!(of(), None);
        let stat =
            "anon 100\nfile 70\nkernel 30\nsock 2\nshmem 10\nfile_mapped 20\nactive_file 25\nslab_reclaimable 5\n";
        file("memory.stat", stat);
        let expected = CgroupCharges { anonymous: 110, unmapped_cache: 25, kernel: 27, may_swap: true, pressure: None };
        assert_eq!(of(), Some(expected));
        file("memory.swap.max", "0\n");
        file(
            "memory.pressure",
            "some avg10=0.00 avg60=0.00 avg300=1.25 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
        );
        file(
            "memory.stat",
            &stat.replace("kernel 30", "kernel_stack 8\nslab 9").replace("active_file 25", "active_file 90"),
        );
        let expected =
            CgroupCharges { unmapped_cache: 40, kernel: 14, may_swap: false, pressure: Some(0.0125), ..expected };
        assert_eq!(of(), Some(expected));
    }

    #[test]
    fn a_cgroup_may_swap_unless_it_or_one_above_it_may_not() {
        let root = mounted_at_cg();
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let limit = |path: &str, text: &str| write(root.path(), &format!("cg/{path}/memory.swap.max"), text);
        limit("a/b", "0\n");
        limit("a/b/c", "max\n");
        limit("a/d", "4096\n");
        let may = ["/", "/a", "/a/b", "/a/b/c", "/a/d", "/gone"].map(|path| may_swap(&hierarchy, path));
        assert_eq!(may, [true, true, false, false, true, true]);
    }

    #[test]
    fn the_charges_of_version_1_have_those_of_the_cgroups_below() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        write("proc/self/cgroup", "4:memory:/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup cgroup rw,memory\n");
        write(
            "cg/a/memory.stat",
            "cache 1\nrss 1\ntotal_cache 50\ntotal_rss 80\ntotal_shmem 5\ntotal_mapped_file 15\ntotal_active_file 20\n",
        );
        write("cg/a/memory.kmem.usage_in_bytes", "7\n");
        let expected = CgroupCharges { anonymous: 85, unmapped_cache: 20, kernel: 7, may_swap: true, pressure: None };
        assert_eq!(charges(&Hierarchy::find(root.path()).unwrap(), "/a"), Some(expected));
    }
}
