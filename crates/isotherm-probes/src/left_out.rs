//! A remark on the memory of the machine that page tables do not show.

use std::path::Path;

use isotherm_core::units;
use isotherm_kernel::{meminfo, system_memory};

/// What the page tables of all processes do not show, of the memory of the machine below `root`. `seen` is what they do
/// show, in bytes.
pub(crate) fn of_the_machine(root: &Path, seen: u64) -> Option<String> {
    let memory = system_memory(root).ok()?;
    let used = memory.total.saturating_sub(memory.free);
    let rest = used.saturating_sub(seen);
    Some(format!(
        "{} of {} in use are left out: what no process maps, such as page cache and the memory of the kernel",
        units::bytes(rest),
        units::bytes(used)
    ))
}

/// Like [`of_the_machine`], before any page table is read: the kernel counts the pages that processes map.
pub(crate) fn before_a_scan(root: &Path) -> Option<String> {
    let info = meminfo(root).ok()?;
    of_the_machine(root, info.anon_pages? + info.mapped)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_no_process_maps_is_told_of() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let text = text.lines().map(|line| match line.split(':').next() {
            Some("MemTotal") => "MemTotal: 4194304 kB".to_owned(),
            Some("MemFree") => "MemFree: 1048576 kB".to_owned(),
            Some("AnonPages") => "AnonPages: 524288 kB".to_owned(),
            Some("Mapped") => "Mapped: 524288 kB".to_owned(),
            _ => line.to_owned(),
        });
        fs::write(root.path().join("proc/meminfo"), text.collect::<Vec<_>>().join("\n") + "\n").unwrap();
        for note in [of_the_machine(root.path(), 1 << 30), before_a_scan(root.path())] {
            let note = note.unwrap();
            assert!(note.starts_with("2 GiB of 3 GiB in use are left out"), "{note}");
        }
        assert_eq!(before_a_scan(&root.path().join("nothing")), None);
    }
}
