//! What to do if nothing belongs to a selection.

use std::path::Path;

use super::facts::Facts;
use super::{Containers, Selection, Selector};
use crate::Glob;
use crate::listing::process_ids;

impl Selection {
    /// What to do if nothing belongs to the selection: where to look, or for a container that is not known by its
    /// cgroup, which cgroup may be its own. `root` stands for `/`.
    pub fn advice(&self, root: &Path) -> String {
        let mut containers = self.any.iter().filter_map(|selector| match selector {
            Selector::Container(name) => Some(name),
            _ => None,
        });
        let Some(name) = containers.next() else { return "`ps -e` lists the processes".into() };
        let known = Containers::new(root);
        let with_name = |pid| {
            let path = Facts::new(root, pid, &known).cgroup()?.to_owned();
            // Below the part with the name are cgroups of the container's own.
            let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            ends.find(|&end| path[..end].contains(name)).map(|end| Glob::escape(&path[..end]))
        };
        match process_ids(root).into_iter().flatten().find_map(with_name) {
            Some(cgroup) => format!("there is a cgroup with this name: --cgroup '{cgroup}'"),
            None => "name its cgroup by --cgroup; `ps -e -o pid,cgroup` lists them".into(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_is_not_known_by_its_cgroup_is_named_by_it() {
        let root = tempfile::tempdir().unwrap();
        for (pid, path) in [(7, "/system.slice/redis.service"), (8, "/jails/web[1]-prod/init/worker")] {
            let directory = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cgroup"), format!("0::{path}\n")).unwrap();
        }
        let of = |any: Selector| Selection { any: vec![any], ..Selection::default() }.advice(root.path());
        let found = of(Selector::Container("web[1]".into()));
        let pattern = found.split('\'').nth(1).unwrap_or_else(|| panic!("{found}"));
        let cgroup = Selection { any: vec![Selector::Cgroup(Glob::new(pattern).unwrap())], ..Selection::default() };
        assert_eq!(cgroup.find(root.path()).unwrap(), [8], "{found}");
        assert!(of(Selector::Container("db".into())).contains("ps -e -o pid,cgroup"));
        assert!(of(Selector::All).contains("ps -e"));
    }
}
