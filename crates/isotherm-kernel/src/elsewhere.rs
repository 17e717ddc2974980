//! Finds memory of a process that others access without its page tables: guests of KVM, devices, and io_uring.

use std::fs;
use std::io;
use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};

/// At most this many descriptors of a process are looked at.
const MOST_DESCRIPTORS: usize = 65_536;

/// Who may access memory of a process without its page tables, so that its accessed bits do not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// A guest of KVM. Its addresses are translated by page tables of its own: by the processor, or by those that KVM
    /// makes where there is no second-level paging.
    pub guest: bool,
    /// A device: VFIO, or RDMA with pinned memory.
    pub device: bool,
    /// io_uring: the buffers that are registered with it, sorted and disjoint.
    pub buffers: Vec<AddrRange>,
}

impl Elsewhere {
    /// Who accesses memory of the process with this ID, by its open files. `root` stands for `/`.
    ///
    /// # Errors
    /// Those of reading `/proc/PID/fd`.
    pub fn of_process(root: &Path, pid: u32) -> io::Result<Self> {
        let process = root.join(format!("proc/{pid}"));
        let mut found = Self::default();
        let mut rdma = false;
        for descriptor in fs::read_dir(process.join("fd"))?.take(MOST_DESCRIPTORS).flatten() {
            let Ok(file) = fs::read_link(descriptor.path()) else { continue };
            let name = file.to_string_lossy();
            if name == "anon_inode:kvm-vm" {
                found.guest = true;
            } else if name.starts_with("anon_inode:[vfio") || name.starts_with("/dev/vfio/") {
                found.device = true;
            } else if name.starts_with("/dev/infiniband/uverbs") {
                rdma = true;
            } else if name == "anon_inode:[io_uring]" {
                let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()));
                found.buffers.extend(registered(&info.unwrap_or_default()));
            }
        }
        found.device |= rdma && pins_memory(&fs::read_to_string(process.join("status"))?);
        found.buffers.sort_unstable_by_key(|range| range.start());
        found.buffers = joined(&found.buffers);
        Ok(found)
    }
}

/// The same memory in ranges that neither overlap nor touch. `ranges` are sorted by their starts.
fn joined(ranges: &[AddrRange]) -> Vec<AddrRange> {
    let mut all: Vec<AddrRange> = Vec::new();
    for range in ranges {
        let before = all.pop_if(|last| range.start() <= last.end());
        let (start, end) = before.map_or((range.start(), 0), |last| (last.start(), last.end()));
        all.extend(AddrRange::new(start, range.end().max(end)));
    }
    all
}

/// Whether the kernel has pinned memory of a process, by its `status`.
fn pins_memory(status: &str) -> bool {
    let pinned = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    pinned.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()).is_some_and(|kib: u64| kib > 0)
}

/// The pages of the buffers that are registered, by the information about a descriptor of io_uring: lines with an
/// index, an address and a length.
fn registered(info: &str) -> impl Iterator<Item = AddrRange> {
    let rest = info.lines().skip_while(|line| !line.starts_with("UserBufs:")).skip(1);
    rest.map_while(|line| {
        let (index, place) = line.trim_start().split_once(": ")?;
        index.parse::<u32>().ok()?;
        let (start, length) = place.trim().split_once('/')?;
        let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
        let end = start.checked_add(length.parse().ok()?)?.checked_next_multiple_of(PAGE_SIZE)?;
        AddrRange::new(start - start % PAGE_SIZE, end)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine(files: &[&str], settings: &[(&str, &str)]) -> Elsewhere {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fs::create_dir_all(root.path().join("proc/7/fd")).unwrap();
        for (nth, file) in files.iter().enumerate() {
            symlink(file, root.path().join(format!("proc/7/fd/{nth}"))).unwrap();
        }
        write("proc/7/status", "Name:\tx\nVmPin:\t       0 kB\n");
        settings.iter().for_each(|(path, text)| write(path, text));
        Elsewhere::of_process(root.path(), 7).unwrap()
    }

    #[test]
    fn a_guest_is_found_by_the_descriptor_of_its_machine() {
        assert!(machine(&["/dev/kvm", "anon_inode:kvm-vm"], &[]).guest);
        assert_eq!(machine(&["/dev/kvm"], &[]), Elsewhere::default(), "no guest");
    }

    #[test]
    fn devices_are_found_by_their_files() {
        let device = |files: &[&str], settings: &[(&str, &str)]| machine(files, settings).device;
        assert!(device(&["anon_inode:[vfio-device]"], &[]));
        assert!(device(&["/dev/vfio/17"], &[]));
        assert!(!device(&["/dev/infiniband/uverbs0"], &[]), "nothing is pinned");
        assert!(device(&["/dev/infiniband/uverbs0"], &[("proc/7/status", "VmPin:\t    2048 kB\n")]));
        assert!(!device(&["/dev/null", "socket:[5]"], &[("proc/7/status", "VmPin:\t    2048 kB\n")]));
    }

    #[test]
    fn registered_buffers_of_io_uring_are_whole_pages() {
        let info = "pos:\t0\nSqMask:\t0x7\nUserFiles:\t1\n    0: 0x9\nUserBufs:\t3\n    0: 0x7f0000001000/8192\n    \
                    1: 0x7f0000003800/2\n    2: 0x7f0000100fff/2\nPollList:\n    0: 0x5000/4096\n";
        let settings = [("proc/7/fdinfo/0", info)];
        let found = machine(&["anon_inode:[io_uring]"], &settings).buffers;
        let range = |start, end| AddrRange::new(start, end).unwrap();
        assert_eq!(found, [range(0x7f00_0000_1000, 0x7f00_0000_4000), range(0x7f00_0010_0000, 0x7f00_0010_2000)]);
    }
}
