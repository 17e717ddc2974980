//! Cgroups with much memory of a group: each is named, and can be a group, too.

use std::collections::BTreeMap;

use isotherm_core::survey::PageSums;
use isotherm_kernel::Containers;

use crate::config::LONGEST_NAME;
use crate::hub::Newest;

/// The cgroup of processes without one, and of cgroups that are too small to be named.
pub const OTHERS: &str = "";

/// At most so many cgroups of a group are groups, too: those with the most memory.
const MOST: usize = 200;

/// The memory of each cgroup by its processes. What several of them map counts for each.
pub fn sums(known: &Newest) -> BTreeMap<String, PageSums> {
    let mut all: BTreeMap<String, PageSums> = BTreeMap::new();
    let all_targets = known.survey.iter().flat_map(|record| record.described());
    for (target, info) in all_targets.filter(|(target, _)| target.id.pid().is_some()) {
        *all.entry(info.cgroup.clone().unwrap_or_default()).or_default() += target.total();
    }
    all
}

/// The cgroups that are to be groups, each with its name: those that have at least `least` bytes, or half of that if
/// they are groups already. `is_taken` says which names others have.
pub fn named(
    known: &Newest,
    least: u64,
    containers: &Containers,
    is_group: impl Fn(&str) -> bool,
    is_taken: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let mut large: Vec<(u64, String)> =
        sums(known).into_iter().map(|(path, sums)| (sums.figures.present, path)).collect();
    let is_large = |present: u64, path: &str| present >= least || present >= least / 2 && is_group(path);
    large.retain(|(present, path)| !path.trim_matches('/').is_empty() && is_large(*present, path));
    large.sort_by(|a, b| b.cmp(a));
    large.truncate(MOST);
    // The order of paths does not change as memory does, and so the names do not.
    let mut paths: Vec<String> = large.into_iter().map(|(_, path)| path).collect();
    paths.sort();
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for path in paths {
        let short = group_name(&short_name(&path, containers));
        let name = if is_taken(&short) || named.contains_key(&short) { group_name(&path) } else { short };
        if !is_taken(&name) {
            named.entry(name).or_insert(path);
        }
    }
    named
}

/// What people call the cgroup at `path`: its container, with its pod if it has one, or its unit.
fn short_name(path: &str, containers: &Containers) -> String {
    match containers.names_in(path) {
        Some(names) => {
            [names.namespace, names.pod, Some(names.container)].into_iter().flatten().collect::<Vec<_>>().join(".")
        }
        None => path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default().into(),
    }
}

/// The name of a group that is made of a text: its last characters, with `-` in the place of those that are not
/// allowed.
fn group_name(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let text: Vec<char> = text.trim_matches('/').replace('/', ".").chars().map(allowed).collect();
    let tail = &text[text.len().saturating_sub(LONGEST_NAME)..];
    tail.iter().collect::<String>().trim_start_matches('.').into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::survey::{BlockList, MappingSums, SurveySnapshot, TargetSurvey};
    use isotherm_core::{AddrRange, Figures, Mapping, TargetId};
    use isotherm_record::{SurveyRecord, TargetInfo};

    use super::*;

    /// A survey of processes, each in a cgroup with so many MiB.
    fn surveyed(processes: &[(&str, u64)]) -> Newest {
        let ids = (1..).map(|pid| TargetId::process(pid, Duration::ZERO));
        let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(0, 1 << 30).unwrap())].into();
        let target = |(id, (_, mib)): (TargetId, &(&str, u64))| {
            let sums = PageSums::of(Figures { present: mib << 20, ..Figures::default() });
            TargetSurvey {
                id,
                mappings: Arc::clone(&mappings),
                by_mapping: vec![MappingSums::new(0, &mappings, sums).unwrap()],
                by_block: BlockList::default(),
                by_node: vec![],
            }
        };
        let targets = ids.clone().zip(processes).map(target).collect();
        let info = |(id, (cgroup, _)): (TargetId, &(&str, u64))| {
            (id, Arc::new(TargetInfo { cgroup: Some((*cgroup).into()), ..TargetInfo::default() }))
        };
        let infos = ids.zip(processes).map(info).collect();
        let survey = SurveySnapshot { targets, ..SurveySnapshot::default() };
        let record = SurveyRecord { survey, infos, ..SurveyRecord::default() };
        Newest { survey: Some(Arc::new(record)), ..Newest::default() }
    }

    #[test]
    fn large_cgroups_are_named_after_their_units_and_no_two_names_are_the_same() {
        let known = surveyed(&[
            ("/system.slice/redis.service", 40),
            ("/system.slice/redis.service", 40),
            ("/system.slice/getty@tty1.service", 90),
            ("/system.slice/small.service", 60),
            ("/system.slice/shrunk.service", 40),
            ("/a/app", 100),
            ("/b/app", 100),
            ("/", 500),
            ("/x/machine", 100),
        ]);
        let root = tempfile::tempdir().unwrap();
        let containers = Containers::new(root.path());
        let is_group = |path: &str| path.ends_with("shrunk.service");
        let named = named(&known, 64 << 20, &containers, is_group, |name| name == "machine");
        let expected = [
            ("app", "/a/app"),
            ("b.app", "/b/app"),
            ("getty-tty1.service", "/system.slice/getty@tty1.service"),
            ("redis.service", "/system.slice/redis.service"),
            ("shrunk.service", "/system.slice/shrunk.service"),
            ("x.machine", "/x/machine"),
        ];
        assert_eq!(named, expected.map(|(name, path)| (name.to_owned(), path.to_owned())).into());
    }
}
