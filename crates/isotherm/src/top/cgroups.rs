//! The tree of the cgroups of processes.

use std::collections::BTreeMap;

use super::figures::TargetFigures;
use super::processes::{Cgroup, Entry, Line, Process};
use super::sort::{Keys, Sort};

/// The lines of these sorted processes below those of their cgroups.
///
/// A cgroup has a line if processes are in it, or if there are processes in several cgroups below it. Its processes
/// follow, and then the cgroups below it.
pub fn lines(processes: Vec<Process<'_>>, sort: Sort) -> Vec<Line<'_>> {
    let (known, unknown): (Vec<_>, Vec<_>) = processes.into_iter().partition(|process| process.cgroup.is_some());
    let mut lines = Vec::new();
    if !known.is_empty() {
        Branch::new(None, known).add_to(&mut lines, 0, sort);
    }
    if !unknown.is_empty() {
        let cgroup = Cgroup::new("cgroup not known", &unknown);
        Branch { cgroup, processes: unknown, below: Vec::new() }.add_to(&mut lines, 0, sort);
    }
    lines
}

/// A cgroup that has a line.
struct Branch<'a> {
    cgroup: Cgroup<'a>,
    /// The processes in it.
    processes: Vec<Process<'a>>,
    /// The cgroups below it.
    below: Vec<Self>,
}

impl<'a> Branch<'a> {
    /// The innermost cgroup that all these processes are in or below, and those below it. Its name is the path below
    /// `above`.
    fn new(above: Option<&str>, processes: Vec<Process<'a>>) -> Self {
        let path = processes.iter().map(path).reduce(common).unwrap_or_default();
        let name = match above {
            None if path.is_empty() => "/",
            None => path,
            Some(above) => below(path, above).unwrap_or(path),
        };
        let cgroup = Cgroup::new(name, &processes);
        let mut own = Vec::new();
        let mut children: BTreeMap<&str, Vec<Process<'a>>> = BTreeMap::new();
        for process in processes {
            match below(self::path(&process), path).and_then(|rest| rest.split('/').next()) {
                None | Some("") => own.push(process),
                Some(child) => children.entry(child).or_default().push(process),
            }
        }
        let below = children.into_values().map(|processes| Self::new(Some(path), processes)).collect();
        Self { cgroup, processes: own, below }
    }

    fn add_to(self, lines: &mut Vec<Line<'a>>, depth: usize, sort: Sort) {
        let Self { cgroup, processes, mut below } = self;
        lines.push(Line { what: Entry::Cgroup(cgroup), depth });
        lines.extend(processes.into_iter().map(|process| Line::process(process, depth + 1)));
        below.sort_by(|a, b| sort.order(&a.cgroup.keys(), &b.cgroup.keys()));
        below.into_iter().for_each(|branch| branch.add_to(lines, depth + 1, sort));
    }
}

impl<'a> Cgroup<'a> {
    fn new(name: &'a str, processes: &[Process<'_>]) -> Self {
        Self {
            name,
            processes: processes.len(),
            figures: TargetFigures::sum(processes.iter().map(|process| process.figures)),
            watched: processes.iter().map(|process| process.watched).max().unwrap_or_default(),
        }
    }

    fn keys(&self) -> Keys<'_> {
        self.figures.keys(self.watched, self.name)
    }
}

/// The path of the cgroup of a process; empty for the root.
fn path<'a>(process: &Process<'a>) -> &'a str {
    process.cgroup.unwrap_or_default().trim_end_matches('/')
}

/// The path of the innermost cgroup that both paths are in.
fn common<'a>(a: &'a str, b: &'a str) -> &'a str {
    let above = a.rmatch_indices('/').map(|(at, _)| &a[..at]);
    std::iter::once(a).chain(above).find(|above| below(b, above).is_some()).unwrap_or_default()
}

/// The rest of `path` below `above`; empty if they are the same, `None` if it is not below.
fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(above)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
