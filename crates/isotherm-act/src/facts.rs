//! Reads the properties of a process that filters depend on: its name and its cgroup.

use std::path::Path;

use isotherm_core::scheme::ProcessFacts;
use isotherm_kernel::{cgroup, process_name};

/// The facts of process `pid`; `None` if there is no such process. `root` is the directory that stands for `/`.
pub(super) fn facts(root: &Path, pid: u32) -> Option<ProcessFacts> {
    let name = process_name(root, pid).ok()?;
    // A kernel without cgroups shows none.
    let cgroup = cgroup::of_process(root, pid).unwrap_or_default();
    Some(ProcessFacts { name: name.into(), cgroup: cgroup.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_facts_and_a_process_that_does_not_exist_has_none() {
        let own = facts(Path::new("/"), std::process::id()).unwrap();
        assert!(!own.name.is_empty() && !own.name.contains('\n'));
        assert_eq!(facts(Path::new("/"), u32::MAX), None);
    }
}
