//! A remark on the memory of the machine that a scan of page tables leaves out.

use std::path::Path;

use isotherm_core::{IdleTally, units};
use isotherm_kernel::system_memory;

/// What a scan of all processes does not see, of the memory of the machine below `root`. `scanned` is what it has seen.
pub(super) fn of_the_machine(root: &Path, scanned: &IdleTally) -> Option<String> {
    let memory = system_memory(root).ok()?;
    let used = memory.total.saturating_sub(memory.free);
    let rest = used.saturating_sub(scanned.size() + scanned.unevictable);
    Some(format!(
        "{} of {} in use are left out: what no process maps, such as page cache and the memory of the kernel",
        units::bytes(rest),
        units::bytes(used)
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use isotherm_core::PageState;

    use super::*;

    #[test]
    fn what_no_process_maps_is_told_of() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let text = text.lines().map(|line| match line.split(':').next() {
            Some("MemTotal") => "MemTotal: 4194304 kB".to_owned(),
            Some("MemFree") => "MemFree: 1048576 kB".to_owned(),
            _ => line.to_owned(),
        });
        fs::write(root.path().join("proc/meminfo"), text.collect::<Vec<_>>().join("\n") + "\n").unwrap();
        let mut scanned = IdleTally::default();
        scanned.add(PageState::Idle(1), 1 << 30);
        let note = of_the_machine(root.path(), &scanned).unwrap();
        assert!(note.starts_with("2 GiB of 3 GiB in use are left out"), "{note}");
    }
}
