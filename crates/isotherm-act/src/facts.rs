//! What a process is, for filters: its name and its cgroup.

use std::fs;
use std::path::Path;

use isotherm_core::scheme::ProcessFacts;
use isotherm_kernel::cgroup;

/// The facts of process `pid`, below the directory that stands for `/`; nothing if it has gone.
pub(super) fn facts(root: &Path, pid: u32) -> Option<ProcessFacts> {
    let name = fs::read_to_string(root.join(format!("proc/{pid}/comm"))).ok()?;
    // A kernel without cgroups has none to tell.
    let cgroup = cgroup::of_process(root, pid).unwrap_or_default();
    Some(ProcessFacts { name: name.trim_end_matches('\n').into(), cgroup: cgroup.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_name_and_what_is_not_there_has_none() {
        let own = facts(Path::new("/"), std::process::id()).unwrap();
        assert!(!own.name.is_empty() && !own.name.contains('\n'));
        assert_eq!(facts(Path::new("/"), u32::MAX), None);
    }
}
