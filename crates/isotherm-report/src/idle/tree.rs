//! The tree of cgroups: the memory of each, without and with the cgroups below it.

use std::collections::BTreeMap;

use isotherm_core::IdleTally;
use schemars::JsonSchema;
use serde::Serialize;

use super::IdleFigures;

/// The memory of a cgroup, or of memory without one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CgroupFigures {
    /// The path in the hierarchy. `None` for memory without a cgroup, or if the path is not known.
    pub path: Option<String>,
    /// The inode number, if the path is not known.
    pub inode: Option<u64>,
    /// The memory without that of cgroups below it.
    pub own: IdleFigures,
    /// The memory with that of all cgroups below it.
    pub total: IdleFigures,
}

/// The own memory of a cgroup: its path, or its inode number if the path is not known, and its tally.
pub type CgroupOwn = (Option<String>, Option<u64>, IdleTally);

/// Builds the tree: cgroups by path, each followed by those below it. Missing parents are added. Memory without a path
/// comes last.
pub fn cgroup_tree(owns: &[CgroupOwn], ages: bool) -> Vec<CgroupFigures> {
    let none = IdleTally::default();
    let mut totals: BTreeMap<Vec<&str>, (Option<&IdleTally>, IdleTally)> = BTreeMap::new();
    for (path, _, own) in owns {
        let Some(path) = path else { continue };
        let parts = parts(path);
        for depth in 0..=parts.len() {
            let above = totals.entry(parts[..depth].to_vec()).or_default();
            above.1 += own;
            if depth == parts.len() {
                above.0 = Some(own);
            }
        }
    }
    // Sorted by parts of the path, so that cgroups follow their parent.
    let tree = totals.iter().map(|(parts, (own, total))| CgroupFigures {
        path: Some(format!("/{}", parts.join("/"))),
        inode: None,
        own: IdleFigures::new(own.unwrap_or(&none), ages),
        total: IdleFigures::new(total, ages),
    });
    let unnamed = owns.iter().filter(|(path, ..)| path.is_none()).map(|(_, inode, own)| CgroupFigures {
        path: None,
        inode: *inode,
        own: IdleFigures::new(own, ages),
        total: IdleFigures::new(own, ages),
    });
    tree.chain(unnamed).collect()
}

/// The parts of a path. `/` has none.
pub(super) fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use isotherm_core::PageState;

    use super::*;

    fn tally(idle: u64, accessed: u64) -> IdleTally {
        let mut tally = IdleTally::default();
        tally.add(PageState::Idle(1), idle);
        tally.add(PageState::Accessed, accessed);
        tally
    }

    #[test]
    fn totals_include_all_cgroups_below_and_missing_parents_are_added() {
        let owns = [
            (Some("/a/b/c".into()), None, tally(4, 1)),
            (Some("/a".into()), None, tally(2, 0)),
            (Some("/a-b".into()), None, tally(1, 0)),
            (Some("/a/b2".into()), None, tally(8, 0)),
            (None, Some(77), tally(16, 3)),
        ];
        let tree = cgroup_tree(&owns, false);
        let lines: Vec<_> = tree
            .iter()
            .map(|line| (line.path.as_deref().unwrap_or("-"), line.own.idle_bytes, line.total.idle_bytes))
            .collect();
        assert_eq!(
            lines,
            [
                ("/", 0, 15),
                ("/a", 2, 14),
                ("/a/b", 0, 4),
                ("/a/b/c", 4, 4),
                ("/a/b2", 8, 8),
                ("/a-b", 1, 1),
                ("-", 16, 16)
            ]
        );
        assert_eq!((tree[6].inode, tree[0].total.accessed_bytes), (Some(77), 1));
    }
}
